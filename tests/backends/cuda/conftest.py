from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from emulator import Emulator
from needs import skip_without
from pretended import Machine, install

import weft
from weft_cupy.transformer import CuPyTransformer

# NVRTC is called as the tests of the kernel generator call it, and mpiexec as those of MPI.
sys.path.extend(str(Path(__file__).parents[2] / each) for each in ("codegen", "communicators"))

Maker = Callable[..., CuPyTransformer]


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    """What runs kernels on the host."""
    skip_without("g++")
    return Emulator(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, emulator: Emulator) -> Machine:
    """Have a GPU that is made up, with cuBLAS."""
    made = Machine(emulator)
    install(monkeypatch.setattr, made)
    monkeypatch.delenv("WEFT_CUPY_DEVICE", raising=False)
    return made


@pytest.fixture
def make(machine: Machine) -> Iterator[Maker]:
    """Make transformers for it, some with other facts about the processor; all are closed."""
    made: list[CuPyTransformer] = []

    def transformer(facts: dict[str, Any] | None = None, **options: Any) -> CuPyTransformer:
        found = weft.make_transformer("cupy", **options)
        assert isinstance(found, CuPyTransformer)
        found.processor = replace(found.processor, **(facts or {}))
        made.append(found)
        return found

    yield transformer
    for each in made:
        each.close()
