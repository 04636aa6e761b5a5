"""Neural networks: activations, convolutions, normalization, attention, cells and losses.

The layers of `weft.layers` are attributes too, as in ``weft.nn.Dense``.
"""

import importlib
from typing import TYPE_CHECKING, Any

from weft.nn import (
    activation,
    cells,
    ctc,
    distances,
    dot_product_attention,
    losses,
    normalization,
    quantization,
    recurrent,
    regularization,
)
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
from weft.nn.spatial import convolutions, pooling, regions, resampling, unpooling, windows
from weft.nn.spatial.convolutions import *
from weft.nn.spatial.pooling import *
from weft.nn.spatial.regions import *
from weft.nn.spatial.resampling import *
from weft.nn.spatial.unpooling import *
from weft.nn.spatial.windows import *
from weft.support.spelling import unknown_name

if TYPE_CHECKING:
    from weft.layers import GRU as GRU
    from weft.layers import LSTM as LSTM
    from weft.layers import BatchNorm as BatchNorm
    from weft.layers import Conv as Conv
    from weft.layers import Dense as Dense
    from weft.layers import Dropout as Dropout
    from weft.layers import Embedding as Embedding
    from weft.layers import Layer as Layer
    from weft.layers import LayerNorm as LayerNorm
    from weft.layers import MultiHeadAttention as MultiHeadAttention
    from weft.layers import RMSNorm as RMSNorm
    from weft.layers import Sequential as Sequential
    from weft.layers import TransformerBlock as TransformerBlock
    from weft.layers import load_state_dict as load_state_dict
    from weft.layers import save_state_dict as save_state_dict
    from weft.layers import state_dict as state_dict

__all__: list[str] = []
__all__ += activation.__all__
__all__ += cells.__all__
__all__ += ctc.__all__
__all__ += distances.__all__
__all__ += dot_product_attention.__all__
__all__ += losses.__all__
__all__ += normalization.__all__
__all__ += quantization.__all__
__all__ += recurrent.__all__
__all__ += regularization.__all__
__all__ += convolutions.__all__
__all__ += pooling.__all__
__all__ += regions.__all__
__all__ += resampling.__all__
__all__ += unpooling.__all__
__all__ += windows.__all__


def __getattr__(name: str) -> Any:
    """Resolve the layers, which stand above functions and random keys."""
    layers = importlib.import_module("weft.layers")
    if name in layers.__all__:
        return getattr(layers, name)
    return unknown_name("weft.nn", [*__all__, *layers.__all__])(name)


def __dir__() -> list[str]:
    """List what is public, layers too, and nothing that is only imported here."""
    return [*__all__, *importlib.import_module("weft.layers").__all__]
