"""Mutates models and runs them, with a limit on memory: ``onnx_mutants.py CORPUS FIRST LAST``.

Prints a line for each mutant that ends with another error than weft's, or takes too long.
"""

from __future__ import annotations

import random
import resource
import signal
import sys
import time
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

import microsoft_cases
import microsoft_quantized_cases
import numpy as np
import onnx
import tree_models
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test import loader
from onnx.backend.test.case.node import collect_testcases
from onnx_models import declared, made, node
from onnx_mutations import mutated

import weft_onnx
from weft.errors import WeftError

MOST_BYTES = 200_000
"""The size above which a model is not mutated: its weights would get most of the changes."""

MEMORY = 6 << 30
"""The most bytes of the address space."""

SECONDS = 2.0
"""The time of the processor above which a mutant takes too long."""

STOPPED = 6.0
"""The time after which it is stopped."""

OWN = 0.25
"""The share of the models that are made here, which have what those of onnx lack."""

Case = tuple[str, onnx.ModelProto, dict[str, Any]]


def corpus(name: str) -> list[Case]:
    """Return models with their names and inputs: ``all``, or ``few`` that are quickly made."""
    found = list(own_models())
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for each in loader.load_model_tests(kind=kind):
            model = onnx.load(Path(each.model_dir) / "model.onnx")
            found.append((each.name, model, {}))
    if name == "all":
        for each in collect_testcases(None):
            names = [one.name for one in each.model.graph.input]
            inputs = dict(zip(names, each.data_sets[0][0], strict=False))
            found.append((each.name, each.model, inputs))
        found += runtime_models()
    return [each for each in found if each[1].ByteSize() <= MOST_BYTES]


def runtime_models() -> list[Case]:
    """Return nodes of onnxruntime's domain, and ensembles of trees."""
    found: list[Case] = []
    for name, case in {**microsoft_cases.CASES, **microsoft_quantized_cases.CASES}.items():
        model, inputs = microsoft_cases.model_of(case, ["y0"])
        found.append((name, model, inputs))
    for seed in range(20):
        trees = tree_models.forest(seed, modes=tuple(tree_models.MODES), targets=1 + seed % 3)
        given = {**tree_models.attributes(trees, "target"), "n_targets": 1 + seed % 3}
        one = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **given)
        model = made([one], [declared("x", ["N", 4])], ["y"])
        found.append((f"trees {seed}", model, {"x": tree_models.samples(seed)}))
    return found


def own_models() -> list[Case]:
    """Return models with sparse and external tensors, branches, loops and functions."""
    x = np.ones((2, 3), "float32")
    values = numpy_helper.from_array(np.array([1, 2], "float32"), "w")
    flat = numpy_helper.from_array(np.array([0, 4], "int64"), "i")
    pairs = numpy_helper.from_array(np.array([[0, 1], [1, 2]], "int64"), "i")
    sparse = [helper.make_sparse_tensor(values, each, [2, 3]) for each in (flat, pairs)]
    models = {}
    model = made([node("Add", "x w", "y")], [declared("x", [2, 3])], ["y"])
    model.graph.sparse_initializer.append(sparse[0])
    models["sparse initializer"] = model
    constants = [node("Constant", "", "w", sparse_value=each) for each in sparse]
    for number, each in enumerate(constants):
        nodes = [each, node("Add", "x w", "y")]
        models[f"sparse constant {number}"] = made(nodes, [declared("x", [2, 3])], ["y"])
    branch = helper.make_graph(
        [constants[0], node("Add", "x w", "y")], "branch", [], [declared("y", None)]
    )
    models["branches"] = made(
        [node("If", "c", "y", then_branch=branch, else_branch=branch)],
        [declared("x", [2, 3])], ["y"], {"c": np.array(True)},
    )  # fmt: skip
    body = helper.make_graph(
        [node("Identity", "c", "d"), node("Add", "v v", "w")], "body",
        [declared("n", [], "i"), declared("c", [], "b"), declared("v", [2, 3])],
        [declared("d", [], "b"), declared("w", [2, 3])],
    )  # fmt: skip
    models["loop"] = made(
        [node("Loop", "m c x", "y", body=body)],
        [declared("x", [2, 3])], ["y"], {"m": np.int64(3), "c": np.array(True)},
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21)]
    function = helper.make_function(
        "own", "Twice", ["a"], ["b"], [node("Constant", "", "w", value=pairs),
        node("Cast", "w", "k", to=1), node("ReduceSum", "k", "s"), node("Mul", "a s", "b")], opsets,
    )  # fmt: skip
    call = helper.make_node("Twice", ["x"], ["y"], domain="own")
    model = made([call], [declared("x", [2, 3])], ["y"])
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    models["function"] = model
    model = made([node("Add", "x w", "y")], [declared("x", [2, 3])], ["y"], {"w": x})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    tensor.external_data.add(key="offset", value="0")
    models["external"] = model
    constants = {
        "OneHot": {"i": np.arange(3), "d": np.int64(4), "v": np.array([0, 1], "float32")},
        "ConstantOfShape": {"s": np.array([2, 3])},
        "Expand": {"e": np.ones(1, "float32"), "s": np.array([2, 3])},
        "Tile": {"e": np.ones((2, 2), "float32"), "s": np.array([2, 3])},
        "Range": {"a": np.int64(0), "b": np.int64(5), "c": np.int64(2)},
        "Pad": {"e": np.ones((2, 2), "float32"), "s": np.array([1, 0, 2, 1])},
        "Resize": {"e": np.ones((1, 1, 4, 4), "float32"), "r": np.zeros(0, "float32"),
                   "s": np.array([1, 1, 2, 2], "float32")},
        "EyeLike": {"e": np.ones((4, 4), "float32")},
        "Trilu": {"e": np.ones((4, 4), "float32"), "k": np.int64(1)},
        "HannWindow": {"n": np.int64(8)},
        "TopK": {"e": np.arange(6, dtype="float32"), "k": np.array([3])},
        "Upsample": {"e": np.ones((1, 1, 4, 4), "float32"), "s": np.array([1, 1, 2, 2], "float32")},
    }  # fmt: skip
    for op, operands in constants.items():
        results = "y z" if op == "TopK" else "y"
        opset = 9 if op == "Upsample" else 17
        models[op] = made([node(op, " ".join(operands), results)], [], ["y"], operands, opset)
    return [(name, model, {"x": x}) for name, model in models.items()]


def attempt(data: bytes, inputs: dict[str, Any]) -> None:
    """Load a model and run it: with the given inputs, or others of the declared types."""
    model = weft_onnx.load(data)
    given = {}
    for name, kind in model.inputs.items():
        tensor = kind.tensor_type
        if name in inputs:
            given[name] = inputs[name]
        else:
            shape = [d.dim_value if 0 < d.dim_value < 100 else 2 for d in tensor.shape.dim]
            given[name] = np.ones(shape, "float32")
            if tensor.elem_type in (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL):
                given[name] = np.ones(shape, helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    model.run(given, "numpy")


class TooLong(BaseException):
    """A mutant was stopped."""


def stop(number: int, frame: FrameType | None) -> None:
    raise TooLong


def tried(data: bytes, inputs: dict[str, Any]) -> str:
    """Return what is wrong with how a mutant ends; empty if nothing is."""
    start, problem = time.process_time(), ""
    signal.setitimer(signal.ITIMER_PROF, STOPPED)
    try:
        attempt(data, inputs)
    except WeftError:
        pass
    except TooLong:
        problem = "stopped"
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"[:300]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    took = time.process_time() - start
    return problem or (f"took {took:.1f} s" if took > SECONDS else "")


def main(name: str, first: int, last: int) -> None:
    """Try the mutants of a corpus with the numbers from `first` to before `last`."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, stop)
    np.seterr(all="ignore")
    warnings.simplefilter("ignore")
    models, own = corpus(name), own_models()
    for seed in range(first, last):
        choose = random.Random(seed)
        title, model, inputs = choose.choice(own if choose.random() < OWN else models)
        data = mutated(model, choose.choice(models)[1], seed)
        problem = tried(data, inputs)
        if problem:
            print(f"mutant {seed}, of {title}: {problem}", flush=True)
    print(f"tried {last - first}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
