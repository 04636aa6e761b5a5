"""The ops of PopXL. The tensors of an op have one dtype, which numbers and arrays take."""

from weft.support import exports
from weft_popxl import program
from weft_popxl.ops import collectives as collectives
from weft_popxl.ops import var_updates as var_updates
from weft_popxl.ops.call import *
from weft_popxl.ops.comparison import *
from weft_popxl.ops.conditional import *
from weft_popxl.ops.elementwise import *
from weft_popxl.ops.hosting import *
from weft_popxl.ops.indexing import *
from weft_popxl.ops.movement import *
from weft_popxl.ops.networks import *
from weft_popxl.ops.random import *
from weft_popxl.ops.reductions import *
from weft_popxl.ops.regions import *
from weft_popxl.ops.repeat import *
from weft_popxl.ops.scattering import *

_names = exports.declare(globals(), "collectives", "var_updates")

program.operators.update({_name: globals()[_name] for _name in _names})
