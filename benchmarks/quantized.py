"""Models in 8 bits as onnxruntime's quantizer writes them, beside onnxruntime and beside float.

A convolution net of those that onnx ships and an encoder as of BERT get random weights. They are
quantized statically, with QuantizeLinear and DequantizeLinear around their ops, and dynamically,
with MatMulInteger. Both engines run the same model, and their results are compared before anything
is timed. Run it by itself; ``--write`` puts the table into RESULTS.md.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from environment import cores
from measure import interleaved
from onnx import TensorProto, helper, numpy_helper, version_converter
from onnx_networks import RESULTS, Array, inputs_of, network

import weft_onnx

OPSET = 17
LAYERS, SEQUENCE, FEATURES, HEADS = 4, 128, 768, 12
OPENING, CLOSING = "<!-- generated quantized: begin -->", "<!-- generated quantized: end -->"

TOLERANCE = 0.05
"""The norm of a difference, over that of the result: a number that is rounded up by one engine and
down by the other is off by a step, which the layers that follow add up."""

MODELS = ("resnet50", "squeezenet", "encoder")
KINDS = ("static", "dynamic")


def float_model(name: str) -> onnx.ModelProto:
    """Return a model in float32."""
    if name == "encoder":
        return encoder()
    return version_converter.convert_version(network(name), OPSET)


def encoder() -> onnx.ModelProto:
    """Return an encoder of attention and two products with a GELU between them."""
    random = np.random.default_rng(0)
    nodes: list[Any] = []
    initializers: list[Any] = []

    def weight(name: str, *shape: int) -> str:
        scale = 1 / math.sqrt(shape[0]) if len(shape) > 1 else 0.1
        value = (random.standard_normal(shape) * scale).astype("f4")
        initializers.append(numpy_helper.from_array(value, name))
        return name

    def known(name: str, value: Any) -> str:
        initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}_{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def dense(x: str, name: str, size: int, wanted: int) -> str:
        product = node("MatMul", x, weight(f"{name}_w", size, wanted))
        return node("Add", product, weight(f"{name}_b", wanted))

    def heads(x: str, order: Sequence[int]) -> str:
        return node("Transpose", node("Reshape", x, "split"), perm=order)

    known("split", np.array([1, SEQUENCE, HEADS, FEATURES // HEADS]))
    known("join", np.array([1, SEQUENCE, FEATURES]))
    known("root", np.float32(math.sqrt(FEATURES // HEADS)))
    half, one, root2 = (
        known(name, np.float32(value))
        for name, value in (("half", 0.5), ("one", 1), ("root2", math.sqrt(2)))
    )
    x = "x"
    for layer in range(LAYERS):
        q, k, v = (dense(x, f"{name}{layer}", FEATURES, FEATURES) for name in "qkv")
        scores = node("MatMul", heads(q, (0, 2, 1, 3)), heads(k, (0, 2, 3, 1)))
        shares = node("Softmax", node("Div", scores, "root"), axis=-1)
        mixed = node("MatMul", shares, heads(v, (0, 2, 1, 3)))
        joined = node("Reshape", node("Transpose", mixed, perm=(0, 2, 1, 3)), "join")
        for part in ("attention", "feed"):
            if part == "attention":
                y = dense(joined, f"o{layer}", FEATURES, FEATURES)
            else:
                y = dense(x, f"up{layer}", FEATURES, 4 * FEATURES)
                error = node("Erf", node("Div", y, root2))
                y = node("Mul", node("Mul", y, half), node("Add", error, one))
                y = dense(y, f"down{layer}", 4 * FEATURES, FEATURES)
            scale = known(f"{part}{layer}_scale", np.ones(FEATURES, "f4"))
            shift = weight(f"{part}{layer}_shift", FEATURES)
            x = node("LayerNormalization", node("Add", x, y), scale, shift, axis=-1)
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, SEQUENCE, FEATURES])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, SEQUENCE, FEATURES])],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


class Readings:
    """Gives onnxruntime's quantizer random inputs to find ranges with."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.given = iter([inputs_of(model, seed) for seed in range(10, 14)])

    def get_next(self) -> dict[str, Array] | None:
        """Return the next inputs."""
        return next(self.given, None)


def quantized(model: onnx.ModelProto, kind: str) -> onnx.ModelProto:
    """Return a model as onnxruntime quantizes it."""
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder:
        before, ready, after = (str(Path(folder, name)) for name in ("a.onnx", "b.onnx", "c.onnx"))
        onnx.save(model, before)
        quant_pre_process(before, ready, skip_symbolic_shape=True)
        if kind == "dynamic":
            quantization.quantize_dynamic(ready, after)
        else:
            quantization.quantize_static(
                ready, after, Readings(model), quant_format=quantization.QuantFormat.QDQ,
                per_channel=True,
            )  # fmt: skip
        return onnx.load(after)


@dataclass(frozen=True)
class Outcome:
    """The seconds of a call of each engine, of the model in 8 bits and of that in float32."""

    name: str
    weft: float
    onnxruntime: float
    weft_float: float
    onnxruntime_float: float

    @property
    def ratio(self) -> float:
        """The time of weft over that of onnxruntime, in 8 bits."""
        return self.weft / self.onnxruntime


def outcomes(
    names: Sequence[str], kinds: Sequence[str], backend: str, rounds: int
) -> Iterator[Outcome]:
    """Compare results, then time all in turns."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    for name in names:
        plain = float_model(name)
        given = inputs_of(plain)
        for kind in kinds:
            if kind == "dynamic" and name != "encoder":
                continue
            calls = {}
            for what, model in (("8", quantized(plain, kind)), ("32", plain)):
                session = onnxruntime.InferenceSession(
                    model.SerializeToString(), options, providers=["CPUExecutionProvider"]
                )
                program = weft_onnx.load(model).prepare(backend)
                (expected,) = session.run(None, given)
                (found,) = program.run(given).values()
                error = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
                if not error < TOLERANCE:
                    raise AssertionError(f"{name}, {kind}, {what} bits: wrong by {error:.1e}")
                calls[f"weft{what}"] = partial(program.run, given)
                calls[f"onnxruntime{what}"] = partial(session.run, None, given)
            samples = interleaved(calls, rounds)
            yield Outcome(f"{name}, {kind}", *map(samples.median, calls))


HEAD = ("model", "weft, ms", "onnxruntime, ms", "time over its", "in float", "its in float")


def main() -> None:
    """Run what the command line asks for, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=MODELS)
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--backend", default="native")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(cores()))
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    ratios = []
    wanted = given.only or MODELS, given.kind or KINDS
    for each in outcomes(*wanted, given.backend, given.rounds):
        ratios.append(each.ratio)
        in_bits, in_float = (
            [f"{seconds * 1e3:.2f}" for seconds in several]
            for several in (
                (each.weft, each.onnxruntime), (each.weft_float, each.onnxruntime_float),
            )
        )  # fmt: skip
        lines.append(f"| {' | '.join([each.name, *in_bits, f'{each.ratio:.2f}', *in_float])} |")
        print(lines[-1], flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    lines.append(f"| geometric mean | | | {mean:.2f} | | |")
    print(lines[-1])
    if given.write:
        when = datetime.now(UTC).date()
        head = f"Measured on {when} on {cores()} cores, weft's backend {given.backend}.\n\n"
        before, rest = RESULTS.read_text(encoding="utf-8").split(OPENING)
        _, after = rest.split(CLOSING)
        text = f"{before}{OPENING}\n{head}" + "\n".join(lines) + f"\n{CLOSING}{after}"
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
