"""The compile cache: compiled programs in memory and on disk.

Imports `weft.plan`, `weft.text` and the layers below. Start with `compile_cache`; `structure`
computes keys, `serialization` contents, and `store` manages files.
"""
