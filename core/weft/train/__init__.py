"""Training: optimizers and their schedules, clipping, initial weights, data parallelism."""

from weft.train import clipping, initializers, optimizers, parallelism, schedules
from weft.train.clipping import *
from weft.train.initializers import *
from weft.train.optimizers import *
from weft.train.parallelism import *
from weft.train.schedules import *

__all__: list[str] = []
__all__ += clipping.__all__
__all__ += initializers.__all__
__all__ += optimizers.__all__
__all__ += parallelism.__all__
__all__ += schedules.__all__
