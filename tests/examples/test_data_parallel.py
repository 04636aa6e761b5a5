"""The example that trains under MPI: it learns, and goes on after a kill as if there was none."""

from __future__ import annotations

import random
import re
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from mpi_launch import HANG, left_running, mpiexec

from weft.runtime.checkpoints import read_values

pytestmark = pytest.mark.slow

for package in ("matplotlib", "safetensors", "sklearn"):
    pytest.importorskip(package)

EXAMPLE = Path(__file__).parents[2] / "examples" / "data_parallel.py"
KILLED = Path(__file__).with_name("killed_training.py")
STEPS, EVERY = 40, 6
SHORT = ("--steps", str(STEPS), "--every", str(EVERY))
NOBODY = ("-1", "0", "0")


class Whole(NamedTuple):
    """A run that nothing stopped."""

    output: str
    states: dict[str, Any]
    collectives: int


def trained(ranks: int, folder: Path, *options: str) -> str:
    ended = mpiexec(ranks, str(EXAMPLE), "--checkpoint", str(folder), *SHORT, *options)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def killed(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run on two ranks, of which one is killed: the rank, the collective, the seconds after it."""
    options = ("--checkpoint", str(folder), *SHORT)
    return mpiexec(2, str(KILLED), *arguments[:3], *options, *arguments[3:])


def number(name: str, output: str) -> float:
    found = re.search(rf"^{name} +([\d.]+)", output, flags=re.MULTILINE)
    assert found, output
    return float(found[1])


def states(folder: Path, model: str) -> dict[str, Any]:
    return read_values(folder / f"{model}.checkpoint")


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.fixture(scope="module")
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    model = request.param
    folder = tmp_path_factory.mktemp(model)
    ended = killed(folder, *NOBODY, "--model", model)
    assert ended.returncode == 0, ended.stderr
    found = states(folder, model)
    return Whole(ended.stdout, found, int(number("collectives", ended.stdout)))


@pytest.mark.parametrize("whole", ["digits"], indirect=True)
def test_two_ranks_learn_most_digits(whole: Whole) -> None:
    assert number("accuracy", whole.output) > 0.85
    assert number("steps", whole.output) == STEPS == whole.states["steps"]


@pytest.mark.long
@pytest.mark.parametrize("whole", ["text"], indirect=True)
def test_two_ranks_learn_which_characters_are_likely(whole: Whole) -> None:
    assert number("loss", whole.output) < 3.3 < np.log(128)


@pytest.mark.parametrize(
    ("whole", "model", "seed"),
    [
        *(("digits", "digits", seed) for seed in range(2)),
        *(pytest.param("digits", "digits", seed, marks=pytest.mark.long) for seed in range(2, 10)),
        pytest.param("text", "text", 0, marks=pytest.mark.long),
    ],
    indirect=["whole"],
)
def test_a_killed_run_goes_on_to_the_weights_of_one_that_was_not(
    whole: Whole, model: str, seed: int, tmp_path: Path
) -> None:
    chosen = random.Random(seed)
    rank, at = chosen.randrange(2), chosen.randrange(1, whole.collectives)
    begun = time.monotonic()
    ended = killed(tmp_path, str(rank), str(at), str(chosen.random() / 200), "--model", model)
    assert time.monotonic() - begun < HANG / 2
    assert ended.returncode != 0
    assert not left_running(ended.stdout)

    path = tmp_path / f"{model}.checkpoint"
    taken = int(states(tmp_path, model)["steps"]) if path.exists() else 0
    assert taken % EVERY == 0 or taken == STEPS
    output = trained(2, tmp_path, "--model", model)
    assert f"the first {taken} of them in earlier runs" in output
    assert_same(states(tmp_path, model), whole.states)
    left = [each.name for each in tmp_path.iterdir() if each.suffix != ".part"]
    assert len(left) == 3, "the index and a file of each rank"


@pytest.mark.parametrize("whole", ["digits"], indirect=True)
@pytest.mark.parametrize("ranks", [1, pytest.param(4, marks=pytest.mark.long)])
def test_another_number_of_ranks_goes_on(whole: Whole, ranks: int, tmp_path: Path) -> None:
    half = STEPS // 2
    trained(2, tmp_path, "--steps", str(half))
    output = trained(ranks, tmp_path)
    assert f"the first {half} of them in earlier runs" in output
    assert number("loss", output) == pytest.approx(number("loss", whole.output), rel=1e-3)
    assert len(list(tmp_path.iterdir())) == (1 if ranks == 1 else ranks + 1)


@pytest.mark.parametrize("whole", ["digits"], indirect=True)
def test_a_run_with_sharded_state_goes_on_without(whole: Whole, tmp_path: Path) -> None:
    trained(2, tmp_path, "--steps", str(STEPS // 2), "--sharded")
    trained(2, tmp_path)
    assert_same(states(tmp_path, "digits"), whole.states)


WRONG = {
    "batch": (("--batch", "63"), "a batch of 63 has no equal shares for 2 ranks"),
    "backend": (("--backend", "nimpy"), "There is no backend named 'nimpy'"),
    "rate": (
        ("--model", "text", "--learning-rate", "1e30"),
        "the loss has diverged: try a lower --learning-rate",
    ),
    "folder": (("--checkpoint", str(EXAMPLE)), "[Errno 17] File exists"),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_trained_ends_all_ranks_with_a_sentence(what: str, tmp_path: Path) -> None:
    options, words = WRONG[what]
    ended = mpiexec(2, str(EXAMPLE), "--checkpoint", str(tmp_path), *SHORT, *options)
    assert ended.returncode != 0
    assert f"data_parallel.py: {words}" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []
