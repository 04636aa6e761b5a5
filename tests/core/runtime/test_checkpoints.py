"""Checkpoints: by name, whole or absent, for any number of ranks and any backend."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import skip_without_backend

import weft
from weft.communicators.interface import Communicator
from weft.errors import ArgumentError, CheckpointError, CommunicationError
from weft.files import replacing
from weft.runtime import checkpoints
from weft.runtime.safetensors_content import content_of

pytestmark = pytest.mark.slow

pytest.importorskip("safetensors")


class Threads(Communicator):
    """A rank that is a thread, which can only gather texts."""

    def __init__(self, rank: int, texts: list[str], barrier: threading.Barrier) -> None:
        super().__init__("threads")
        self._rank, self.texts, self.meeting = rank, texts, barrier

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def size(self) -> int:
        return len(self.texts)

    def gather_text(self, text: str, label: str) -> list[str]:
        self.texts[self._rank] = text
        self.meeting.wait(60)
        found = list(self.texts)
        self.meeting.wait(60)
        return found

    def start(self, *_: Any) -> Any:
        raise AssertionError("checkpoints gather texts only")

    def abort(self, reason: str) -> None:
        raise AssertionError(reason)


def on_ranks(size: int, work: Any, kind: type[Threads] = Threads) -> list[BaseException | None]:
    """Run a function with each of some ranks; returns what each raised."""
    texts, barrier = [""] * size, threading.Barrier(size)
    errors: list[BaseException | None] = [None] * size

    def run(rank: int) -> None:
        try:
            work(kind(rank, texts, barrier))
        except BaseException as error:
            errors[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return errors


def training(backend: str = "numpy", scale: float = 1.0, rows: int = 4) -> Any:
    """Return a step that changes states of several kinds, named and unnamed."""
    w = weft.variable((rows, 3), initial_value=np.arange(rows * 3).reshape(rows, 3), name="w")
    b = weft.variable((3,), "float32", initial_value=1.0, name="layer/b é")
    steps = weft.persistent_tensor((), "int64", name="steps", initial_value=0)
    noise = weft.uniform((3,), stream=1)
    weft.assign(w, w * 2 * scale)
    weft.assign(b, b + noise)
    weft.assign(steps, steps + 1)
    return weft.make_transformer(backend).computation([w, b, steps], name="train")


def values(step: Any) -> list[Any]:
    transformer = step.transformer
    states = sorted(transformer.state_tensors, key=lambda op: op.serial)
    return [transformer.get_value(state).tolist() for state in states]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_training_goes_on_where_it_was(tmp_path: Path, size: int, backend: str) -> None:
    path = tmp_path / "step.safetensors"
    ranks = [training() for _ in range(size)]
    for step in ranks:
        step(), step()
    expected = values(ranks[0])
    errors = on_ranks(
        size,
        lambda rank: ranks[rank.rank].transformer.save_states(path, communicator=rank),
    )
    assert errors == [None] * size
    assert len(list(tmp_path.iterdir())) == (1 if size == 1 else size + 1)
    skip_without_backend(backend)
    restored = training(backend)
    restored.transformer.load_states(path)
    assert values(restored) == expected


def test_a_new_checkpoint_of_ranks_replaces_the_files_of_the_last(tmp_path: Path) -> None:
    path = tmp_path / "step.index.json"
    ranks = [training(), training()]

    def save(rank: Any) -> None:
        ranks[rank.rank]()
        ranks[rank.rank].transformer.save_states(path, communicator=rank)

    for _ in range(2):
        assert on_ranks(2, save) == [None, None]
    files = set(json.loads(path.read_text())["weight_map"].values())
    assert {each.name for each in tmp_path.iterdir()} == {path.name, *files}


def test_what_kills_left_goes_with_the_next_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "a"
    ranks = [training(), training()]

    def save(rank: Any) -> None:
        ranks[rank.rank].transformer.save_states(path, communicator=rank)

    left = [f"a.{'0' * 16}.00001-of-00003", f".a.{'1' * 16}.00003-of-00003.77.part"]
    others = {"a.txt", f"b.{'0' * 16}.00001-of-00003", f"a.{'0' * 16}.00001-of-00003.txt"}
    for name in (*left, *others):
        (tmp_path / name).touch()
    assert on_ranks(2, save) == [None, None]
    files = set(json.loads(path.read_text())["weight_map"].values())
    assert {each.name for each in tmp_path.iterdir()} == {"a", *files, *others}
    ranks[0].transformer.save_states(path)
    assert {each.name for each in tmp_path.iterdir()} == {"a", *others}


SHARE, INDEX = "its share of a checkpoint", "the index of a checkpoint"


@pytest.mark.parametrize("heard", [SHARE, INDEX])
def test_an_interrupt_of_one_rank_leaves_a_whole_checkpoint(heard: str, tmp_path: Path) -> None:
    class Interrupted(Threads):
        """Rank 1 is interrupted as it hears of a success, and misses the next exchange."""

        def gather_text(self, text: str, label: str) -> list[str]:
            if self.rank == 0 and heard == SHARE and label == INDEX:
                raise CommunicationError("rank 1 has left")
            texts = super().gather_text(text, label)
            if self.rank == 1 and label == heard:
                raise KeyboardInterrupt
            return texts

    path = tmp_path / "a"
    ranks = [training(), training()]

    def save(rank: Any) -> None:
        ranks[rank.rank]()
        ranks[rank.rank].transformer.save_states(path, communicator=rank)

    assert on_ranks(2, save) == [None, None]
    assert isinstance(on_ranks(2, save, Interrupted)[1], KeyboardInterrupt)
    restored = training()
    restored.transformer.load_states(path)
    assert values(restored) == values(ranks[0])


def test_states_are_complete_before_the_first_call_with_any_length(tmp_path: Path) -> None:
    def summing() -> tuple[Any, Any]:
        x = weft.placeholder((weft.symbol("n"),), name="x")
        total = weft.variable((), initial_value=5.0, name="total")
        noise = weft.uniform((), stream=1)
        with weft.saved_user_deps():
            update = weft.assign(total, total + weft.sum(x) + noise)
        return total, weft.make_transformer().computation(update, x)

    path = tmp_path / "a"
    total, step = summing()
    step.transformer.save_states(path)
    step(np.ones(3))
    expected = step.transformer.get_value(total)
    total, step = summing()
    step.transformer.load_states(path)
    step(np.ones(3))
    assert step.transformer.get_value(total) == expected != 5

    step.transformer.save_states(path)
    total, step = summing()
    step.transformer.load_states(path)
    assert step.transformer.get_value(total) == expected


def test_ranks_with_other_states_are_refused_on_all(tmp_path: Path) -> None:
    ranks = [training(rows=4), training(rows=5)]

    def save(rank: Any) -> None:
        ranks[rank.rank].transformer.save_states(tmp_path / "a", communicator=rank)

    for error in on_ranks(2, save):
        assert isinstance(error, CheckpointError)
        assert "differ on rank 1" in str(error)
    assert not list(tmp_path.iterdir())


def test_a_rank_that_fails_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    ranks = [training(), training()]

    def save(rank: Any) -> None:
        ranks[rank.rank].transformer.save_states(path, communicator=rank)

    assert on_ranks(2, save) == [None, None]
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}

    def full_disk(target: Path) -> Any:
        if target.name.endswith("00002-of-00002"):
            raise OSError("the disk is full")
        return replacing(target)

    monkeypatch.setattr(checkpoints, "replacing", full_disk)
    first, second = on_ranks(2, save)
    assert isinstance(first, CheckpointError)
    assert "rank 1 could not write its share: OSError: the disk is full" in str(first)
    assert isinstance(second, OSError)
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == before


def saved(tmp_path: Path, **changes: Any) -> Path:
    arrays = {
        "w": np.zeros((4, 3), "float32"),
        "layer/b é": np.zeros(3, "float32"),
        "steps": np.zeros((), "int64"),
        "persistent": np.zeros((), "uint32"),
        **changes,
    }
    path = tmp_path / "a.safetensors"
    path.write_bytes(content_of({k: v for k, v in arrays.items() if v is not None}))
    return path


WRONG = {
    "missing": ({"w": None, "steps": None}, ["steps is missing", "w is missing"]),
    "extra": ({"more": np.zeros(2)}, ["more is not a state here"]),
    "shape": (
        {"w": np.zeros((3, 4), "float32")},
        [r"w is float32 \(3, 4\) there, and float32 \(4, 3\) here"],
    ),
    "dtype": (
        {"steps": np.zeros((), "int32")},
        [r"steps is int32 \(\) there, and int64 \(\) here"],
    ),
    "all": (
        {"w": None, "more": np.zeros(1), "steps": np.zeros(1)},
        ["more is not a state", r"steps is float64 \(1,\)", "w is missing"],
    ),
}


@pytest.mark.parametrize("flaw", WRONG)
def test_every_difference_is_listed_and_nothing_is_loaded(flaw: str, tmp_path: Path) -> None:
    changes, lines = WRONG[flaw]
    path = saved(tmp_path, **changes)
    step = training()
    step()
    before = values(step)
    with pytest.raises(CheckpointError, match=r"(?s)no state was changed.*" + ".*".join(lines)):
        step.transformer.load_states(path)
    assert values(step) == before


def test_some_states_are_saved_and_loaded_by_names_of_choice(tmp_path: Path) -> None:
    w, other = (
        weft.variable((2,), initial_value=[1, 2], name="w"),
        weft.variable((2,), initial_value=0),
    )
    transformer = weft.make_transformer()
    transformer.computation([w, other])()
    path = tmp_path / "a"
    transformer.save_states(path, {"mine": other, "w": w})
    transformer.set_value(w, [5, 6])
    transformer.load_states(path, [w])
    assert transformer.get_value(w).tolist() == [1, 2]
    with pytest.raises(ArgumentError, match="has no name of its own"):
        transformer.save_states(path, [other])
    with pytest.raises(ArgumentError, match="names of states are text"):
        transformer.save_states(path, {3: w})


def test_a_failure_while_states_are_set_sets_them_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path)
    step = training()
    step()
    before = values(step)
    transformer, calls = step.transformer, []
    whole = transformer.set_value

    def set_value(state: Any, value: Any) -> None:
        calls.append(state)
        if len(calls) == 3:
            raise KeyboardInterrupt
        whole(state, value)

    monkeypatch.setattr(transformer, "set_value", set_value)
    with pytest.raises(KeyboardInterrupt):
        transformer.load_states(path)
    assert values(step) == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read as a checkpoint"),
        (b"{}", "cannot be read as a checkpoint"),
        (b'{"weight_map": {"w": "../../etc/passwd"}}', "is not beside it"),
        (b'{"weight_map": {"w": ""}}', "is not beside it"),
        (b'{"weight_map": {"w": "a\\u0000b"}}', "is not beside it"),
        (b'{"weight_map": {"w": "' + b"n" * 5000 + b'"}}', "cannot be read"),
        (b'{"weight_map": {"w": ".."}}', "is not a file beside it"),
        (b'{"weight_map": {"w": 3}}', "is not beside it"),
        (b'{"weight_map": {"w": "gone"}}', "gone cannot be read: No such file"),
        (b'{"weight_map": 3}', "cannot be read as a checkpoint"),
        (b"[" * 100_000, "cannot be read as a checkpoint"),
        (b"\xff" * 8 + b"{}", "not a safetensors file"),
        (b"\x02" + b"\0" * 7 + b"{}", "is missing"),
    ],
)
def test_a_file_that_is_no_checkpoint_is_an_error(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        training().transformer.load_states(path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        training().transformer.load_states(tmp_path / "missing")


@pytest.mark.needs("posix")
def test_an_index_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link"):
        (tmp_path / "a").write_text(json.dumps({"weight_map": {"w": name}}))
        with pytest.raises(CheckpointError, match="is not a file beside it"):
            training().transformer.load_states(tmp_path / "a")


WRITER = """
import sys
import numpy as np
import weft
states = [weft.variable((1000,), name=f"s{n}") for n in range(8)]
transformer = weft.make_transformer()
number = weft.placeholder((), name="number")
step = transformer.computation(weft.doall([weft.assign(s, number) for s in states]), number)
for count in range(1, 10**6):
    step(np.float32(count))
    transformer.save_states(sys.argv[1])
    if count == 1:
        print("ready", flush=True)
"""


def test_a_kill_while_a_checkpoint_is_written_leaves_one_that_is_whole(tmp_path: Path) -> None:
    path, chosen = tmp_path / "a", random.Random(0)
    states = [weft.variable((1000,), initial_value=0.0, name=f"s{n}") for n in range(8)]
    transformer = weft.make_transformer()
    transformer.computation(states)()
    for _ in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        with writer.stdout:
            assert writer.stdout.readline() == "ready\n"
            time.sleep(chosen.random() / 4)
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        transformer.load_states(path)
        found = {transformer.get_value(state).tobytes() for state in states}
        assert len(found) == 1
