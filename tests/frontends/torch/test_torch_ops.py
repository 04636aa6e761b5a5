"""torch's own samples of its operators: weft computes what eager torch computes.

The exclusions are strict: an entry that is excluded, and of which all samples are right, fails.
"""

from __future__ import annotations

import pytest
import torch
from needs import skip_without_backend
from torch_exclusions import INEXACT, expected
from torch_samples import ENTRIES, TOLERANCES, verdicts

pytestmark = pytest.mark.long

OTHER_DTYPES = (torch.int64, torch.bool, torch.float16, torch.bfloat16, torch.complex64)

ONE_IN = 10
"""Of the entries, the share that is computed in other dtypes on the native backend too."""


def taking(*dtypes: torch.dtype) -> dict[str, torch.dtype]:
    """Return the entries that take one of some dtypes, with the first that they take."""
    firsts = {
        name: next((dtype for dtype in dtypes if dtype in entry.dtypes), None)
        for name, entry in ENTRIES.items()
    }
    return {name: dtype for name, dtype in firsts.items() if dtype is not None}


FORWARD = taking(torch.float32, torch.int64, torch.complex64)
DIFFERENTIABLE = [name for name in taking(torch.float32) if ENTRIES[name].supports_autograd]
IN_OTHERS = [(name, dtype) for dtype in OTHER_DTYPES for name in taking(dtype)]


def check(name: str, backend: str, dtype: torch.dtype, with_gradients: bool = False) -> None:
    skip_without_backend(backend)
    what = "gradients" if with_gradients else str(dtype).removeprefix("torch.")
    tolerance = INEXACT.get(name, TOLERANCES[dtype])
    found = verdicts(ENTRIES[name], backend, dtype, with_gradients, tolerance)
    kinds = {verdict.kind for verdict in found} - {"right"}
    assert kinds == expected(name, what), found


@pytest.mark.parametrize("backend", ["numpy", "native", "opencl"])
@pytest.mark.parametrize("name", FORWARD)
def test_samples(name: str, backend: str) -> None:
    check(name, backend, FORWARD[name])


@pytest.mark.parametrize(("name", "dtype"), IN_OTHERS)
def test_samples_in_other_dtypes(name: str, dtype: torch.dtype) -> None:
    check(name, "numpy", dtype)


@pytest.mark.parametrize(("name", "dtype"), IN_OTHERS[::ONE_IN])
def test_some_samples_in_other_dtypes_on_native(name: str, dtype: torch.dtype) -> None:
    check(name, "native", dtype)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_of_samples(name: str) -> None:
    check(name, "numpy", torch.float32, with_gradients=True)


def test_most_entries_are_computed() -> None:
    computed = [name for name in FORWARD if not expected(name, "float32")]
    differentiated = [name for name in DIFFERENTIABLE if not expected(name, "gradients")]
    assert len(computed) >= 650
    assert len(differentiated) >= 520
