"""Programs of several ranks: collectives, and tensors that are divided among the ranks."""

from weft.ranks import collectives
from weft.ranks.collectives import *

__all__: list[str] = []
__all__ += collectives.__all__
