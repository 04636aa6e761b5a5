"""The command `weft`: run a file, list plugins and backends, look for what does not work.

Imports everything below. Start with `app`.
"""
