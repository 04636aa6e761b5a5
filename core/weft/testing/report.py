"""Reports of the conformance kit: the support of ops by backends, in Markdown and JSON."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weft.testing.levels import LEVELS

PASSED, FAILED, SKIPPED, LACKING = "passed", "failed", "skipped", "lacking"
_WORST_FIRST = (FAILED, LACKING, PASSED, SKIPPED)
_USUAL = ("float32", "float64", "int32", "bool")
"""The dtypes listed first in a cell."""
_SIGNS = {PASSED: "yes", FAILED: "**no**", LACKING: "lacks", SKIPPED: "-"}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a test of the kit for a backend.

    Attributes
    ----------
    backend
        The name of the backend.
    level
        The level of the test; see `weft.testing.levels`.
    test
        The name of the test.
    function, dtype
        The public function and the dtype of the test, if it has one.
    result
        ``passed``, ``failed``, ``skipped``, or ``lacking`` for an op declared as lacking.
    reason
        The reason of a failure or skip.
    """

    backend: str
    level: str
    test: str
    function: str | None
    dtype: str | None
    result: str
    reason: str = ""


class Report:
    """The outcomes of a run."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    @property
    def backends(self) -> list[str]:
        """The backends that were tested, in order."""
        return list(dict.fromkeys(outcome.backend for outcome in self.outcomes))

    def add(self, outcome: Outcome) -> None:
        """Add the outcome of a test."""
        self.outcomes.append(outcome)

    def sort(self, backends: Iterable[str] = ()) -> None:
        """Sort the outcomes, which come from several processes.

        The order is by backend, with the given ones first, then by level, test and dtype.
        """
        places = {name: place for place, name in enumerate(backends)}

        def key(outcome: Outcome) -> Any:
            dtype = outcome.dtype or ""
            usual = _USUAL.index(dtype) if dtype in _USUAL else len(_USUAL)
            backend = places.get(outcome.backend, len(places)), outcome.backend
            return backend, LEVELS.index(outcome.level), outcome.test, usual, dtype

        self.outcomes.sort(key=key)

    def counts(self, backend: str) -> dict[str, Counter[str]]:
        """Return the number of tests of a backend by level and result."""
        found: dict[str, Counter[str]] = {}
        for outcome in self.outcomes:
            if outcome.backend == backend:
                found.setdefault(outcome.level, Counter())[outcome.result] += 1
        return found

    def functions(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return the worst result by function, backend and dtype."""
        found: dict[str, dict[str, dict[str, str]]] = {}
        for outcome in self.outcomes:
            if outcome.function and outcome.dtype:
                of_backend = found.setdefault(outcome.function, {}).setdefault(outcome.backend, {})
                results = (outcome.result, of_backend.get(outcome.dtype, outcome.result))
                of_backend[outcome.dtype] = min(results, key=_WORST_FIRST.index)
        return dict(sorted(found.items()))

    def lacking(self) -> dict[str, list[str]]:
        """Return the lacking ops by backend, each with the reason of the target."""
        found: dict[str, set[str]] = {}
        for outcome in self.outcomes:
            if outcome.result == LACKING:
                found.setdefault(outcome.backend, set()).add(outcome.reason)
        return {backend: sorted(reasons) for backend, reasons in found.items()}

    def as_json(self) -> dict[str, Any]:
        """Return the report as data; ``format`` is the version of its structure."""
        failures = [asdict(o) for o in self.outcomes if o.result == FAILED]
        return {
            "format": 1,
            "weft": _version(),
            "python": platform.python_version(),
            "backends": {
                name: {
                    "device": _device(name),
                    "levels": {level: dict(count) for level, count in self.counts(name).items()},
                }
                for name in self.backends
            },
            "functions": self.functions(),
            "lacking": self.lacking(),
            "failures": failures,
        }

    def as_markdown(self) -> str:
        """Return the report as a page: tables of levels and of functions, and the failures."""
        return "\n".join(
            [*self._summary(), "", *self._table(), *self._reasons(), *self._failures(), ""]
        )

    def _summary(self) -> list[str]:
        lines = [
            "# Ops by backend",
            "",
            f"What the conformance kit of weft {_version()} found. The first table counts tests by "
            "level, the second says for each function in which dtypes it works.",
            "",
            "| backend | level | passed | failed | lacking | skipped |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for name in self.backends:
            for level, count in self.counts(name).items():
                numbers = (count[each] for each in (PASSED, FAILED, LACKING, SKIPPED))
                lines.append(f"| {name} | {level} | {' | '.join(map(str, numbers))} |")
        return lines

    def _table(self) -> list[str]:
        lines = [
            f"| function | {' | '.join(self.backends)} |",
            f"| --- |{' --- |' * len(self.backends)}",
        ]
        for function, by_backend in self.functions().items():
            cells = (_cell(by_backend.get(name, {})) for name in self.backends)
            lines.append(f"| `{function}` | {' | '.join(cells)} |")
        return lines

    def _reasons(self) -> Iterable[str]:
        lacking = self.lacking()
        if lacking:
            yield from ("", "## What is lacking", "")
        for backend, reasons in lacking.items():
            yield from (f"* {backend}, {reason}" for reason in reasons)

    def _failures(self) -> Iterable[str]:
        failed = [outcome for outcome in self.outcomes if outcome.result == FAILED]
        if failed:
            yield from ("", "## What failed", "")
        for outcome in failed:
            first, *_ = outcome.reason.splitlines() or [""]
            yield f"* {outcome.backend}, {outcome.test}: {first}"

    def write(self, path: str | os.PathLike[str]) -> tuple[Path, Path]:
        """Write the Markdown and the JSON file atomically; `path` has no suffix."""
        stem = Path(path).with_suffix("")
        stem.parent.mkdir(parents=True, exist_ok=True)
        page, data = stem.with_suffix(".md"), stem.with_suffix(".json")
        _write(page, self.as_markdown())
        _write(data, json.dumps(self.as_json(), indent=1) + "\n")
        return page, data


def _cell(by_dtype: Mapping[str, str]) -> str:
    """Return the dtypes by result, the worst results first."""
    groups: dict[str, list[str]] = {}
    for dtype, result in by_dtype.items():
        groups.setdefault(result, []).append(dtype)
    parts = (
        f"{', '.join(groups[result])}" if result == PASSED
        else f"{_SIGNS[result]}: {', '.join(groups[result])}"
        for result in _WORST_FIRST
        if result in groups and result != SKIPPED
    )  # fmt: skip
    return "; ".join(parts) or _SIGNS[SKIPPED]


def _write(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _version() -> str:
    import weft

    return weft.__version__


def _device(backend: str) -> str:
    from weft import plugins

    return str(plugins.backend_status(backend).usable.reason or "")
