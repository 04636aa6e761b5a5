"""Progress is shown on a terminal and in a notebook, when it lasts, and leaves no trace."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError
from weft.report import progress
from weft.report.progress import Notebook, Stage, Terminal, chosen_display

PATIENCE = 60.0
"""The seconds after which a test gives up."""


@pytest.fixture(autouse=True)
def _no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no choice by the environment."""
    monkeypatch.delenv("WEFT_PROGRESS", raising=False)


class Recorded:
    """A display that takes note; tests wait until it has shown something."""

    interval = 0.001
    shown: list[list[str]]
    was_shown: threading.Condition
    closed: int

    def update(self, stages: Sequence[Stage]) -> None:
        with self.was_shown:
            self.shown.append([each.description for each in stages])
            self.was_shown.notify_all()

    def close(self) -> None:
        type(self).closed += 1


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Recorded]]:
    """Return a display that is chosen, without a delay."""
    kind = type("Recorded", (Recorded,), {"shown": [], "closed": 0})
    kind.was_shown = threading.Condition()
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "chosen_display", lambda: kind)
    yield kind
    assert not [each for each in threading.enumerate() if each.name == "weft-progress"]


def wait_for(kind: type[Recorded], wanted: Callable[[list[str]], bool]) -> None:
    with kind.was_shown:
        assert kind.was_shown.wait_for(lambda: any(map(wanted, kind.shown)), PATIENCE)


class Stream(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def imitate_ipython(monkeypatch: pytest.MonkeyPatch, shell: Any, display: Any = None) -> None:
    ipython, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    monkeypatch.setattr(ipython, "get_ipython", lambda: shell, raising=False)
    monkeypatch.setattr(module, "display", display, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)


KERNEL = types.SimpleNamespace(kernel=object())
"""A shell as that of ipykernel; IPython on a terminal has no kernel."""


@pytest.mark.parametrize(
    ("value", "stream", "shell", "chosen"),
    [
        (None, Stream(True), None, Terminal),
        (None, Stream(False), None, None),
        ("", Stream(True), None, Terminal),
        ("auto", Stream(True), types.SimpleNamespace(), Terminal),
        ("auto", Stream(False), KERNEL, Notebook),
        ("auto", None, None, None),
        ("on", Stream(False), None, Terminal),
        ("on", Stream(False), KERNEL, Notebook),
        ("off", Stream(True), None, None),
        ("off", Stream(True), KERNEL, None),
    ],
)
def test_where_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, value: str | None, stream: Any, shell: Any, chosen: Any
) -> None:
    if value is not None:
        monkeypatch.setenv("WEFT_PROGRESS", value)
    monkeypatch.setattr(sys, "stderr", stream)
    imitate_ipython(monkeypatch, shell)
    assert chosen_display() is chosen


def test_a_closed_error_stream_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    assert chosen_display() is None


def test_workers_of_multiprocessing_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Stream(True))
    assert chosen_display() is Terminal
    monkeypatch.setattr("multiprocessing.process.parent_process", object)
    assert chosen_display() is None


def test_another_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_PROGRESS", "yes")
    with pytest.raises(ArgumentError, match="WEFT_PROGRESS=yes is not auto, on or off"):
        Stage("work").__enter__()
    monkeypatch.delenv("WEFT_PROGRESS")
    with Stage("work"):
        assert len(progress._board.stages) == 1


def test_a_stage_shows_its_part_and_count(recorded: type[Recorded]) -> None:
    with Stage("compiling", total=3) as stage:
        wait_for(recorded, lambda shown: shown == ["compiling"])
        stage.part = "plan"
        stage.advance()
        wait_for(recorded, lambda shown: shown == ["compiling: plan"])
        assert stage.status.startswith("1 of 3, ")
        with Stage("inside"):
            wait_for(recorded, lambda shown: shown == ["compiling: plan", "inside"])
    assert recorded.closed == 1
    with Stage("again"):
        wait_for(recorded, lambda shown: shown == ["again"])
    assert recorded.closed == 2


def test_what_is_over_before_the_delay_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, recorded: type[Recorded]
) -> None:
    monkeypatch.setattr(progress, "DELAY", PATIENCE)
    for _ in range(20):
        with Stage("short"):
            pass
    assert (recorded.shown, recorded.closed) == ([], 0)


def test_an_exception_ends_it(recorded: type[Recorded]) -> None:
    def interrupted() -> None:
        with Stage("outer"), Stage("inner"):
            wait_for(recorded, lambda shown: shown == ["outer", "inner"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert recorded.closed == 1
    assert not progress._board.stages


def test_a_stage_that_was_never_left_is_not_shown_for_ever(recorded: type[Recorded]) -> None:
    """So it is where an interrupt comes as soon as the end of a stage begins."""
    lost = Stage("lost").__enter__()
    wait_for(recorded, lambda shown: shown == ["lost"])
    thread = progress._board.thread
    assert thread is not None
    del lost
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert recorded.closed == 1
    with Stage("next"):
        wait_for(recorded, lambda shown: shown == ["next"])


def test_threads_share_one_display(recorded: type[Recorded]) -> None:
    count = 5
    together = threading.Barrier(count)

    def work(number: int) -> None:
        with Stage(f"thread {number}"):
            together.wait(PATIENCE)
            wait_for(recorded, lambda shown: len(shown) == count)
            together.wait(PATIENCE)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert recorded.closed == 1
    fullest = max(recorded.shown, key=len)
    assert sorted(fullest) == [f"thread {number}" for number in range(count)]


def test_work_goes_on_where_nothing_can_be_drawn(
    monkeypatch: pytest.MonkeyPatch, recorded: type[Recorded]
) -> None:
    tried = threading.Event()

    def fail(*_: object) -> None:
        tried.set()
        raise BrokenPipeError

    monkeypatch.setattr(recorded, "update", fail)
    with Stage("work") as stage:
        assert tried.wait(PATIENCE)
        stage.advance()
    assert stage.done == 1
    assert recorded.closed == 1


@pytest.mark.needs("posix")
def test_a_forked_process_begins_without_stages() -> None:
    script = """
import os
from weft.report import progress
from weft.report.progress import Stage
with Stage("outer"):
    child = os.fork()
    if not child:
        assert not progress._board.stages
        with Stage("inner"):
            assert len(progress._board.stages) == 1
    else:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", script], check=True)


SCRIPT = """
import sys, time
from weft.report import progress
from weft.report.progress import Stage
progress.DELAY = float(sys.argv[1])
with Stage("compiling [red]a\\x1b[31mb", 4) as stage:
    for _ in range(4):
        time.sleep(float(sys.argv[2]))
        stage.advance()
print("done", "rich" in sys.modules)
"""


def on_a_terminal(*arguments: str) -> str:
    """Return what a process writes to a pseudo-terminal that is its error stream and output."""
    import pty

    reader, writer = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments], stdout=writer, stderr=writer, env=environment
    ) as process:
        os.close(writer)
        written = b""
        while True:
            try:
                part = os.read(reader, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            written += part
        os.close(reader)
    assert process.returncode == 0
    return written.decode()


@pytest.mark.needs("posix")
def test_a_terminal_shows_it_and_is_clean_afterwards() -> None:
    written = on_a_terminal("0", "0.3")
    drawn, _, rest = written.rpartition("\x1b[2K")  # the last line that is erased
    assert "compiling [red]a" in drawn
    assert "of 4, " in drawn
    assert "\x1b[31mb" not in drawn
    assert rest == "done True\r\n"


@pytest.mark.needs("posix")
def test_a_terminal_shows_nothing_of_what_is_short() -> None:
    assert on_a_terminal("60", "0") == "done False\r\n"


def test_a_pipe_gets_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "0", "0.05"], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("done False\n", "")


def test_a_notebook_shows_it_in_the_cell_and_is_clean_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[dict[str, str]] = []
    was_shown = threading.Event()

    class Handle:
        def update(self, data: dict[str, str], *, raw: bool) -> None:
            assert raw
            shown.append(data)

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        assert shown == []
        shown.append(data)
        was_shown.set()
        return Handle()

    monkeypatch.setattr(progress, "DELAY", 0.0)
    imitate_ipython(monkeypatch, KERNEL, display)
    with Stage("<b>compiling", 4) as stage:
        stage.advance()
        assert was_shown.wait(PATIENCE)
    first, *_, last = shown
    assert "&lt;b&gt;compiling" in first["text/html"]
    assert "<progress" in first["text/html"]
    assert "<b>compiling" in first["text/plain"]
    assert last == {"text/html": "", "text/plain": ""}


def entered(monkeypatch: pytest.MonkeyPatch) -> list[Stage]:
    """Return a list of the stages that are entered from now on."""
    found: list[Stage] = []
    enter = progress._board.enter

    def note(stage: Stage) -> None:
        found.append(stage)
        enter(stage)

    monkeypatch.setattr(progress._board, "enter", note)
    return found


def test_compiling_is_a_stage_and_calling_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    x = weft.placeholder([3], name="x")
    found = entered(monkeypatch)
    with weft.make_transformer("numpy", cache=False) as transformer:
        step = transformer.computation(weft.tanh(x), x, name="step")
        transformer.computation(weft.exp(x), x, name="other")
        step(np.ones(3))
        assert [each.description for each in found] == [
            "compiling step and 1 more: initial values",
            "first call of step",
        ]
        for _ in range(10):
            step(np.ones(3))
        assert len(found) == 2


def test_the_first_call_with_each_length_is_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    x = weft.placeholder([weft.symbol("n")], name="x")
    found = entered(monkeypatch)
    with weft.make_transformer("numpy", cache=False) as transformer:
        step = transformer.computation(weft.tanh(x), x, name="step")
        step(np.ones(3))
        before = len(found)
        step(np.ones(3))
        assert len(found) == before
        step(np.ones(4))
        assert [each.title for each in found[before:]] == ["compiling step", "first call of step"]


def test_a_profile_counts_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    x = weft.placeholder([3], name="x")
    found = entered(monkeypatch)
    with weft.make_transformer("numpy", cache=False) as transformer:
        transformer.computation(weft.tanh(x), x, name="step").profile(np.ones(3), repeat=4)
    (calls,) = [each for each in found if each.title == "calling step"]
    assert calls.done == calls.total
    assert calls.total is not None
    assert calls.total > 4
