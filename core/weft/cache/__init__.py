"""The content of the compile cache: keys of graphs, and compiled programs as files.

Imports `weft.plan`, `weft.text` and the layers below. `structure` digests graphs, `serialization`
writes contents, `template` fills in lengths, and `store` manages files. Keys are made, and programs
looked up, in `weft.runtime.compile_cache`.
"""
