"""Plugins: entry points, hooks, the lazy registry, and whose code an error came from.

Imports `weft.errors` and `weft.support` alone, so that every layer above may ask for a plugin.
Start with `entrypoints`, which reads what is installed, and `registry`, which loads it;
`hookspecs` lists what a plugin may hook into.
"""

from weft.plugins import registry, status
from weft.plugins.hookspecs import hookimpl
from weft.plugins.registry import *
from weft.plugins.status import *

__all__ = ["hookimpl"]
__all__ += registry.__all__
__all__ += status.__all__
