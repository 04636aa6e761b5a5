"""The catalogue of ops, one module a family; every op class and function is exported here."""

from weft.ops import (
    bits,
    comparison,
    control,
    elementwise,
    indexing,
    joining,
    linalg,
    math,
    movement,
    nn,
    random,
    reduction,
    state,
    storage,
)
from weft.ops.bits import *
from weft.ops.comparison import *
from weft.ops.control import *
from weft.ops.elementwise import *
from weft.ops.indexing import *
from weft.ops.joining import *
from weft.ops.linalg import *
from weft.ops.math import *
from weft.ops.movement import *
from weft.ops.nn import *
from weft.ops.random import *
from weft.ops.reduction import *
from weft.ops.state import *
from weft.ops.storage import *

__all__: list[str] = []
__all__ += bits.__all__
__all__ += comparison.__all__
__all__ += control.__all__
__all__ += elementwise.__all__
__all__ += indexing.__all__
__all__ += joining.__all__
__all__ += linalg.__all__
__all__ += math.__all__
__all__ += movement.__all__
__all__ += nn.__all__
__all__ += random.__all__
__all__ += reduction.__all__
__all__ += state.__all__
__all__ += storage.__all__
