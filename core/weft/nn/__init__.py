"""Neural networks: activations, convolutions, normalization, attention, cells and losses.

The layers of `weft.layers` are attributes too, as in ``weft.nn.Dense``.
"""

import importlib
import typing

from weft.nn.activation import *
from weft.nn.cells import *
from weft.nn.ctc import *
from weft.nn.distances import *
from weft.nn.dot_product_attention import *
from weft.nn.losses import *
from weft.nn.normalization import *
from weft.nn.quantization import *
from weft.nn.recurrent import *
from weft.nn.regularization import *
from weft.nn.spatial.convolutions import *
from weft.nn.spatial.pooling import *
from weft.nn.spatial.regions import *
from weft.nn.spatial.resampling import *
from weft.nn.spatial.unpooling import *
from weft.nn.spatial.windows import *
from weft.support import exports, spelling

if typing.TYPE_CHECKING:
    from weft.layers import *

_NAMES = exports.declare(globals())


def __getattr__(name: str) -> typing.Any:
    """Resolve the layers, which stand above functions and random keys."""
    layers = importlib.import_module("weft.layers")
    if name in layers.__all__:
        return getattr(layers, name)
    return spelling.unknown_name("weft.nn", [*_NAMES, *layers.__all__])(name)


def __dir__() -> list[str]:
    """List what is public, layers too, and nothing that is only imported here."""
    return [*_NAMES, *importlib.import_module("weft.layers").__all__]
