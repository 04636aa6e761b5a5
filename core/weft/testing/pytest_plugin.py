"""The pytest plugin: which backends to test and how far, the fixtures, and the report."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from weft.testing.levels import LEVELS, MARK, TOGETHER, includes

if TYPE_CHECKING:
    from weft import Transformer
    from weft.testing.report import Outcome
    from weft.testing.together import Batch

OPTION = "--weft-backend"
LEVEL_OPTION = "--weft-level"
REPORT_OPTION = "--weft-report"
LACKING_PROPERTY = "weft_lacking"
"""Recorded by a test for an op that the target says it lacks."""
OUTCOME_PROPERTY = "weft_outcome"
"""What the report says of a test, on the way there."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the kit."""
    group = parser.getgroup("weft", "weft conformance kit")
    group.addoption(
        OPTION,
        action="append",
        metavar="NAME",
        default=None,
        help="test this backend; may be repeated (default: every backend that is installed)",
    )
    group.addoption(
        LEVEL_OPTION,
        choices=LEVELS,
        default=LEVELS[-1],
        help="test backends up to this level (default: everything)",
    )
    group.addoption(
        REPORT_OPTION,
        metavar="PATH",
        default=None,
        help="write what was found to PATH.md and PATH.json",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark of levels, and the writer of the report if one is wanted."""
    config.addinivalue_line("markers", f"{MARK}(name): a test of the kit that begins at a level")
    config.addinivalue_line("markers", f"{TOGETHER}: tests whose rows are one program")
    path = config.getoption(REPORT_OPTION)
    if path:
        config.pluginmanager.register(ReportWriter(path), "weft-report")


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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is above the chosen level and, for a named backend, tests of weft itself.

    Of what is left, and was not left out for other reasons, put together what belongs together.
    """
    highest, named = config.getoption(LEVEL_OPTION), config.getoption(OPTION)

    def is_wanted(item: pytest.Item) -> bool:
        mark = item.get_closest_marker(MARK)
        if mark is not None:
            return includes(highest, mark.args[0])
        module = getattr(item, "module", None)
        return not (named and getattr(module, "__name__", "").startswith("weft.testing."))

    wanted = [item for item in items if is_wanted(item)]
    if len(wanted) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(wanted)])
        items[:] = wanted
    if any(item.get_closest_marker(TOGETHER) for item in items):
        from weft.testing.together import put_together

        put_together(items)


def backends(config: pytest.Config) -> list[str]:
    """Return the backends named on the command line, or else all that are installed."""
    named: list[str] | None = config.getoption(OPTION)
    if named:
        return list(dict.fromkeys(named))
    from weft import plugins

    return plugins.names(plugins.BACKENDS)


@pytest.fixture(scope="session")
def highest_level(request: pytest.FixtureRequest) -> str:
    """The level up to which backends are tested."""
    name: str = request.config.getoption(LEVEL_OPTION)
    return name


@pytest.fixture(scope="session")
def weft_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A folder for what tests compile, which is not the user's cache."""
    folder = str(tmp_path_factory.mktemp("weft_cache"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_CACHE_DIR", folder)
        yield folder


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest, weft_cache_folder: str) -> str:
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


@pytest.fixture
def batch(request: pytest.FixtureRequest) -> Batch:
    """The rows of the op table that are computed together with the one that a test is about."""
    from weft.testing.together import BATCH

    found: Batch = request.node.stash[BATCH]
    return found


class ReportWriter:
    """Gathers what the tests of the kit say about backends, and writes it at the end."""

    def __init__(self, path: str) -> None:
        from weft.testing.report import Report

        self.path = path
        self.report = Report()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note the outcome of a test of the kit."""
        report = yield
        if report.when == "call" or (not report.passed and report.when == "setup"):
            outcome = _outcome(item, report)
            if outcome is not None:
                report.user_properties.append((OUTCOME_PROPERTY, asdict(outcome)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the outcome, which with pytest-xdist comes from another process."""
        from weft.testing.report import Outcome

        for name, value in report.user_properties:
            if name == OUTCOME_PROPERTY and isinstance(value, dict):
                self.report.add(Outcome(**value))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the report, once."""
        if not hasattr(session.config, "workerinput"):
            self.report.sort(session.config.getoption(OPTION) or ())
            self.report.write(self.path)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say where the report is."""
        terminalreporter.write_line(f"weft: report in {self.path}.md and {self.path}.json")


def _outcome(item: pytest.Item, report: pytest.TestReport) -> Outcome | None:
    from weft.testing.report import LACKING, Outcome

    mark = item.get_closest_marker(MARK)
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if mark is None or "backend" not in parameters:
        return None
    lacking = dict(report.user_properties).get(LACKING_PROPERTY)
    row = parameters.get("row")
    return Outcome(
        backend=parameters["backend"],
        level=mark.args[0],
        test=item.name,
        function=getattr(row, "function", None),
        dtype=parameters.get("dtype"),
        result=LACKING if lacking and report.passed else report.outcome,
        reason=str(lacking) if lacking else "" if report.passed else _reason(report),
    )


def _reason(report: pytest.TestReport) -> str:
    """Return the last words of a failure, or why a test was skipped."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message) if crash else report.longreprtext
