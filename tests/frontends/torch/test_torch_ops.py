"""torch's own samples of its operators: weft computes what eager torch computes.

The exclusions are strict: an entry that is excluded, and of which all samples are right, fails.
"""

from __future__ import annotations

import pytest
import torch
from needs import skip_without_backend
from torch_exclusions import INEXACT, expected
from torch_samples import ENTRIES, verdicts

pytestmark = pytest.mark.long

NOT_APPLICABLE = {"right", "eager"}
"""Verdicts of samples that are computed, or that torch does not compute here."""

FORWARD = [
    name for name, entry in ENTRIES.items() if {torch.float32, torch.int64} & set(entry.dtypes)
]
DIFFERENTIABLE = [
    name
    for name, entry in ENTRIES.items()
    if torch.float32 in entry.dtypes and entry.supports_autograd
]


def check(name: str, backend: str, dtype: torch.dtype, with_gradients: bool) -> None:
    found = list(verdicts(ENTRIES[name], backend, dtype, with_gradients, INEXACT.get(name, 2e-4)))
    kinds = {verdict.kind for verdict in found} - NOT_APPLICABLE
    assert kinds == expected(name, backend, with_gradients), found


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", FORWARD)
def test_samples(name: str, backend: str) -> None:
    skip_without_backend(backend)
    dtypes = ENTRIES[name].dtypes
    check(name, backend, torch.float32 if torch.float32 in dtypes else torch.int64, False)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_of_samples(name: str) -> None:
    check(name, "numpy", torch.float32, True)


def test_most_entries_are_computed() -> None:
    computed = [name for name in FORWARD if not expected(name, "numpy", False)]
    differentiated = [name for name in DIFFERENTIABLE if not expected(name, "numpy", True)]
    assert len(computed) >= 640
    assert len(differentiated) >= 510
