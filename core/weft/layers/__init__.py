"""Layers of models as functions of their parameters, which are trees; `weft.nn` has their names.

>>> import numpy as np, weft
>>> model = weft.nn.Sequential(weft.nn.Dense(16, activation=weft.relu), weft.nn.Dense(1))
>>> params = model.init(np.random.default_rng(0), (8, 3))
>>> params["0"]["weight"].shape, params["1"]["bias"].shape
((16, 3), (1,))
>>> weft.jit(model)(params, np.ones((8, 3), "float32")).shape
(8, 1)
"""

from weft.layers.attention import MultiHeadAttention, TransformerBlock
from weft.layers.layer import Layer
from weft.layers.linear import Conv, Dense, Embedding
from weft.layers.normalization import BatchNorm, LayerNorm, RMSNorm
from weft.layers.recurrent import GRU, LSTM
from weft.layers.regularization import Dropout
from weft.layers.saving import load_state_dict, save_state_dict, state_dict
from weft.layers.sequential import Sequential

__all__ = [
    "GRU",
    "LSTM",
    "BatchNorm",
    "Conv",
    "Dense",
    "Dropout",
    "Embedding",
    "Layer",
    "LayerNorm",
    "MultiHeadAttention",
    "RMSNorm",
    "Sequential",
    "TransformerBlock",
    "load_state_dict",
    "save_state_dict",
    "state_dict",
]
