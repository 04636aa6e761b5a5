"""Writes how much of onnx's test suite passes on each backend into docs/onnx.md.

It takes some minutes. Run it from the root: ``python docs/tools/onnx_suite.py``.
"""

from __future__ import annotations

import contextlib
import io
import sys
import unittest
import warnings
from pathlib import Path

from onnx.backend.test import BackendTest

import weft_onnx

BACKENDS = ("numpy", "native", "opencl")
PAGE = Path(__file__).parents[1] / "onnx.md"
OPENING, CLOSING = "<!-- generated: begin -->", "<!-- generated: end -->"
KINDS = {
    "OnnxBackendNodeModelTest": "single nodes",
    "OnnxBackendRealModelTest": "nine networks",
    "OnnxBackendSimpleModelTest": "small models",
    "OnnxBackendPyTorchConvertedModelTest": "modules of PyTorch",
    "OnnxBackendPyTorchOperatorModelTest": "operators of PyTorch",
}


def counts(device: str) -> dict[str, tuple[int, int]]:
    """Return how many tests of each kind pass on a backend, and how many there are."""

    class Chosen(weft_onnx.Backend):
        @classmethod
        def supports_device(cls, name: str) -> bool:
            return name == "CPU"

        @classmethod
        def prepare(cls, model: object, name: str = "CPU", **options: object) -> object:
            return super().prepare(model, device, **options)

    found = {}
    for kind, case in BackendTest(Chosen, "onnx.backend.test").test_cases.items():
        names = [n for n in dir(case) if n.startswith("test_") and n.endswith("_cpu")]
        passed = 0
        for name in names:
            result = unittest.TestResult()
            with contextlib.redirect_stdout(io.StringIO()):
                case(name).run(result)
            passed += result.wasSuccessful() and not result.skipped
        found[kind] = passed, len(names)
    return found


def main() -> int:
    """Run the suite on each backend, and write the table."""
    warnings.simplefilter("ignore")
    columns = {device: counts(device) for device in BACKENDS}
    rows = [f"| tests | of | {' | '.join(BACKENDS)} |", "| --- " * (2 + len(BACKENDS)) + "|"]
    for kind, title in KINDS.items():
        passed = [str(columns[device][kind][0]) for device in BACKENDS]
        rows.append(f"| {title} | {columns['numpy'][kind][1]} | {' | '.join(passed)} |")
    total = [str(sum(p for p, _ in columns[device].values())) for device in BACKENDS]
    whole = sum(count for _, count in columns["numpy"].values())
    rows.append(f"| all | {whole} | {' | '.join(total)} |")
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(OPENING)
    _, after = rest.split(CLOSING)
    table = "\n".join(rows)
    PAGE.write_text(f"{before}{OPENING}\n{table}\n{CLOSING}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
