"""Makes mutants of weft at random, and shows which command catches each.

``python tests/mutation/run_mutants.py --folder DIR`` takes hours; it goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from source_mutants import Mutant, choose, write

ROOT = Path(__file__).parents[2]
SOURCES = ("core", "passes", "codegen", "backends", "frontends")
GROUPS = {
    "operations and their decompositions": ("core/weft/ops",),
    "rules of the NumPy backend": ("backends/weft_numpy",),
    "passes and fusion": ("passes/weft_passes", "core/weft/passes", "core/weft/kernels"),
    "gradients and plans": ("core/weft/autodiff", "core/weft/transforms", "core/weft/plan"),
    "the generator of C": ("codegen/weft_c",),
}
"""What is mutated: as many mutants of each."""

NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "out", "shared")


def main() -> None:
    """Go on from what is in the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where trees and results are")
    parser.add_argument("--count", type=int, default=200, help="how many mutants")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    folder: Path = options.folder.absolute()
    if not (folder / "mutants.json").exists():
        make(folder, options.count, options.seed)
    if not (folder / "plan.json").exists():
        watch(folder, options.processes)
        plan(folder)
    run(folder, options.processes)
    print(table(folder))


def make(folder: Path, count: int, seed: int) -> None:
    """Write a tree with all mutants in it."""
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=NOT_COPIED)
    mutants = choose(tree, GROUPS.values(), count, seed)
    write(tree, mutants)
    (folder / "mutants.json").write_text(json.dumps([asdict(each) for each in mutants], indent=1))


def pytest(folder: Path, *options: str, **variables: str) -> subprocess.Popen[bytes]:
    """Start the tests of the tree."""
    tree = folder / "tree"
    path = [tree / name for name in (*SOURCES, "tests/mutation")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))} | variables
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "mutant_runner",
        "-p",
        "no:cacheprovider",
    ]
    return subprocess.Popen([*command, *options], cwd=tree, env=environment)


def watch(folder: Path, processes: int) -> None:
    """Run the tests of `make test` without a mutant, and note what each evaluates."""
    hits = folder / "hits"
    hits.mkdir(exist_ok=True)
    options = ["-n", str(processes), "--dist", "worksteal", "--tier=test"]
    pytest(folder, *options, WEFT_MUTANT_HITS=str(hits)).wait()


def plan(folder: Path) -> None:
    """Write for each mutant the tests that evaluate it and pass without it, quick ones first."""
    seconds: dict[str, float] = {}
    failed: set[str] = set()
    for path in folder.glob("hits/times-*"):
        for line in path.read_text().splitlines():
            name, time, is_failure = line.rsplit("\t", 2)
            seconds[name] = float(time)
            if int(is_failure):
                failed.add(name)
    evaluated: dict[int, set[str]] = {}
    for path in folder.glob("hits/[0-9]*"):
        for line in path.read_text().splitlines():
            number, name = line.split("\t", 1)
            evaluated.setdefault(int(number), set()).add(name)
    count = len(json.loads((folder / "mutants.json").read_text()))
    chosen = {
        number: sorted(evaluated.get(number, set()) & seconds.keys() - failed, key=seconds.get)
        for number in range(1, count + 1)
    }
    (folder / "plan.json").write_text(json.dumps(chosen))


def run(folder: Path, processes: int) -> None:
    """Run the tests of each mutant."""
    options = ["-p", "no:xdist", "--tier=all", f"--mutants={folder}"]
    started = [
        pytest(folder, *options, f"--mutant-share={share}/{processes}")
        for share in range(processes)
    ]
    for each in started:
        each.wait()


def table(folder: Path) -> str:
    """Return what became of the mutants, as Markdown."""
    mutants = [Mutant(**each) for each in json.loads((folder / "mutants.json").read_text())]
    found = {}
    for path in folder.glob("found-*.jsonl"):
        for line in path.read_text().splitlines():
            each = json.loads(line)
            found[each["mutant"]] = each
    fates: dict[str, Counter[str]] = {name: Counter() for name in GROUPS}
    for number, each in found.items():
        path = mutants[number - 1].path
        group = next(name for name, folders in GROUPS.items() if path.startswith(folders))
        fates[group]["never evaluated" if each["tests"] == [0, 0] else each["caught"]] += 1
    lines = [
        "| mutants of | tried | caught by `make test` | by `make test-all` alone | by neither "
        "| in code that no test of `make test` runs |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    whole: Counter[str] = sum(fates.values(), Counter())
    for name, each in [*fates.items(), ("all", whole)]:
        counts = [each["test"], each["all"], each[""], each["never evaluated"]]
        lines.append(f"| {name} | {sum(counts)} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
