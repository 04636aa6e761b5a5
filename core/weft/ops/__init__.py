"""The array library: every op class and function that works on tensors of any kind."""

from weft.ir.storage import *
from weft.ops.control.calls import *
from weft.ops.control.effects import *
from weft.ops.control.recomputation import *
from weft.ops.control.state import *
from weft.ops.indexing.dynamic_slices import *
from weft.ops.indexing.gathering import *
from weft.ops.indexing.multi_index import *
from weft.ops.indexing.positions import *
from weft.ops.indexing.segments import *
from weft.ops.indexing.slicing import *
from weft.ops.pointwise.bits import *
from weft.ops.pointwise.comparison import *
from weft.ops.pointwise.complex_parts import *
from weft.ops.pointwise.elementwise import *
from weft.ops.pointwise.math import *
from weft.ops.pointwise.rounding import *
from weft.ops.pointwise.special import *
from weft.ops.pointwise.trigonometry import *
from weft.ops.products.contraction import *
from weft.ops.products.decompositions import *
from weft.ops.products.linalg import *
from weft.ops.random.distributions import *
from weft.ops.random.philox import *
from weft.ops.reductions.counting import *
from weft.ops.reductions.cumulative import *
from weft.ops.reductions.nan_reductions import *
from weft.ops.reductions.probabilities import *
from weft.ops.reductions.reduction import *
from weft.ops.reductions.sorting import *
from weft.ops.reductions.statistics import *
from weft.ops.shape.arrangement import *
from weft.ops.shape.creation import *
from weft.ops.shape.joining import *
from weft.ops.shape.movement import *
from weft.support import exports

exports.declare(globals())
