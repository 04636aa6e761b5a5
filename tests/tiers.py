"""Which tests `make fast`, `make test` and `make test-all` run; docs/testing.md says why.

A test runs in every tier, unless its marks ``slow``, ``long`` and ``share(n)``, its backend or the
time that it took say otherwise. The fast tier runs one case of each test function.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from functools import cache, cached_property
from math import ceil, inf
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from weft import plugins
from weft.plugins.entrypoints import OWN
from weft.plugins.registry import PluginRecord
from weft_pytest import LONG, SHARE, TOGETHER, is_left_out, named_by

TIERS = FAST, TEST, ALL = ("fast", "test", "all")
"""Each runs what the one before it does, and more."""

SLOW = "slow"
ABOVE = {FAST: {SLOW, LONG}, TEST: {LONG}, ALL: set[str]()}
"""The marks of tests that a tier leaves out."""

DEVICES = frozenset({"opencl", "cupy", "native", "webgpu"})
"""Backends that the fast tier does not compile for."""

SPARSE = {"native": 4, "webgpu": 60}
"""Backends whose kernels another one runs too, here OpenCL: the second tier runs one in so many of
their cases, and all of their own tests."""

KIT_ALONE = frozenset({"webgpu"})
"""Backends that run the kit, which asks what their targets say, and the tests in their own folder:
others of weft's tests take float64 and NaN for granted."""

TABLE_SHARES = {"numpy": 5}
"""By backend: of the cases of a function in the op table, the second tier runs one in so many. On
another backend it runs one, and on all `DEVICES` together one of each of `DEVICE_GROUPS`."""
DEVICE_GROUPS = 256
"""Groups of functions, about two in each: to compile a row takes up to half a second."""

BATCHED = "test_ops.py::test_row_gives_what_the_reference_gives"
"""The test whose first row computes those beside it, too, and shows their time."""

DURATIONS = Path(__file__).with_name("durations.json")
"""Seconds of the processor: of each case that takes `LEAST` of them or more, by its name, and of
the mean case of each function whose cases take `MOST_TOGETHER` or more, by the function."""
LEAST = 0.2
MOST = {FAST: 0.2, TEST: 0.3}
"""The seconds from which a case is in a later tier; but the second has a case of each file."""
MOST_TOGETHER = 2.0
"""The seconds of the cases of a function in the second tier; the op table has its own rule."""

SECONDS = pytest.StashKey[float]()
"""The time of the processor when a test began."""

LOST = pytest.StashKey[list[str]]()
"""For each test that was left out because its backend has no device, that backend."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose a part of the tests."""
    group = parser.getgroup("tiers", "tiers of weft's own tests")
    group.addoption("--tier", choices=TIERS, default=ALL, help="up to which tier tests are run")
    group.addoption(
        "--above", choices=TIERS[:-1], default=None, help="leave out what this tier runs"
    )
    group.addoption(
        "--record-durations", action="store_true", help=f"write {DURATIONS.name} for what is run"
    )
    group.addoption(
        "--part",
        type=_part,
        metavar="K/N",
        default="0/1",
        help="of what is left, run part K of N, which is always the same",
    )


def _part(text: str) -> tuple[int, int]:
    """Return which part is run, and how many there are."""
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and int(part) < int(parts)):
        raise argparse.ArgumentTypeError(f"{text} is not K/N, for a part from 0 to N - 1")
    return int(part), int(parts)


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and what chooses the tests."""
    config.addinivalue_line("markers", f"{SLOW}: not in the fast tier (make fast)")
    config.pluginmanager.register(Selection(config))
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Note when a test begins."""
    item.stash[SECONDS] = sum(os.times()[:4])


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Send the time of a test, and of the processes that it waited for, along with its report."""
    item.user_properties.append(("seconds", sum(os.times()[:4]) - item.stash[SECONDS]))


class Recorder:
    """Writes the file of durations: new ones of the tests that are run."""

    def __init__(self) -> None:
        self.found = dict(durations())
        self.cases: dict[str, list[float]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the time of a test, unless it is that of others."""
        if report.when != "teardown" or BATCHED in report.nodeid:
            return
        seconds = float(dict(report.user_properties).get("seconds", 0.0))
        self.cases.setdefault(report.nodeid.partition("[")[0], []).append(seconds)
        self.found.pop(report.nodeid, None)
        if seconds >= LEAST:
            self.found[report.nodeid] = round(seconds, 1)

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        for function, cases in self.cases.items():
            if sum(cases) >= MOST_TOGETHER and len(cases) > 1:
                self.found[function] = round(sum(cases) / len(cases), 3)
        DURATIONS.write_text(json.dumps(dict(sorted(self.found.items())), indent=0) + "\n")


@cache
def durations() -> dict[str, float]:
    """Return the seconds in the file, by the names of tests."""
    found: dict[str, float] = json.loads(DURATIONS.read_text())
    return found


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a module whose marks leave it out whole."""
    above = ABOVE[config.getoption("--tier")]
    is_module = collection_path.suffix == ".py"
    return True if is_module and not above.isdisjoint(module_marks(collection_path)) else None


@cache
def module_marks(path: Path) -> Set[str]:
    """Return those of the marks ``slow`` and ``long`` that a module gives all its tests."""
    text = path.read_text(encoding="utf-8")
    if "\npytestmark" not in text or not any(f"mark.{name}" in text for name in ABOVE[FAST]):
        return set()
    values = [
        statement.value
        for statement in ast.parse(text).body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"
    ]
    marks = [mark for value in values for mark in getattr(value, "elts", [value])]
    return ABOVE[FAST] & {ast.unparse(mark).removeprefix("pytest.mark.") for mark in marks}


class Case(NamedTuple):
    """What the tiers ask of a test, which pytest may not have built yet.

    Attributes
    ----------
    name
        Its node id.
    marks
        The names of its marks.
    one_in
        Of how many cases of its function the second tier runs one.
    parameters
        Its parameters.
    """

    name: str
    marks: frozenset[str]
    one_in: int
    parameters: Mapping[str, Any]

    @property
    def function(self) -> str:
        """The name of its file and function."""
        return self.name.partition("[")[0]

    @property
    def path(self) -> str:
        """The name of its file."""
        return self.name.partition("::")[0]

    @property
    def backend(self) -> str:
        """Its backend, if that is a parameter."""
        return str(self.parameters.get("backend"))

    @property
    def seconds(self) -> float:
        """The time that it took, if that is known."""
        return durations().get(self.name, 0.0)

    @property
    def checksum(self) -> int:
        """A number that depends on its name alone."""
        return zlib.crc32(self.name.encode())


def cases(function: pytest.Item, calls: Sequence[Any]) -> list[Case]:
    """Return the cases of a function: one for each call with parameters, or else a single one."""
    marks = list(function.iter_markers())
    share = function.get_closest_marker(SHARE)
    one_in = share.args[0] if share else 1

    def case(name: str, marks: list[pytest.Mark], parameters: Mapping[str, Any]) -> Case:
        backend = parameters.get("backend")
        is_long = any(not mark.args or backend in mark.args for mark in marks if mark.name == LONG)
        named = {mark.name for mark in marks if mark.name != LONG or is_long}
        return Case(name, frozenset(named), one_in, parameters)

    return [
        case(f"{function.nodeid}[{call.id}]", [*marks, *call.marks], call.params) for call in calls
    ] or [case(function.nodeid, marks, getattr(getattr(function, "callspec", None), "params", {}))]


class Selection:
    """Chooses the tests: those of the tier, or what it has above another one, and of these a part.

    Tests of backends of other distributions are left out, unless they are asked for, and those of
    backends without their device, which could only be skipped: `needs` counts these.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.tier, self.below = config.getoption("--tier"), config.getoption("--above")
        self.part, self.parts = config.getoption("--part")
        self.found: set[str] = set()
        self.upper: list[Case] = []
        self.lower: list[Case] = []
        self.lost: list[Case] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> Any:
        """Choose among the cases of a function, before pytest builds a test of each."""
        result = yield
        calls = metafunc._calls
        found = cases(metafunc.definition, calls)
        self.found.update(case.name for case in found)
        own = [
            case
            for case in found
            if not self._is_foreign(case.backend) and not _is_beyond_the_kit(case)
        ]
        usable = [case for case in own if not self._is_lost(case.backend)]
        upper = chosen(usable, self.tier)
        self.upper += upper
        self.lower += chosen(usable, self.below) if self.below else []
        self.lost += chosen([case for case in own if self._is_lost(case.backend)], self.tier)
        wanted = {case.name for case in filter(self._is_of_part, upper)}
        kept = [call for call, case in zip(calls, found, strict=False) if case.name in wanted]
        # Without any call, pytest would build a test that lacks its parameters.
        metafunc._calls = kept or calls[:1]
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what was built and is not run."""
        self.config.stash[LOST] = [case.backend for case in of_files(self.lost, self.tier)]
        upper = filter(self._is_of_part, of_files(self.upper, self.tier))
        lower = {case.name for case in of_files(self.lower, self.below)}
        unwanted = self.found - ({case.name for case in upper} - lower)
        if deselected := [item for item in items if item.nodeid in unwanted]:
            self.config.hook.pytest_deselected(items=deselected)
            items[:] = [item for item in items if item.nodeid not in unwanted]

    def _is_of_part(self, case: Case) -> bool:
        return case.checksum % self.parts == self.part

    @cached_property
    def _records(self) -> dict[str, PluginRecord]:
        return {record.name: record for record in plugins.records(plugins.BACKENDS)}

    def _is_foreign(self, backend: str) -> bool:
        """Whether a backend is one of another distribution that nobody asked for."""
        record = self._records.get(backend)
        return (
            record is not None
            and record.distribution not in (None, OWN)
            and backend not in named_by(self.config)
        )

    def _is_lost(self, backend: str) -> bool:
        """Whether a backend has no device."""
        return backend in self._records and is_left_out(self.config, backend)


def _is_beyond_the_kit(case: Case) -> bool:
    """Whether a test is neither of the kit nor in the folder of a backend that runs these alone."""
    return case.backend in KIT_ALONE and not case.path.startswith(
        ("core/weft/testing/", f"tests/backends/{case.backend}/")
    )


def members(items: Iterable[pytest.Item], tier: str) -> list[pytest.Item]:
    """Return those tests that one of the tiers before the last runs."""
    functions: dict[str, list[Case]] = {}
    for item in items:
        (case,) = cases(item, ())
        functions.setdefault(case.function, []).append(case)
    left = of_files([case for each in functions.values() for case in chosen(each, tier)], tier)
    names = {case.name for case in left}
    return [item for item in items if item.nodeid in names]


def chosen(found: list[Case], tier: str) -> list[Case]:
    """Return those cases of a function that a tier runs.

    Where all take too long for the second tier, the quickest is left, on which `of_files` decides.
    """
    left = [case for case in found if ABOVE[tier].isdisjoint(case.marks)]
    if tier == ALL:
        return left
    if tier == TEST:
        groups: dict[Hashable, list[Case]] = {}
        for case in left:
            if TOGETHER in case.marks or not _is_sparse(case):
                groups.setdefault(_group(case), []).append(case)
        left = [case for group in groups.values() for case in _sample(group, _one_in(group[0]))]
    else:
        left = _sample([case for case in left if case.backend not in DEVICES], inf)
    quick = [case for case in left if case.seconds < MOST[tier]]
    if not quick:
        return [min(reversed(left), key=lambda case: case.seconds)] if left and tier == TEST else []
    mean = durations().get(quick[0].function, 0.0)
    return _sample(quick, max(len(quick) * mean / MOST_TOGETHER, 1.0))


def of_files(found: list[Case], tier: str) -> list[Case]:
    """Return the cases that a tier runs: of those that take long only the quickest of a file."""
    if tier != TEST:
        return found
    quick = [case for case in found if case.seconds < MOST[tier]]
    tried = {case.path for case in quick}
    # Of each file the last one stays in the dictionary, which is the quickest.
    quickest = {case.path: case for case in sorted(found, key=lambda case: -case.seconds)}
    return quick + [case for path, case in quickest.items() if path not in tried]


def _sample(found: list[Case], one_in: float) -> list[Case]:
    """Return one case in so many, and at least one: always the same."""
    count = max(ceil(len(found) / one_in), 1)
    picked = {case.name for case in sorted(found, key=lambda case: case.checksum)[:count]}
    return [case for case in found if case.name in picked]


def _group(case: Case) -> Hashable:
    """Return what cases have in common of which a share is taken."""
    if TOGETHER not in case.marks:
        return None
    function = case.parameters["row"].function
    if case.backend in DEVICES:
        return zlib.crc32(function.encode()) % DEVICE_GROUPS
    return function, case.backend


def _one_in(case: Case) -> float:
    """Return of how many cases of its group one is taken."""
    return TABLE_SHARES.get(case.backend, inf) if TOGETHER in case.marks else case.one_in


def _is_sparse(case: Case) -> bool:
    """Whether a test is left out because another backend runs the same kernels."""
    return case.checksum % SPARSE.get(case.backend, 1) != 0
