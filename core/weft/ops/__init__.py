"""The catalogue of ops, one module per family; exports every op class and function."""

from weft.ir import storage
from weft.ir.storage import *
from weft.ops import (
    activation,
    arrangement,
    bits,
    calls,
    cells,
    clipping,
    collectives,
    comparison,
    complex_parts,
    contraction,
    control,
    convolutions,
    counting,
    creation,
    ctc,
    cumulative,
    decompositions,
    distances,
    distributions,
    dot_product_attention,
    dynamic_slices,
    elementwise,
    gathering,
    indexing,
    initializers,
    joining,
    linalg,
    losses,
    math,
    movement,
    multi_index,
    normalization,
    optimizers,
    parallelism,
    pooling,
    positions,
    probabilities,
    random,
    recomputation,
    recurrent,
    reduction,
    regions,
    resampling,
    rounding,
    schedules,
    sorting,
    special,
    state,
    statistics,
    trigonometry,
    unpooling,
    windows,
)
from weft.ops.activation import *
from weft.ops.arrangement import *
from weft.ops.bits import *
from weft.ops.calls import *
from weft.ops.cells import *
from weft.ops.clipping import *
from weft.ops.collectives import *
from weft.ops.comparison import *
from weft.ops.complex_parts import *
from weft.ops.contraction import *
from weft.ops.control import *
from weft.ops.convolutions import *
from weft.ops.counting import *
from weft.ops.creation import *
from weft.ops.ctc import *
from weft.ops.cumulative import *
from weft.ops.decompositions import *
from weft.ops.distances import *
from weft.ops.distributions import *
from weft.ops.dot_product_attention import *
from weft.ops.dynamic_slices import *
from weft.ops.elementwise import *
from weft.ops.gathering import *
from weft.ops.indexing import *
from weft.ops.initializers import *
from weft.ops.joining import *
from weft.ops.linalg import *
from weft.ops.losses import *
from weft.ops.math import *
from weft.ops.movement import *
from weft.ops.multi_index import *
from weft.ops.normalization import *
from weft.ops.optimizers import *
from weft.ops.parallelism import *
from weft.ops.pooling import *
from weft.ops.positions import *
from weft.ops.probabilities import *
from weft.ops.random import *
from weft.ops.recomputation import *
from weft.ops.recurrent import *
from weft.ops.reduction import *
from weft.ops.regions import *
from weft.ops.resampling import *
from weft.ops.rounding import *
from weft.ops.schedules import *
from weft.ops.sorting import *
from weft.ops.special import *
from weft.ops.state import *
from weft.ops.statistics import *
from weft.ops.trigonometry import *
from weft.ops.unpooling import *
from weft.ops.windows import *

__all__: list[str] = []
__all__ += activation.__all__
__all__ += arrangement.__all__
__all__ += dot_product_attention.__all__
__all__ += bits.__all__
__all__ += calls.__all__
__all__ += cells.__all__
__all__ += clipping.__all__
__all__ += collectives.__all__
__all__ += comparison.__all__
__all__ += complex_parts.__all__
__all__ += control.__all__
__all__ += convolutions.__all__
__all__ += counting.__all__
__all__ += creation.__all__
__all__ += ctc.__all__
__all__ += cumulative.__all__
__all__ += decompositions.__all__
__all__ += distances.__all__
__all__ += distributions.__all__
__all__ += contraction.__all__
__all__ += dynamic_slices.__all__
__all__ += elementwise.__all__
__all__ += gathering.__all__
__all__ += indexing.__all__
__all__ += initializers.__all__
__all__ += joining.__all__
__all__ += linalg.__all__
__all__ += losses.__all__
__all__ += math.__all__
__all__ += movement.__all__
__all__ += multi_index.__all__
__all__ += normalization.__all__
__all__ += optimizers.__all__
__all__ += parallelism.__all__
__all__ += pooling.__all__
__all__ += positions.__all__
__all__ += random.__all__
__all__ += recurrent.__all__
__all__ += recomputation.__all__
__all__ += reduction.__all__
__all__ += regions.__all__
__all__ += resampling.__all__
__all__ += rounding.__all__
__all__ += schedules.__all__
__all__ += probabilities.__all__
__all__ += sorting.__all__
__all__ += special.__all__
__all__ += state.__all__
__all__ += statistics.__all__
__all__ += storage.__all__
__all__ += trigonometry.__all__
__all__ += unpooling.__all__
__all__ += windows.__all__
