"""The compile cache: compiled programs kept in memory and on disk, and found again.

Imports `weft.plan`, `weft.text` and what lies below. Start with `compile_cache`; `structure` makes
the key, `serialisation` the content, `store` keeps the files.
"""
