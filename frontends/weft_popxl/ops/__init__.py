"""The ops of PopXL. The tensors of an op have one dtype, which numbers and arrays take."""

from weft_popxl.ops import (
    collectives,
    comparison,
    elementwise,
    hosting,
    indexing,
    movement,
    networks,
    random,
    reductions,
    regions,
    scattering,
    var_updates,
)
from weft_popxl.ops.call import CallSiteInfo, call, call_with_info
from weft_popxl.ops.comparison import *
from weft_popxl.ops.conditional import ConditionalInfo, conditional, conditional_with_info
from weft_popxl.ops.elementwise import *
from weft_popxl.ops.hosting import *
from weft_popxl.ops.indexing import *
from weft_popxl.ops.movement import *
from weft_popxl.ops.networks import *
from weft_popxl.ops.random import *
from weft_popxl.ops.reductions import *
from weft_popxl.ops.regions import *
from weft_popxl.ops.repeat import RepeatInfo, repeat, repeat_with_info
from weft_popxl.ops.scattering import *
from weft_popxl.program import operators

__all__ = [
    "CallSiteInfo",
    "ConditionalInfo",
    "RepeatInfo",
    "call",
    "call_with_info",
    "collectives",
    "conditional",
    "conditional_with_info",
    "repeat",
    "repeat_with_info",
    "var_updates",
]
__all__ += comparison.__all__
__all__ += elementwise.__all__
__all__ += hosting.__all__
__all__ += indexing.__all__
__all__ += movement.__all__
__all__ += networks.__all__
__all__ += random.__all__
__all__ += reductions.__all__
__all__ += regions.__all__
__all__ += scattering.__all__

operators.update({_name: globals()[_name] for _name in __all__})
