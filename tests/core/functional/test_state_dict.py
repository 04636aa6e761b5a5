"""Trees as arrays by name, and files of them; `test_layers.py` has those of PyTorch's modules."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft import nn
from weft.errors import ArgumentError, CheckpointError

pytest.importorskip("safetensors")

MODEL = nn.Sequential(nn.Dense(4, activation=weft.relu), nn.BatchNorm(), nn.Dense(2))
SHAPE = (8, 3)
PARAMS = MODEL.init(np.random.default_rng(0), SHAPE)
STATE = MODEL.init_state(SHAPE)
NAMES = nn.state_dict(PARAMS, STATE)


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Block:
    weight: Any
    inner: Any
    heads: int = dataclasses.field(default=2, metadata={"static": True})


ARRAYS = st.builds(
    lambda dtype, shape, fill: np.full(shape, fill).astype(dtype),
    st.sampled_from(
        ["float32", "float64", "float16", weft.bfloat16, "int32", "bool", "complex128"]
    ),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 9),
).map(lambda array: array.T)  # not contiguous
KEYS = st.text("abcdefgh_0123456789", min_size=1, max_size=3)
TREES = st.recursive(
    ARRAYS | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.builds(Pair, inner, inner)
        | st.builds(Block, inner, inner)
    ),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, TREES, max_size=3))
def test_what_is_saved_is_loaded(tmp_path_factory: pytest.TempPathFactory, tree: Any):
    path = tmp_path_factory.getbasetemp() / "tree.safetensors"
    nn.save_state_dict(path, tree)
    empty = blank(tree)
    loaded = nn.load_state_dict(path, empty)
    assert repr(loaded) == repr(tree)
    assert all(array.flags.writeable for array in nn.state_dict(loaded).values())
    assert repr(empty) == repr(blank(tree)), "the tree that was given is as it was"


def blank(tree: Any) -> Any:
    """Return a tree of zeros."""
    if isinstance(tree, np.ndarray):
        return np.zeros_like(tree)
    if isinstance(tree, dict):
        return {key: blank(each) for key, each in tree.items()}
    if isinstance(tree, Block):
        return Block(blank(tree.weight), blank(tree.inner), tree.heads)
    if isinstance(tree, Pair):
        return Pair(*map(blank, tree))
    return type(tree)(map(blank, tree)) if tree is not None else None


def test_names_are_those_of_pytorch():
    block = nn.TransformerBlock(2, 16)
    layers = [block.init(np.random.default_rng(0), (1, 5, 8)) for _ in range(2)]
    names = nn.state_dict({"layers": layers, "head": Pair(np.ones(1), Block(np.ones(1), None))})
    assert {"layers.1.self_attn.in_proj_weight", "layers.0.norm1.bias"} < set(names)
    assert {"head.first", "head.second.weight"} < set(names)
    assert set(NAMES) == {
        *("0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"),
        *("1.running_mean", "1.running_var"),
    }


def test_a_training_is_saved_and_goes_on(tmp_path: Path):
    optimizer = weft.optim.adam()
    x, y = np.random.default_rng(1).normal(size=(2, 8, 3)).astype("float32")

    @weft.jit
    def step(training: Any) -> Any:
        def loss(params: Any) -> Any:
            found, state = MODEL(params, x, training["state"], train=True)
            return weft.mean(weft.square(found - y[:, :2])), state

        gradients, state = weft.grad(loss, has_aux=True)(training["params"])
        params, moments = optimizer.update(gradients, training["moments"], training["params"])
        return {"params": params, "moments": moments, "state": state}

    first = {"params": PARAMS, "moments": optimizer.init(PARAMS), "state": STATE}
    training = step(first)
    nn.save_state_dict(tmp_path / "training.safetensors", training)
    loaded = nn.load_state_dict(tmp_path / "training.safetensors", first)
    assert loaded["moments"]["steps"] == 1
    np.testing.assert_equal(step(loaded), step(training))


def without(*names: str, **others: Any) -> dict[str, Any]:
    return {name: array for name, array in NAMES.items() if name not in names} | others


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (without("0.bias"), "0.bias is missing."),
        (
            without("0.bias", **{"0.bais": np.ones(4)}),
            "0.bias is missing. Did you mean '0.bais'?\n"
            "  0.bais is unexpected. Did you mean '0.bias'?",
        ),
        (without(**{"3.scale": np.ones(4)}), "3.scale is unexpected."),
        (without(**{"0.weight": np.ones((3, 4))}), "0.weight has the shape (3, 4), not (4, 3)"),
        (without(**{"0.bias": np.ones(4, int)}), "0.bias is int64, not float32"),
        (without(**{"0.bias": np.ones(4, complex)}), "0.bias is complex128, not float32"),
        ({}, "0.bias is missing.\n  0.weight is missing.\n  1.bias is missing."),
        (
            without(**{f"{name:02}": np.ones(1) for name in range(30)}),
            "19 is unexpected.\n  10 more are unexpected\n",
        ),
    ],
)
def test_what_does_not_fit_is_listed(values: dict[str, Any], problem: str):
    with pytest.raises(CheckpointError, match="the dict does not fit the parameters") as caught:
        nn.load_state_dict(values, PARAMS, STATE)
    assert f"\n  {problem}" in str(caught.value)


def test_statistics_need_a_state():
    with pytest.raises(CheckpointError, match="give that of init_state, too"):
        nn.load_state_dict(NAMES, PARAMS)
    assert nn.load_state_dict(NAMES, PARAMS, strict=False)["0"]["bias"].shape == (4,)


def test_what_is_missing_stays_unless_strict():
    values = {"0.bias": np.full(4, 3.0), "1.num_batches_tracked": np.array(7), "9.bias": np.ones(1)}
    params, state = nn.load_state_dict(values, PARAMS, STATE, strict=False)
    np.testing.assert_equal(state, STATE)
    np.testing.assert_equal(params["0"], {**PARAMS["0"], "bias": np.full(4, 3, "float32")})
    assert not np.shares_memory(params["0"]["weight"], PARAMS["0"]["weight"])
    with pytest.raises(CheckpointError, match=r"0.bias has the shape \(5,\), not \(4,\)"):
        nn.load_state_dict({"0.bias": np.ones(5)}, PARAMS, strict=False)


def test_counters_of_batches_are_ignored():
    values = without(**{"1.num_batches_tracked": np.array(7), "num_batches_tracked": np.array(1)})
    np.testing.assert_equal(nn.load_state_dict(values, PARAMS, STATE), (PARAMS, STATE))


def test_dtypes_are_those_of_the_parameters_or_of_the_file(tmp_path: Path):
    short = {name: array.astype(weft.bfloat16) for name, array in NAMES.items()}
    nn.save_state_dict(tmp_path / "short.safetensors", short)
    params, state = nn.load_state_dict(tmp_path / "short.safetensors", PARAMS, STATE)
    assert {array.dtype for array in nn.state_dict(params, state).values()} == {weft.float32}
    np.testing.assert_allclose(params["0"]["weight"], PARAMS["0"]["weight"], rtol=1e-2)
    kept = nn.load_state_dict(tmp_path / "short.safetensors", PARAMS, STATE, cast=False)
    np.testing.assert_equal(nn.state_dict(*kept), short)


def test_several_files_with_an_index(tmp_path: Path):
    files = {name: f"model-{int(name[0]):05}.safetensors" for name in NAMES}
    for file in set(files.values()):
        share = {name: array for name, array in NAMES.items() if files[name] == file}
        nn.save_state_dict(tmp_path / file, share)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    np.testing.assert_equal(nn.load_state_dict(index, PARAMS, STATE), (PARAMS, STATE))


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"none\.safetensors cannot be read: No such file"):
        nn.load_state_dict(tmp_path / "none.safetensors", PARAMS)
    with pytest.raises(CheckpointError, match=r"none\.pt cannot be read: No such file[^:]*$"):
        nn.load_state_dict(tmp_path / "none.pt", PARAMS)
    pickled = tmp_path / "model.pt"
    pickled.write_bytes(b"PK\3\4")
    with pytest.raises(CheckpointError, match=r"give what torch\.load\(path, weights_only=True\)"):
        nn.load_state_dict(pickled, PARAMS)


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        (np.ones(3), "an array alone has no name"),
        ({"a.b": np.ones(1), "a": {"b": np.ones(1)}}, "two arrays are named a.b"),
        ({"a": "text"}, "state_dict: a is 'text', not a number or an array"),
    ],
)
def test_trees_without_names_of_their_own_are_refused(tree: Any, problem: str):
    with pytest.raises(ArgumentError, match=re.escape(problem)):
        nn.state_dict(tree)
