"""Native programs under AddressSanitizer and ThreadSanitizer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.needs("compiler", "sanitizers")]

ALONE = """
import os
del os.environ["LD_PRELOAD"]
"""
"""Not for the compilers that Python starts: GCC under its own ThreadSanitizer ends now and then."""

THREADS = """
import threading
import numpy as np
import weft
from weft_native.transformer import NativeTransformer

values = np.random.default_rng(0).normal(0, 1, (700, 700)).astype(np.float32)
x = weft.placeholder((700, 700))
step = weft.capture([x + weft.roll(x, 1, 1) - weft.pad(x, ((1, 1), (0, 0)))[2:]], [x])
codes = weft.constant(np.random.default_rng(1).integers(0, 2**32, (80, 1029), dtype=np.uint32))
scales = weft.constant(np.full((20, 1029), 0.01, np.float32))
zeros = weft.constant(np.full((20, 1029), 7, np.uint8))
results = [
    weft.softmax(x @ weft.transpose(x)), weft.sum(x), weft.sum(x, 0), weft.layer_norm(x),
    weft.loop(step, 20, x)[0],
    weft.exp(x[:, 1:]) * 2, weft.where(x[:, :-3] > 0, x[:, 2:-1], x[::-1, 3:]),
    weft.sum(weft.concat([x[:, 350:], x[:, :349]], 1) + weft.roll(x, 3, 0)[:, 1:], 1),
    x[:1, :640] @ weft.dequantize(codes, scales, zeros, bits=4),
]
transformers = [NativeTransformer(threads=3, cache=False) for _ in range(2)]
computations = [each.computation(results, x) for each in transformers]
expected = computations[0](values)


def run(computation):
    for _ in range(15):
        for one, other in zip(computation(values), expected, strict=True):
            assert np.array_equal(one, other)


threads = [threading.Thread(target=run, args=(each,)) for each in computations]
for each in threads:
    each.start()
for each in threads:
    each.join()
print("done")
"""

KIT = """
import sys
import pytest
import weft.testing
options = ["-q", "-p", "no:cacheprovider", "--weft-backend=native", "--tier=test"]
rows = "matmul or pool or conv or softmax or sort or reduction or products or cumsum or take or pad"
sys.exit(pytest.main([*options, *weft.testing.__path__, "-k", rows]))
"""

QUANTIZED = f"""
import sys
import pytest
options = ["-q", "-p", "no:cacheprovider", "--tier=test", "-k", "exact or pointwise"]
sys.exit(pytest.main([*options, {str(Path(__file__).with_name("test_native_quantized.py"))!r}]))
"""


def sanitized(kind: str, program: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python program whose computations are compiled for a sanitizer of GCC."""
    library = {"address": "libasan.so", "thread": "libtsan.so"}[kind]
    path = subprocess.run(
        ["gcc", f"-print-file-name={library}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    environment = {
        **os.environ,
        "LD_PRELOAD": path, "WEFT_CC": f"gcc -fsanitize={kind}", "WEFT_CACHE_DIR": str(cache),
        "ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "exitcode=66",
        "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, "-c", ALONE + program]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)


def test_threads_have_no_data_races(tmp_path: Path) -> None:
    done = sanitized("thread", THREADS, tmp_path)
    assert "WARNING: ThreadSanitizer" not in done.stderr, done.stderr[-4000:]
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-4000:]


@pytest.mark.parametrize("program", [KIT, QUANTIZED], ids=["kit", "quantized"])
def test_kernels_stay_within_their_arrays(program: str, tmp_path: Path) -> None:
    done = sanitized("address", program, tmp_path)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "AddressSanitizer" not in done.stdout + done.stderr
