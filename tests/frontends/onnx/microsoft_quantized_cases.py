"""Nodes of com.microsoft on quantized tensors, and the definition of each."""

from __future__ import annotations

from typing import Any

import microsoft_definitions as floats
import microsoft_quantized_definitions as d
import numpy as np
from microsoft_cases import RNG, Case, normal, whole


def scale(*shape: int) -> Any:
    return RNG.uniform(0.01, 0.03, shape).astype(np.float32)


def bytes_of(*shape: int, dtype: str = "uint8") -> Any:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def weights_of(*shape: int) -> Any:
    """Return weights of 7 bits: onnxruntime adds products with bytes in 16 bits without VNNI."""
    return whole(-64, 64, *shape).astype(np.int8)


def zero(*shape: int, dtype: str = "uint8") -> Any:
    return (whole(120, 136, *shape) if dtype == "uint8" else whole(-8, 8, *shape)).astype(dtype)


CASES: dict[str, Case] = {}


def _quantized() -> None:
    for kind in ("uint8", "int8"):
        a, b = bytes_of(2, 3, 5, dtype=kind), bytes_of(3, 5, dtype=kind)
        pairs = [a, scale(), zero(dtype=kind), b, scale(), zero(dtype=kind), scale(),
                 zero(dtype=kind)]  # fmt: skip
        CASES[f"QLinearAdd {kind}"] = Case(
            "QLinearAdd", pairs, d.qlinear(np.add), constants=(1, 2, 4, 5, 6, 7), steps=1
        )
        CASES[f"QLinearMul {kind}"] = Case(
            "QLinearMul", pairs, d.qlinear(np.multiply), constants=(1, 2, 4, 5, 6, 7), steps=1
        )
        one = [a, scale(), zero(dtype=kind), scale(), zero(dtype=kind)]
        CASES[f"QLinearLeakyRelu {kind}"] = Case(
            "QLinearLeakyRelu", one,
            d.qlinear_of(lambda x, alpha: np.where(x < 0, alpha * x, x)), {"alpha": 0.2},
            (1, 2, 3, 4), steps=1,
        )  # fmt: skip
        shares = [*one[:3], np.float32(1 / 256), np.array(0 if kind == "uint8" else -128, kind)]
        CASES[f"QLinearSigmoid {kind}"] = Case(
            "QLinearSigmoid", shares, d.qlinear_of(floats.sigmoid), constants=(1, 2, 3, 4), steps=1
        )
        for opset in (12, 13):
            CASES[f"QLinearSoftmax {kind} {opset}"] = Case(
                "QLinearSoftmax", shares, d.qlinear_of(d.q_softmax), {"axis": 1, "opset": opset},
                (1, 2, 3, 4), steps=1,
            )  # fmt: skip
        mean = d.qlinear_of(lambda x, axes, keepdims: x.mean(tuple(axes), keepdims=bool(keepdims)))
        CASES[f"QLinearReduceMean {kind}"] = Case(
            "QLinearReduceMean", one, mean, {"axes": [0, 2], "keepdims": 1}, (1, 2, 3, 4),
            judge=False, steps=1,
        )  # fmt: skip
        CASES[f"QLinearConcat {kind}"] = Case(
            "QLinearConcat",
            [scale(), zero(dtype=kind), a, scale(), zero(dtype=kind),
             bytes_of(2, 2, 5, dtype=kind), scale(), zero(dtype=kind)],
            d.qlinear_concat, {"axis": 1}, (0, 1, 3, 4, 6, 7), steps=1,
        )  # fmt: skip
    condition = whole(0, 2, 2, 3, 5).astype(bool)
    CASES["QLinearWhere"] = Case(
        "QLinearWhere",
        [condition, bytes_of(2, 3, 5), scale(), zero(), bytes_of(3, 5), scale(), zero(), scale(),
         zero()],
        d.qlinear_where, constants=(2, 3, 5, 6, 7, 8), steps=1,
    )  # fmt: skip


def _quantized_images() -> None:
    for last in (0, 1):
        images = bytes_of(2, 5, 6, 4) if last else bytes_of(2, 4, 5, 6)
        one = [images, scale(), zero(), scale(), zero()]
        CASES[f"QLinearGlobalAveragePool {last}"] = Case(
            "QLinearGlobalAveragePool", one, d.qlinear_of(d.global_average),
            {"channels_last": last}, (1, 2, 3, 4), steps=1,
        )  # fmt: skip
        window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
        for counted in (0, 1):
            CASES[f"QLinearAveragePool {last} {counted}"] = Case(
                "QLinearAveragePool", one, d.qlinear_of(d.average_pool, d.quantized_sum),
                {"channels_last": last, "count_include_pad": counted, **window}, (1, 2, 3, 4),
                steps=1,
            )  # fmt: skip
        convolved = {"strides": [2, 1], "pads": [1, 0, 1, 1], "channels_last": last}
        for scales in (scale(), scale(6)):
            w, w_zero = weights_of(6, 4, 3, 2), np.zeros(scales.shape, np.int8)
            CASES[f"QLinearConv {last} {scales.ndim}"] = Case(
                "QLinearConv",
                [images, scale(), zero(), w, scales, w_zero, np.float32(0.9), zero(),
                 whole(-99, 99, 6, dtype="int32")],
                d.qlinear_conv, convolved, (1, 2, 3, 4, 5, 6, 7, 8), steps=1,
            )  # fmt: skip
    CASES["NhwcMaxPool"] = Case(
        "NhwcMaxPool", [bytes_of(2, 5, 6, 4)], d.nhwc_max_pool,
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
    )  # fmt: skip


def _quantized_products() -> None:
    a, b = bytes_of(3, 7), weights_of(7, 4)
    for scales in (scale(), scale(4)):
        zeros = zero(*scales.shape, dtype="int8")
        whole_bias = whole(-500, 500, 4, dtype="int32")
        CASES[f"QGemm float {scales.ndim}"] = Case(
            "QGemm", [a, scale(), zero(), b, scales, zeros], d.qgemm, {"alpha": 0.5},
            (1, 2, 3, 4, 5),
        )  # fmt: skip
        CASES[f"QGemm {scales.ndim}"] = Case(
            "QGemm", [a, scale(), zero(), b.T, scales, zeros, whole_bias, np.float32(0.4), zero()],
            d.qgemm, {"transB": 1}, (1, 2, 3, 4, 5, 6, 7, 8), steps=1,
        )  # fmt: skip
        CASES[f"MatMulIntegerToFloat {scales.ndim}"] = Case(
            "MatMulIntegerToFloat", [a, b, scale(), scales, zero(), zeros, normal(4)],
            d.integer_to_float, constants=(1, 3, 5),
        )  # fmt: skip
        CASES[f"DynamicQuantizeMatMul {scales.ndim}"] = Case(
            "DynamicQuantizeMatMul", [normal(2, 3, 7), b, scales, zeros, normal(4)],
            d.dynamic_matmul, constants=(1, 2, 3), tolerance=1e-4,
        )  # fmt: skip
    CASES["MatMulInteger16"] = Case(
        "MatMulInteger16",
        [whole(-99, 99, 3, 5, dtype="int16"), whole(-99, 99, 5, 2, dtype="int16")],
        lambda a, b: [np.asarray(a, int) @ b], judge=False,
    )  # fmt: skip
    x, weights = bytes_of(2, 4, 6), weights_of(6, 24)
    scales = [scale(), scale()]

    def q_attention(x: Any, w: Any, b: Any, s: Any, ws: Any, mask: Any, z: Any, wz: Any, past: Any,
                    **more: Any) -> Any:  # fmt: skip
        given = d.dequantized(x, s, z), d.dequantized(w, ws, wz)
        return floats.attention(*given, b, mask, past, **more)

    for name, mask in {"no mask": None, "ends": np.array([4, 2], np.int32)}.items():
        past = None if mask is not None else normal(2, 2, 2, 3, 4)
        CASES[f"QAttention {name}"] = Case(
            "QAttention", [x, weights, normal(24), *scales, mask, zero(), zero(dtype="int8"), past],
            q_attention, {"num_heads": 2, "unidirectional": int(mask is None)}, (1, 3, 4, 6, 7),
            tolerance=1e-4,
        )  # fmt: skip
    for direction, count in {"forward": 1, "reverse": 1, "bidirectional": 2}.items():
        CASES[f"DynamicQuantizeLSTM {direction}"] = Case(
            "DynamicQuantizeLSTM",
            [normal(4, 1, 3), weights_of(count, 3, 20), weights_of(count, 5, 20),
             normal(count, 40), None, None, None, None,
             scale(count), zero(count, dtype="int8"), scale(count), zero(count, dtype="int8")],
            d.dynamic_lstm, {"hidden_size": 5, "direction": direction}, (1, 2, 3, 8, 9, 10, 11),
            tolerance=2e-2,
        )  # fmt: skip


def _blocks() -> None:
    rows, columns, size = 40, 6, 16
    blocks = -(-rows // size)
    for bits in (2, 4, 8):
        packed = bytes_of(columns, blocks, size * bits // 8)
        zeros = {
            "middle": None,
            "codes": bytes_of(columns, -(-blocks * bits // 8)),
            "numbers": RNG.uniform(0, 3, (columns, blocks)).astype(np.float32),
        }
        for name, given in zeros.items():
            attributes = {"K": rows, "N": columns, "block_size": size, "bits": bits}
            CASES[f"MatMulNBits {bits} {name}"] = Case(
                "MatMulNBits", [normal(2, 3, rows), packed, scale(columns, blocks), given],
                d.n_bits, attributes, (1, 2, 3), tolerance=1e-4,
                judge=(bits, name) != (8, "numbers"),
            )  # fmt: skip
    CASES["MatMulNBits bias"] = Case(
        "MatMulNBits",
        [normal(3, rows), bytes_of(columns, blocks, size // 2), scale(columns, blocks), None, None,
         normal(columns)],
        d.n_bits, {"K": rows, "N": columns, "block_size": size}, (1, 2), tolerance=1e-4,
    )  # fmt: skip


def _other_blocks() -> None:
    rows, columns, size = 32, 6, 16
    packed, blocks = bytes_of(rows * columns // 2), rows * columns // size
    for quant_type in (0, 1):
        CASES[f"MatMulBnb4 {quant_type}"] = Case(
            "MatMulBnb4", [normal(3, rows), packed, scale(blocks)], d.bnb4,
            {"K": rows, "N": columns, "block_size": size, "quant_type": quant_type}, (1, 2),
        )  # fmt: skip
    at = np.array([[1, 4], [0, 1]])
    for name, zeros in {"middle": None, "codes": bytes_of(5, 2)}.items():
        CASES[f"GatherBlockQuantized {name}"] = Case(
            "GatherBlockQuantized", [bytes_of(5, 24), at, scale(5, 3), zeros], d.gather_blocks,
            {"block_size": 16, "bits": 4, "gather_axis": 0, "quantize_axis": 1}, (0, 2, 3),
        )  # fmt: skip
    words, kinds = whole(0, 9, 2, 4, dtype="int32"), whole(0, 2, 2, 4, dtype="int32")
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.int32)
    tables = [bytes_of(9, 8), bytes_of(6, 8), bytes_of(2, 8), bytes_of(8), bytes_of(8)]
    CASES["QEmbedLayerNormalization"] = Case(
        "QEmbedLayerNormalization",
        [words, kinds, *tables, mask, *(scale() for _ in tables), *(zero() for _ in tables)],
        d.q_embed_layer_norm, {"epsilon": 1e-5}, tuple(range(8, 18)), tolerance=1e-4,
    )  # fmt: skip


def _ties() -> None:
    """Numbers half-way between two results, with zero points that are odd."""
    a, b = whole(0, 100, 1, 2, 6, 8, dtype="uint8"), whole(0, 100, 2, 6, 8, dtype="uint8")
    one, half, origin, odd = np.float32(1), np.float32(0.5), np.uint8(1), np.uint8(3)
    for op, function in {"QLinearAdd": np.add, "QLinearMul": np.multiply}.items():
        CASES[f"{op} ties"] = Case(
            op, [a, half, origin, b, one / 8 if op == "QLinearMul" else one, origin, one, odd],
            d.qlinear(function), {}, (1, 2, 4, 5, 6, 7),
        )  # fmt: skip
    # Ratios of scales that are exact, of scales that are not.
    third = np.float32(1 / 255)
    CASES["QLinearAdd ratios"] = Case(
        "QLinearAdd",
        [a, 2 * third, np.uint8(128), np.uint8(255), third, np.uint8(0), 2 * third, np.uint8(0)],
        lambda a, *more: [np.clip(np.rint(a.astype(float) - 128 + 127.5), 0, 255)], {},
        (1, 2, 3, 4, 5, 6, 7),
    )  # fmt: skip
    single = [a, half, origin, one, odd]
    CASES["QLinearLeakyRelu ties"] = Case(
        "QLinearLeakyRelu", single,
        d.qlinear_of(lambda x, alpha: np.where(x < 0, alpha * x, x)), {"alpha": 0.5}, (1, 2, 3, 4),
    )  # fmt: skip
    CASES["QLinearAveragePool ties"] = Case(
        "QLinearAveragePool", [a, one, origin, one, odd],
        d.qlinear_of(d.average_pool, d.quantized_sum), {"kernel_shape": [2, 2]}, (1, 2, 3, 4),
    )  # fmt: skip
    CASES["QLinearGlobalAveragePool ties"] = Case(
        "QLinearGlobalAveragePool", [a[:, :, :2, :2], one, origin, one, odd],
        d.qlinear_of(d.global_average), {}, (1, 2, 3, 4),
    )  # fmt: skip
    columns = b[0].reshape(8, -1).astype("int8")
    CASES["QGemm ties"] = Case(
        "QGemm", [a[0, 0], half, origin, columns, half, np.int8(1), None, one, odd],
        d.qgemm, {}, (1, 2, 3, 4, 5, 7, 8),
    )  # fmt: skip


for fill in (_quantized, _quantized_images, _quantized_products, _blocks, _other_blocks, _ties):
    fill()
