"""The content of the compile cache: keys of graphs, and compiled programs as files.

Imports `weft.plan`, `weft.text` and the layers below. `structure` computes keys, `serialization`
contents, `template` fills in lengths, and `store` manages files. `weft.runtime.compile_cache` looks
programs up.
"""
