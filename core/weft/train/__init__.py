"""Training: optimizers and their schedules, clipping, initial weights, data parallelism."""

from weft.support import exports
from weft.train.clipping import *
from weft.train.initializers import *
from weft.train.optimizers import *
from weft.train.parallelism import *
from weft.train.schedules import *

exports.declare(globals())
