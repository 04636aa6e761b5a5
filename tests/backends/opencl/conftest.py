from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from machines import FORMS, Machine, transformer_for
from needs import skip_without

from weft_opencl import drivers, verdicts
from weft_opencl.drivers import Candidate
from weft_opencl.transformer import OpenCLTransformer
from weft_opencl.verdicts import Verdict


@pytest.fixture(scope="session")
def device() -> None:
    """Skip where no device works."""
    skip_without("opencl")


@pytest.fixture
def transformer(device: None) -> Iterator[OpenCLTransformer]:
    with transformer_for("as it is") as made:
        yield made


@pytest.fixture(params=FORMS)
def any_transformer(device: None, request: pytest.FixtureRequest) -> Iterator[OpenCLTransformer]:
    with transformer_for(request.param) as made:
        yield made


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Have a machine with platforms of devices, by name; those in `broken` do not work."""
    pytest.importorskip("pyopencl")

    def build(platforms: dict[str, list[Any]], broken: dict[str, str] | None = None) -> None:
        found: list[Candidate] = []
        for number, (name, devices) in enumerate(platforms.items()):
            for place, each in enumerate(devices):
                each.platform = SimpleNamespace(name=name, version="1")
                found.append(Candidate(len(found), number, place, each))

        def verdict_on(candidate: Candidate, again: bool = False) -> Verdict:
            return Verdict((broken or {}).get(candidate.device_name, ""), coherent=True)

        monkeypatch.setattr(drivers, "candidates", lambda: tuple(found))
        monkeypatch.setattr(drivers, "trouble_with_intel", lambda found: "")
        monkeypatch.setattr(verdicts, "verdict_on", verdict_on)
        monkeypatch.delenv("WEFT_OPENCL_DEVICE", raising=False)

    return build
