"""Layers as functions of parameters: against the functions of weft by hand, and PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.errors import ArgumentError, AxesError

RNG = np.random.default_rng


def by_hand_dense(p: Any, x: Any) -> Any:
    return weft.relu(x @ weft.matrix_transpose(p["weight"]) + p["bias"])


def by_hand_attention(p: Any, x: Any) -> Any:
    weights = [*weft.split(p["in_proj_weight"], 3, axis=0), p["out_proj"]["weight"]]
    biases = [*weft.split(p["in_proj_bias"], 3, axis=0), p["out_proj"]["bias"]]
    return weft.multi_head_attention(x, x, x, weights, 2, biases, is_causal=True)


def by_hand_lstm(p: Any, x: Any) -> Any:
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    return weft.lstm(x, tuple(p[name] for name in names)).outputs


def by_hand_block(p: Any, x: Any) -> Any:
    def norm(x: Any, name: str) -> Any:
        return weft.layer_norm(x, p[name]["weight"], p[name]["bias"])

    def dense(x: Any, name: str) -> Any:
        return x @ weft.matrix_transpose(p[name]["weight"]) + p[name]["bias"]

    x = x + by_hand_attention(p["self_attn"], norm(x, "norm1"))
    return x + dense(weft.gelu(dense(norm(x, "norm2"), "linear1")), "linear2")


LAYERS: dict[str, tuple[Any, tuple[int, ...], Callable[[Any, Any], Any]]] = {
    "Dense": (nn.Dense(4, activation=weft.relu), (2, 5, 3), by_hand_dense),
    "Conv 1d": (
        nn.Conv(4, 3, stride=2, padding=1, bias=False),
        (2, 3, 9),
        lambda p, x: weft.conv1d(x, p["weight"], 2, 1),
    ),
    "Conv 2d": (
        nn.Conv(4, (3, 1), dilation=2, groups=2),
        (2, 6, 8, 8),
        lambda p, x: weft.conv2d(x, p["weight"], dilation=2, groups=2, bias=p["bias"]),
    ),
    "Conv 3d": (
        nn.Conv(2, 2, activation=weft.tanh),
        (1, 2, 4, 4, 4),
        lambda p, x: weft.tanh(weft.conv3d(x, p["weight"], bias=p["bias"])),
    ),
    "LayerNorm": (
        nn.LayerNorm(1e-3),
        (3, 8),
        lambda p, x: weft.layer_norm(x, p["weight"], p["bias"], epsilon=1e-3),
    ),
    "RMSNorm": (nn.RMSNorm(), (3, 8), lambda p, x: weft.rms_norm(x, p["weight"])),
    "MultiHeadAttention": (
        nn.MultiHeadAttention(2, is_causal=True),
        (2, 5, 8),
        by_hand_attention,
    ),
    "LSTM": (nn.LSTM(5), (4, 2, 3), by_hand_lstm),
    "TransformerBlock": (nn.TransformerBlock(2, 16, is_causal=True), (2, 5, 8), by_hand_block),
    "Sequential": (
        nn.Sequential(nn.Dense(4, activation=weft.relu), weft.square, nn.LayerNorm()),
        (2, 3),
        lambda p, x: weft.layer_norm(weft.square(by_hand_dense(p["0"], x)), *p["2"].values()),
    ),
}


@pytest.mark.parametrize("case", LAYERS)
def test_a_layer_is_the_function_it_stands_for(case: str):
    layer, shape, by_hand = LAYERS[case]
    params = layer.init(RNG(1), shape)
    x = RNG(2).normal(size=shape).astype("float32")
    found = weft.jit(layer)(params, x)
    np.testing.assert_array_equal(found, weft.jit(by_hand)(params, x))
    assert found.shape == layer.output_shape(shape)
    assert layer.init_state(shape) == {}

    def loss(function: Callable[[Any, Any], Any]) -> Any:
        return weft.jit(weft.grad(lambda params: weft.sum(weft.sin(function(params, x)))))

    gradients, wanted = loss(layer)(params), loss(by_hand)(params)
    same(gradients, wanted)


def same(tree: Any, wanted: Any) -> None:
    """Compare two trees of arrays."""
    if isinstance(wanted, Mapping):
        assert set(tree) == set(wanted)
        for name in wanted:
            same(tree[name], wanted[name])
    else:
        np.testing.assert_allclose(tree, wanted, rtol=1e-4, atol=1e-5)


def test_embedding_takes_rows():
    layer = nn.Embedding(7, 3)
    params = layer.init(RNG(0), (2, 4))
    indices = np.array([[0, 6, 1, 1]], "int32")
    np.testing.assert_array_equal(weft.jit(layer)(params, indices), params["weight"][indices])
    assert layer.output_shape((2, 4)) == (2, 4, 3)


def test_initial_values_depend_on_the_generator_only():
    layer = nn.TransformerBlock(2, 16)
    one, other, different = (layer.init(RNG(seed), (2, 5, 8)) for seed in (1, 1, 2))
    same(one, other)
    weight = one["linear1"]["weight"]
    assert (weight != different["linear1"]["weight"]).any()
    assert np.abs(weight).max() <= 8**-0.5
    assert (one["norm1"]["weight"] == 1).all()
    assert layer.init(RNG(1), (2, 5, 8), dtype="float64")["linear1"]["bias"].dtype == "float64"


def test_initial_values_from_a_key_are_the_same_inside_of_jit():
    layer, key = nn.TransformerBlock(2, 16), weft.random.key(3)
    outside = layer.init(key, (2, 5, 8))
    inside = weft.jit(lambda key: layer.init(key, (2, 5, 8)))(key)
    assert all(isinstance(each, np.ndarray) for each in outside["linear1"].values())
    same(inside, outside)
    assert np.abs(outside["linear1"]["weight"]).max() <= 8**-0.5
    assert (
        outside["linear1"]["weight"]
        != layer.init(weft.random.key(4), (2, 5, 8))["linear1"]["weight"]
    ).any()


def test_dropout_drops_what_its_key_says():
    model = nn.Sequential(nn.Dropout(0.25), nn.Dropout(0.5))
    x = np.ones((100, 40), "float32")
    train = weft.jit(lambda x, key: model({}, x, key=key, train=True))
    key = weft.random.key(0)
    y = train(x, key)
    assert 0.3 < (y != 0).mean() < 0.45
    np.testing.assert_allclose(y[y != 0], 1 / 0.75 / 0.5, rtol=1e-6)
    np.testing.assert_array_equal(y, train(x, key))
    assert (y != train(x, weft.random.key(1))).any()
    np.testing.assert_array_equal(weft.jit(model)({}, x), x)
    with pytest.raises(ArgumentError, match=r"Dropout\(rate=0.25\): in training it needs key="):
        weft.jit(lambda x: model({}, x, train=True))(x)


def test_dropout_in_a_block_has_three_masks():
    block = nn.TransformerBlock(2, 16, dropout=0.5)
    params = block.init(RNG(0), (2, 5, 8))
    x = RNG(1).normal(size=(2, 5, 8)).astype("float32")
    train = weft.jit(lambda params, x, key: block(params, x, key=key, train=True))
    y = train(params, x, weft.random.key(0))
    assert (y != train(params, x, weft.random.key(1))).any()
    assert np.isfinite(y).all()


def test_batch_norm_returns_its_statistics():
    layer = nn.BatchNorm(momentum=0.25)
    x = RNG(0).normal(2, 3, size=(6, 4, 5)).astype("float32")
    params, state = layer.init(RNG(0), x.shape), layer.init_state(x.shape)
    train = weft.jit(lambda params, x, state: layer(params, x, state, train=True))
    y, after = train(params, x, state)
    np.testing.assert_allclose(y.mean((0, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(after["running_mean"], 0.25 * x.mean((0, 2)), rtol=1e-5)
    wanted = 0.75 + 0.25 * x.var((0, 2), ddof=1)
    np.testing.assert_allclose(after["running_var"], wanted, rtol=1e-5)
    y, same_state = weft.jit(layer)(params, x, after)
    mean, variance = (after[name][:, None] for name in ("running_mean", "running_var"))
    np.testing.assert_allclose(y, (x - mean) / np.sqrt(variance + 1e-5), rtol=1e-4, atol=1e-5)
    same(same_state, after)
    with pytest.raises(ArgumentError, match="needs a state of running_mean, running_var"):
        weft.jit(layer)(params, x)


def test_state_passes_through_sequential():
    model = nn.Sequential(nn.Conv(3, 1), nn.BatchNorm(), nn.Sequential(nn.BatchNorm()))
    shape = (2, 4, 5)
    params, state = model.init(RNG(0), shape), model.init_state(shape)
    assert set(params) == {"0", "1", "2"}
    assert set(state) == {"1", "2"}
    x = RNG(1).normal(size=shape).astype("float32")
    _, after = weft.jit(lambda p, x, s: model(p, x, s, train=True))(params, x, state)
    assert set(after["2"]["0"]) == {"running_mean", "running_var"}
    assert (after["1"]["running_mean"] != 0).all()


def test_attention_to_a_memory_with_shared_heads():
    layer = nn.MultiHeadAttention(4, key_heads=2, bias=False)
    params = layer.init(RNG(0), (2, 3, 8))
    assert params["in_proj_weight"].shape == (16, 8)
    x, memory = (RNG(1).normal(size=(2, n, 8)).astype("float32") for n in (3, 5))
    mask = np.tri(3, 5, dtype=bool)
    found = weft.jit(layer)(params, x, memory=memory, mask=mask)
    query, key, value = np.split(params["in_proj_weight"], [8, 12])
    weights = (query, key, value, params["out_proj"]["weight"])
    by_hand = weft.jit(
        lambda *w: weft.multi_head_attention(x, memory, memory, w, 4, key_heads=2, mask=mask)
    )
    np.testing.assert_allclose(found, by_hand(*weights), rtol=1e-5, atol=1e-6)


def test_layers_and_optimizers_name_scopes():
    """A layer inside of another has its name there, one that is called that of its class."""
    dense, pair = nn.Dense(3), nn.Sequential(nn.Dense(3), nn.Dense(3, bias=False))
    params = {"one": dense.init(RNG(0), (2, 3)), "pair": pair.init(RNG(0), (2, 3))}
    optimizer = weft.optim.sgd(0.1)

    def loss(params: Any, x: Any) -> Any:
        x = dense(params["one"], dense(params["one"], x))
        return weft.sum(pair(params["pair"], x))

    def step(params: Any, x: Any) -> Any:
        return optimizer.update(weft.grad(loss)(params, x), optimizer.init(params), params)

    wanted = {
        "", "Dense", "Dense_1", "Sequential/0", "Sequential/1",
        "sgd/one/bias", "sgd/one/weight", "sgd/pair/0/bias", "sgd/pair/0/weight",
        "sgd/pair/1/weight",
    }  # fmt: skip
    for _ in range(2):  # another trace counts anew
        graph = weft.jit(step).lower(params, np.ones((2, 3), np.float32)).graph
        assert {op.name_scope for op in graph.ops} == wanted
    gradients = {op.name_scope for op in graph.ops if op.adjoint_of is not None}
    assert {"Dense", "Dense_1", "Sequential/0", "Sequential/1"} <= gradients
    assert not any(scope.startswith("sgd") for scope in gradients)


def test_states_of_a_recurrent_layer():
    layer = nn.GRU(5, depth=2, bidirectional=True, batch_first=True)
    x = RNG(0).normal(size=(2, 4, 3)).astype("float32")
    params = layer.init(RNG(1), x.shape)
    found = weft.jit(layer.states)(params, x, np.ones((4, 2, 5), "float32"))
    assert found.outputs.shape == layer.output_shape(x.shape) == (2, 4, 10)
    assert found.hidden.shape == (4, 2, 5)


MODULES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], Any, tuple[int, ...]]] = {
    "Linear": ("Linear", (3, 4), {}, nn.Dense(4), (2, 3)),
    "Linear without bias": ("Linear", (3, 4), {"bias": False}, nn.Dense(4, bias=False), (2, 3)),
    "Conv1d": ("Conv1d", (3, 4, 3), {"dilation": 2}, nn.Conv(4, 3, dilation=2), (2, 3, 9)),
    "Conv2d": (
        "Conv2d",
        (4, 6, 3),
        {"stride": 2, "padding": 1, "groups": 2},
        nn.Conv(6, 3, stride=2, padding=1, groups=2),
        (2, 4, 9, 9),
    ),
    "BatchNorm1d": ("BatchNorm1d", (4,), {}, nn.BatchNorm(), (6, 4)),
    "BatchNorm2d": ("BatchNorm2d", (4,), {}, nn.BatchNorm(), (2, 4, 3, 3)),
    "LayerNorm": ("LayerNorm", (8,), {}, nn.LayerNorm(), (2, 8)),
    "Embedding": ("Embedding", (7, 3), {}, nn.Embedding(7, 3), (2, 5)),
    "MultiheadAttention": (
        "MultiheadAttention",
        (8, 2),
        {"batch_first": True},
        nn.MultiHeadAttention(2),
        (2, 5, 8),
    ),
    "LSTM": (
        "LSTM",
        (3, 5),
        {"num_layers": 2, "bidirectional": True},
        nn.LSTM(5, depth=2, bidirectional=True),
        (4, 2, 3),
    ),
    "GRU": ("GRU", (3, 5), {"batch_first": True}, nn.GRU(5, batch_first=True), (2, 4, 3)),
    "TransformerEncoderLayer": (
        "TransformerEncoderLayer",
        (8, 2, 16),
        {"batch_first": True, "dropout": 0.0},
        nn.TransformerBlock(2, 16, weft.relu, norm_first=False),
        (2, 5, 8),
    ),
    "TransformerEncoderLayer, norm first": (
        "TransformerEncoderLayer",
        (8, 2, 16),
        {"batch_first": True, "dropout": 0.0, "norm_first": True, "activation": "gelu"},
        nn.TransformerBlock(2, 16),
        (2, 5, 8),
    ),
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("case", MODULES)
def test_a_state_dict_of_pytorch_has_the_same_names_shapes_and_results(case: str, tmp_path: Path):
    pytest.importorskip("safetensors")
    torch, files = importlib.import_module("torch"), importlib.import_module("safetensors.torch")
    name, args, options, layer, shape = MODULES[case]
    torch.manual_seed(0)
    module = getattr(torch.nn, name)(*args, **options)
    is_embedding, is_attention = name == "Embedding", name == "MultiheadAttention"
    x = RNG(1).integers(0, 7, shape) if is_embedding else RNG(1).normal(size=shape)
    inputs = [torch.from_numpy(x if is_embedding else x.astype("float32"))] * (1 + 2 * is_attention)
    with torch.no_grad():
        for value in module.parameters():  # those of norms and of attention begin as 0 and 1
            value.add_(0.1 * torch.randn(value.shape))
        module(*inputs)  # changes the running statistics
        wanted = module.eval()(*inputs)
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted

    path = tmp_path / "weights.safetensors"
    files.save_file(module.state_dict(), path)
    first, first_state = layer.init(RNG(0), shape), layer.init_state(shape)
    params, state = nn.load_state_dict(path, first, first_state)
    given = nn.load_state_dict(module.state_dict(), first, first_state)
    np.testing.assert_equal(given, (params, state))
    found, _ = weft.jit(layer)(params, inputs[0].numpy(), state)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-5)

    nn.save_state_dict(path, params, state)
    other = getattr(torch.nn, name)(*args, **options).eval()
    other.load_state_dict(files.load_file(path))
    with torch.no_grad():
        again = other(*inputs)
    again = again[0] if isinstance(again, tuple) else again
    assert torch.equal(again, wanted)


def test_a_wrong_width_names_the_layer_and_the_shapes():
    model = nn.Sequential(nn.Dense(4), nn.Dense(2))
    params = model.init(RNG(0), (2, 3))
    problem = (
        r"Dense\(features_out=4.*: an input of shape \(2, 5\) needs weight of shape \(4, 5\), "
    )
    with pytest.raises(AxesError, match=problem + r"but it has \(4, 3\)"):
        weft.jit(model)(params, np.ones((2, 5), "float32"))


def test_a_layer_is_part_of_the_structure_of_a_tree():
    layers = nn.Dense(4, weft.tanh), nn.Sequential(nn.Dense(4), weft.tanh)
    apply = weft.jit(lambda model, x: model["layer"](model["params"], x))
    x = np.ones((2, 3), "float32")
    for layer in layers:
        params = layer.init(RNG(0), x.shape)
        found = apply({"layer": layer, "params": params}, x)
        np.testing.assert_array_equal(found, weft.jit(layer)(params, x))


def test_parameters_of_another_layer_are_refused():
    dense, lstm = nn.Dense(4), nn.LSTM(4, bias=False)
    x = np.ones((2, 3), "float32")
    problem = "its parameters are weight, bias, not those named weight_hh_l0, weight_ih_l0"
    with pytest.raises(ArgumentError, match=problem):
        weft.jit(dense)(lstm.init(RNG(0), (1, 2, 3)), x)
    with pytest.raises(ArgumentError, match="its parameters are weight, bias, not none"):
        weft.jit(nn.Sequential(dense))({}, x)
    with pytest.raises(ArgumentError, match="its parameters are 0, not those named 1"):
        weft.jit(nn.Sequential(dense))({"1": {}}, x)
    with pytest.raises(ArgumentError, match="Sequential: member 1 must be a layer or a function"):
        nn.Sequential(dense, nn.Dense)


@pytest.mark.parametrize(
    ("layer", "shape", "problem"),
    [
        (nn.Dense(3), (), "takes inputs with an axis or more"),
        (nn.Conv(3, 3), (2, 3), "takes images"),
        (nn.Conv(3, (3, 3)), (2, 3, 4), "with 2 of them"),
        (nn.Conv(3, 3, groups=2), (2, 3, 4), "2 groups do not divide the 3 channels"),
        (nn.BatchNorm(), (2,), "known number of channels"),
        (nn.MultiHeadAttention(3), (2, 3, 8), "8 features cannot be split among 3 heads"),
        (nn.LSTM(3), (3,), "takes inputs with 2 axes or more"),
    ],
)
def test_shapes_that_a_layer_does_not_take(layer: Any, shape: tuple[int, ...], problem: str):
    with pytest.raises(AxesError, match=problem):
        layer.init(RNG(0), shape)


def test_unknown_names_of_the_room():
    with pytest.raises(AttributeError, match=r"has no attribute 'Dens'\. Did you mean 'Dense'"):
        _ = nn.Dens
