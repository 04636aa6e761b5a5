"""The array library: every op class and function that works on tensors of any kind."""

from weft.ir import storage
from weft.ir.storage import *
from weft.ops.control import calls, effects, recomputation, state
from weft.ops.control.calls import *
from weft.ops.control.effects import *
from weft.ops.control.recomputation import *
from weft.ops.control.state import *
from weft.ops.indexing import dynamic_slices, gathering, multi_index, positions, segments, slicing
from weft.ops.indexing.dynamic_slices import *
from weft.ops.indexing.gathering import *
from weft.ops.indexing.multi_index import *
from weft.ops.indexing.positions import *
from weft.ops.indexing.segments import *
from weft.ops.indexing.slicing import *
from weft.ops.pointwise import (
    bits,
    comparison,
    complex_parts,
    elementwise,
    math,
    rounding,
    special,
    trigonometry,
)
from weft.ops.pointwise.bits import *
from weft.ops.pointwise.comparison import *
from weft.ops.pointwise.complex_parts import *
from weft.ops.pointwise.elementwise import *
from weft.ops.pointwise.math import *
from weft.ops.pointwise.rounding import *
from weft.ops.pointwise.special import *
from weft.ops.pointwise.trigonometry import *
from weft.ops.products import contraction, decompositions, linalg
from weft.ops.products.contraction import *
from weft.ops.products.decompositions import *
from weft.ops.products.linalg import *
from weft.ops.random import distributions, philox
from weft.ops.random.distributions import *
from weft.ops.random.philox import *
from weft.ops.reductions import (
    counting,
    cumulative,
    nan_reductions,
    probabilities,
    reduction,
    sorting,
    statistics,
)
from weft.ops.reductions.counting import *
from weft.ops.reductions.cumulative import *
from weft.ops.reductions.nan_reductions import *
from weft.ops.reductions.probabilities import *
from weft.ops.reductions.reduction import *
from weft.ops.reductions.sorting import *
from weft.ops.reductions.statistics import *
from weft.ops.shape import arrangement, creation, joining, movement
from weft.ops.shape.arrangement import *
from weft.ops.shape.creation import *
from weft.ops.shape.joining import *
from weft.ops.shape.movement import *

__all__: list[str] = []
__all__ += calls.__all__
__all__ += effects.__all__
__all__ += recomputation.__all__
__all__ += state.__all__
__all__ += dynamic_slices.__all__
__all__ += gathering.__all__
__all__ += multi_index.__all__
__all__ += positions.__all__
__all__ += segments.__all__
__all__ += slicing.__all__
__all__ += bits.__all__
__all__ += comparison.__all__
__all__ += complex_parts.__all__
__all__ += elementwise.__all__
__all__ += math.__all__
__all__ += rounding.__all__
__all__ += special.__all__
__all__ += trigonometry.__all__
__all__ += contraction.__all__
__all__ += decompositions.__all__
__all__ += linalg.__all__
__all__ += distributions.__all__
__all__ += philox.__all__
__all__ += counting.__all__
__all__ += cumulative.__all__
__all__ += nan_reductions.__all__
__all__ += probabilities.__all__
__all__ += reduction.__all__
__all__ += sorting.__all__
__all__ += statistics.__all__
__all__ += arrangement.__all__
__all__ += creation.__all__
__all__ += joining.__all__
__all__ += movement.__all__
__all__ += storage.__all__
