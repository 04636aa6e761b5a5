"""The pytest plugin: the option ``--weft-backend``, and the fixtures that follow from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from weft.transformer import Transformer

OPTION = "--weft-backend"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the backends to test."""
    group = parser.getgroup("weft", "weft conformance kit")
    group.addoption(
        OPTION,
        action="append",
        metavar="NAME",
        default=None,
        help="test this backend; may be repeated (default: every backend that is installed)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that takes `backend` once for every backend."""
    if "backend" in metafunc.fixturenames and not _is_parametrized(metafunc):
        metafunc.parametrize("backend", backends(metafunc.config), indirect=True, scope="session")


def _is_parametrized(metafunc: pytest.Metafunc) -> bool:
    """Whether the test gives `backend` values of its own."""
    names = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize") if mark.args]
    return any(
        "backend" in (name.replace(" ", "").split(",") if isinstance(name, str) else name)
        for name in names
    )


def backends(config: pytest.Config) -> list[str]:
    """Return the backends named on the command line, or else all that are installed."""
    named: list[str] | None = config.getoption(OPTION)
    if named:
        return list(dict.fromkeys(named))
    from weft import plugins

    return plugins.names(plugins.BACKENDS)


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> str:
    """The name of a backend; the test skips if it is unusable, and fails if it was asked for."""
    from weft import plugins

    name: str = request.param
    usable = plugins.backend_status(name).usable
    if not usable:
        reason = f"backend {name!r} is not usable: {usable.reason}"
        if request.config.getoption(OPTION):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return name


@pytest.fixture
def transformer(backend: str) -> Iterator[Transformer]:
    """A fresh transformer of the backend, closed after the test."""
    from weft import make_transformer

    made = make_transformer(backend)
    yield made
    made.close()
