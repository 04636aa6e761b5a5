"""Cases of elementwise ops, reductions, indexing and shapes."""

from __future__ import annotations

import numpy as np
from onnx_cases import SPECIAL, X3, Case, always, below, numbers, positive, whole


def binary(kind: str) -> list[Case]:
    """Return the cases of an op of two tensors before it broadcast by NumPy's rules."""
    x, y = numbers(2, 3, 4), numbers(3, seed=1)
    if kind == "b":
        x, y = x > 0, y > 0
    return [
        Case(always(x, x), {}, {"axis": [None]}, until=6),
        Case(always(x, y), {"broadcast": 1}, {"axis": [1]}, until=6),
        Case(always(x, y[:1]), {"broadcast": 1}, {"axis": [None]}, until=6),
        Case(always(x, x[0, 0]), {"broadcast": 1}, {"axis": [None, 2]}, until=6),
    ]


def reduction(op: str) -> list[Case]:
    """Return the cases of a reduction: its axes as attribute or as operand, given or not."""
    x = positive(2, 3, 4)
    by_operand = 13 if op == "ReduceSum" else 18
    return [
        Case(always(x), {}, {"axes": [None, [1], [0, -1]]}, until=by_operand - 1),
        Case(always(x), since=by_operand),
        Case(always(x, whole()), since=by_operand),
        Case(always(x, whole(1)), since=by_operand),
        Case(always(x, whole(0, -1)), since=by_operand),
    ]


CASES: dict[str, list[Case]] = {
    "Reshape": [
        Case(always(X3, whole(2, 12))), Case(always(X3, whole(0, -1, 2))),
        Case(always(numbers(0, 3), whole(3, 0))), Case(always(numbers(0, 3), whole(0, 7, 2))),
    ],
    "ReverseSequence": [
        Case(always(numbers(4, 4, 2), whole(1, 4, 2, 3)),
             {}, {"batch_axis": [None, 1], "time_axis": [None, 0]}),
        Case(always(numbers(4, 4, 2), whole(1, 4, 2, 3)), {"batch_axis": 0, "time_axis": 1}),
    ],
    **{op: binary("f") for op in ("Add", "Sub", "Mul", "Greater", "Less")},
    **{op: binary("b") for op in ("And", "Or", "Xor")},
    "Div": [
        Case(always(numbers(2, 3), positive(3)), {"broadcast": 1}, {"axis": [None, 1]}, until=6),
        Case(always(numbers(2, 3), positive(2)), {"broadcast": 1}, {"axis": [0]}, until=6),
    ],
    "Pow": [Case(always(positive(2, 3), numbers(2)), {"broadcast": 1}, {"axis": [0]}, until=6),
            Case(always(positive(2, 3), numbers(2, 3)), until=6)],
    "Equal": [Case(always(below(2, 2, 3), below(2, 3)), {"broadcast": 1}, {}, until=6)],
    "Gemm": [
        Case(always(numbers(3, 3), numbers(3, 3, seed=1), numbers(3, 3, seed=2)), {},
             {"alpha": [None, 0.5], "beta": [None, 2.0]}),
        Case(always(numbers(3, 3), numbers(3, 3, seed=1), numbers(3)), {"broadcast": 1}, until=6),
        Case(always(numbers(3, 3), numbers(3, 3, seed=1)), since=11),
        Case(always(numbers(3, 3), numbers(3, 3, seed=1), numbers(3, 1)), {}, since=7),
        Case(always(*(below(9, 3, 3, dtype="int32", seed=n) for n in range(3))), {}, since=9),
    ],
    "IsInf": [Case(always(SPECIAL))],
    "CumSum": [Case(always(X3, np.int64(1))), Case(always(X3, np.int32(-1)))],
    "CumProd": [Case(always(X3, np.int64(1))), Case(always(X3, np.int64(-3)))],
    "Mod": [
        Case(always(below(9, 12) - 4, np.array([3, -3] * 6)), since=10),
        Case(always(below(9, 12, dtype="int8") - 4, np.array([3, -3] * 6, np.int8)), since=10),
        Case(always(numbers(12), np.array([1.5, -1.5] * 6, np.float32)), since=10),
    ],
    **{op: [
        Case(always(np.array([[1, 3, 3], [2, 2, 1]], np.float32)), {}, {"axis": [None, 1, -1]}),
        Case(always(below(3, 2, 3, 4, dtype="int32")), {}, {"axis": [None, 1, -1]}),
    ] for op in ("ArgMax", "ArgMin")},
    "SplitToSequence": [
        Case(always(X3), {}, {"axis": [None, 1, -1]}),
        Case(always(X3, whole(1, 2)), {"axis": 1}), Case(always(X3, np.int64(3)), {"axis": 2}),
    ],
    **{op: reduction(op) for op in (
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
        "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
    )},
    "TopK": [
        Case(always(X3, whole(2)), {}, {"axis": [None, 0, 1]}, since=10, outputs=2),
        Case(always(below(3, 2, 9), whole(4)), {}, {"axis": [None, 1]}, since=11, outputs=2),
        Case(always(X3), {"k": 2}, {"axis": [None, 1]}, until=9, outputs=2),
    ],
    "Unique": [
        Case(always(np.array([3, 1, 3, 2, 1], np.float32)), outputs=4),
        Case(always(np.array([[2, 1, 2], [0, 5, 0]])), {}, {"axis": [None, 0, 1, -1]}, outputs=4),
    ],
    **{op: [Case(always(np.int64(each))) for each in (8, 9, 1)]
       for op in ("HannWindow", "HammingWindow", "BlackmanWindow")},
    "Trilu": [Case(always(numbers(2, 4, 5))), Case(always(numbers(4, 3), np.int64(-1))),
              Case(always(below(9, 3, 3), np.int64(1)))],
    "Gelu": [Case(always(X3))],
    "BitShift": [
        Case(always(below(200, 6, dtype=dtype), np.array([0, 1, 3, 7, 2, 5], dtype)))
        for dtype in ("uint8", "uint16", "uint32", "uint64")
    ],
    "EyeLike": [Case(always(np.ones((3, 4), "float32")), {}, {"k": [None, 1, -2]}),
                Case(always(np.ones((3, 4), "int32")))],
    "SequenceEmpty": [Case(always())],
    "ScatterElements": [
        Case(always(X3, below(3, 2, 2, 4), numbers(2, 2, 4, seed=3)), {"axis": 1}, since=16),
        Case(always(below(9, 5), whole(1, 1, -1), whole(2, 3, 4)), since=16),
        Case(always(X3, below(3, 1, 2, 3), numbers(1, 2, 3, seed=3)), {"axis": 1}, since=11),
        Case(always(X3, below(2, 1, 1, 4), numbers(1, 1, 4, seed=3)), {"axis": 0}, since=11),
    ],
    "ScatterND": [
        Case(always(X3, np.array([[0], [1], [0]]), numbers(3, 3, 4, seed=3)), since=16),
        Case(always(X3, np.array([[0, 1], [1, -1]]), numbers(2, 4, seed=3)), since=16),
    ],
}  # fmt: skip
"""By op of the default domain."""
