"""Programs of several ranks: collectives, and tensors that are divided among the ranks."""

from weft.ranks.collectives import *
from weft.support import exports

exports.declare(globals())
