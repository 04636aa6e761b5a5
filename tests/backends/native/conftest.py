from __future__ import annotations

from collections.abc import Iterator

import pytest
from needs import skip_without

from weft_native import binding, compiler, library, shared_library
from weft_native.transformer import NativeTransformer


@pytest.fixture
def transformer() -> Iterator[NativeTransformer]:
    skip_without("compiler")
    made = NativeTransformer(cache=False)
    yield made
    made.close()


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Look for the compiler again, before the test and after it."""
    known = compiler.command, compiler.identity, compiler.macros, binding.binder, library.runtime
    monkeypatch.setattr(shared_library, "_loaded", {})
    for each in known:
        each.cache_clear()
    yield
    monkeypatch.undo()
    for each in known:
        each.cache_clear()
