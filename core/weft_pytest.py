"""The pytest plugin of weft: which backends to test and how far, fixtures, marks and the report.

It stands outside the package `weft`, which is imported only when a test, or an option, asks for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from weft import Transformer
    from weft.plugins.status import BackendStatus
    from weft.testing.report import Outcome
    from weft.testing.together import Batch

LEVELS = ("values", "gradients", "dtypes", "behavior", "threads", "random")
"""In order: each op forward; its gradients and every layout of operands; the rarer dtypes; state,
order, results and errors; concurrent calls; random graphs. Each includes those before it."""

MARK = "weft_level"
TOGETHER = "weft_together"
"""The mark of tests whose rows are computed together; see `weft.testing.together`."""
LONG, SHARE = "long", "share"
"""The marks of tests that weft's own suite seldom runs; they mean nothing elsewhere."""
SKIP, XFAIL = "weft_skip_backend", "weft_xfail_backend"

OPTION = "--weft-backend"
LEVEL_OPTION = "--weft-level"
QUICK_OPTION = "--weft-quick"
REPORT_OPTION = "--weft-report"
ALL, USABLE = "all", "usable"
"""What may stand in the place of a backend's name."""

LACKING_PROPERTY = "weft_lacking"
"""Recorded by a test for an op that the target says it lacks."""
OUTCOME_PROPERTY = "weft_outcome"
"""What the report says of a test, on the way there."""

ONE_IN = 6
"""Of the functions in the op table, the quick mode takes one in so many."""
ALWAYS = frozenset({"isin"})
"""Functions that it always takes: a sort, searches and gathers that share memory."""

_statuses = pytest.StashKey[dict[str, "BackendStatus"]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the kit."""
    group = parser.getgroup("weft", "weft conformance kit")
    group.addoption(
        OPTION,
        action="append",
        metavar="NAME",
        default=None,
        help="test this backend; may be repeated. `all` stands for every backend that is installed "
        "(the default), `usable` for those that have their device",
    )
    group.addoption(
        LEVEL_OPTION,
        choices=LEVELS,
        default=None,
        help="test backends up to this level (default: everything)",
    )
    group.addoption(
        QUICK_OPTION,
        action="store_true",
        default=None,
        help="test a part of the kit that is always the same and has some of everything",
    )
    group.addoption(
        REPORT_OPTION,
        metavar="PATH",
        default=None,
        help="write what was found to PATH.md and PATH.json",
    )
    parser.addini("weft_backend", f"what {OPTION} is where it is not given", "args", [])
    parser.addini("weft_level", f"what {LEVEL_OPTION} is where it is not given", default="")
    parser.addini("weft_quick", f"whether {QUICK_OPTION} is given", "bool", False)


def pytest_configure(config: pytest.Config) -> None:
    """Register marks, and the writer of the report if one is wanted."""
    for line in (
        f"{MARK}(name): a test of the kit that begins at a level",
        f"{TOGETHER}: tests whose rows are one program",
        f"{LONG}(*backends): on these or all in the last tier of weft's own suite (make test-all)",
        f"{SHARE}(n): one case in n is enough before the last tier of weft's own suite",
        f"{SKIP}(*names, reason=): skip the test on these backends of weft",
        f"{XFAIL}(*names, reason=, raises=, strict=): expect it to fail on these backends of weft",
    ):
        config.addinivalue_line("markers", line)
    if highest_of(config) not in LEVELS:
        known = ", ".join(LEVELS)
        raise pytest.UsageError(f"weft_level = {highest_of(config)}: there are {known}")
    path = config.getoption(REPORT_OPTION)
    if path:
        config.pluginmanager.register(ReportWriter(path), "weft-report")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse a backend that is not installed, once and not test by test."""
    named = named_by(session.config)
    if not named:
        return
    from weft import plugins
    from weft.errors import PluginError, UnknownPluginError

    for name in named:
        if name not in (ALL, USABLE):
            try:
                plugins.require(plugins.BACKENDS, name)
            except UnknownPluginError as error:
                raise pytest.UsageError(f"{OPTION}={name}: {error}") from None
            except PluginError:
                pass  # the tests fail, with the reason


def named_by(config: pytest.Config) -> list[str]:
    """Return the backends named on the command line, or else in the ini file."""
    return list(config.getoption(OPTION) or config.getini("weft_backend"))


def highest_of(config: pytest.Config) -> str:
    """Return the level up to which backends are tested."""
    return str(config.getoption(LEVEL_OPTION) or config.getini("weft_level") or LEVELS[-1])


def is_quick(config: pytest.Config) -> bool:
    """Whether a part of the kit is enough."""
    return bool(config.getoption(QUICK_OPTION) or config.getini("weft_quick"))


def includes(highest: str, name: str) -> bool:
    """Whether a run up to a level takes in another one."""
    return LEVELS.index(name) <= LEVELS.index(highest)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that takes `backend` once for every backend.

    A test of the kit is not collected for a backend on which it could only be skipped.
    """
    if "backend" not in metafunc.fixturenames or _is_parametrized(metafunc):
        return
    config = metafunc.config
    is_of_kit = metafunc.definition.get_closest_marker(MARK) is not None
    names = [name for name in backends(config) if not is_of_kit or not is_left_out(config, name)]
    metafunc.parametrize("backend", names, indirect=True, scope="session")


def is_left_out(config: pytest.Config, backend: str) -> bool:
    """Whether a backend has no device, or lacks a package, and was not asked for by name."""
    status = status_of(config, backend)
    return not (status.usable or status.is_broken or backend in named_by(config))


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
    highest, named = highest_of(config), bool(named_by(config))
    quick = Sample() if is_quick(config) else None

    def is_wanted(item: pytest.Item) -> bool:
        mark = item.get_closest_marker(MARK)
        if mark is not None:
            return includes(highest, mark.args[0]) and (quick is None or quick.takes(item))
        module = getattr(item, "module", None)
        is_of_weft = getattr(module, "__name__", "").startswith("weft.testing.")
        return not (is_of_weft and (named or quick))

    wanted = [item for item in items if is_wanted(item)]
    if len(wanted) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(wanted)])
        items[:] = wanted
    for item in items:
        _mark_for_its_backend(item)
    if any(item.get_closest_marker(TOGETHER) for item in items):
        from weft.testing.together import put_together

        put_together(items)


class Sample:
    """The part of the kit that the quick mode runs: always the same, whatever else is chosen.

    Of the op table it takes one function in `ONE_IN` and those of `ALWAYS`, and of each its first
    row in one of the dtypes; of the rarer dtypes the first part; of random programs none; all of
    what is left.
    """

    def takes(self, item: pytest.Item) -> bool:
        """Whether a test of the kit is in the sample."""
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        row, dtype = parameters.get("row"), parameters.get("dtype")
        if row is not None and item.get_closest_marker(TOGETHER):
            number = zlib.crc32(row.function.encode())
            return (
                (number % ONE_IN == 0 or row.function in ALWAYS)
                and row.name == self._first_of(row)
                and dtype == row.dtypes[number // ONE_IN % len(row.dtypes)]
            )
        mark = item.get_closest_marker(MARK)
        return not (mark is not None and mark.args[0] == LEVELS[-1]) and not parameters.get("part")

    def _first_of(self, row: Any) -> str:
        from weft.testing.table import TABLE

        if not hasattr(self, "_firsts"):
            self._firsts: dict[str, str] = {}
            for each in TABLE:
                self._firsts.setdefault(each.function, each.name)
        return str(self._firsts.get(row.function, row.name))


def _mark_for_its_backend(item: pytest.Item) -> None:
    """Skip a test, or expect it to fail, if a mark says so for its backend."""
    backend = getattr(getattr(item, "callspec", None), "params", {}).get("backend")
    if backend is None:
        return
    for mark in item.iter_markers(SKIP):
        if backend in mark.args:
            reason = mark.kwargs.get("reason", f"not for backend {backend}")
            item.add_marker(pytest.mark.skip(reason=reason))
    for mark in item.iter_markers(XFAIL):
        if backend in mark.args:
            item.add_marker(pytest.mark.xfail(**mark.kwargs))


def backends(config: pytest.Config) -> list[str]:
    """Return the backends that are named, or else all that are installed.

    Raises pytest.UsageError if all that are usable are asked for and there is none.
    """
    named = named_by(config)
    if named and not {ALL, USABLE}.intersection(named):
        return list(dict.fromkeys(named))
    from weft import plugins

    installed = plugins.names(plugins.BACKENDS)
    found: list[str] = []
    for name in named or [ALL]:
        if name == USABLE:
            # One that is broken is tested, and fails: else nobody would notice.
            statuses = {each: status_of(config, each) for each in installed}
            found += [name for name, each in statuses.items() if each.usable or each.is_broken]
        else:
            found += installed if name == ALL else [name]
    if not found:
        raise pytest.UsageError(f"{OPTION}={USABLE}: no backend is usable; see `weft doctor`")
    return list(dict.fromkeys(found))


def status_of(config: pytest.Config, backend: str) -> BackendStatus:
    """Return how far a backend gets, which is asked once."""
    from weft import plugins

    known = config.stash.setdefault(_statuses, {})
    if backend not in known:
        known[backend] = plugins.backend_status(backend)
    return known[backend]


@pytest.fixture(scope="session")
def highest_level(request: pytest.FixtureRequest) -> str:
    """The level up to which backends are tested."""
    return highest_of(request.config)


@pytest.fixture(scope="session")
def is_brief(request: pytest.FixtureRequest) -> bool:
    """Whether the quick mode is on."""
    return is_quick(request.config)


@pytest.fixture(scope="session")
def weft_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A folder for what tests compile, which is not the user's cache."""
    folder = str(tmp_path_factory.mktemp("weft_cache"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_CACHE_DIR", folder)
        yield folder


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest, weft_cache_folder: str) -> str:
    """The name of a backend.

    The test fails if the backend is broken, or was asked for by name and is not usable; it skips if
    the backend has no device, or needs a package that is not installed.
    """
    name: str = request.param
    status = status_of(request.config, name)
    if status.usable:
        return name
    reason = f"backend {name!r} is not usable: {status.usable.reason}"
    if status.is_broken or name in named_by(request.config):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


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
            self.report.sort(named_by(session.config))
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
