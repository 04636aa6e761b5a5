"""Progress: what takes long says so on a terminal or in a notebook, and nowhere else.

Work is done inside of a `Stage`. If that lasts longer than a second, a thread shows it, and all
other stages, until none is left. The work itself only sets attributes; it never draws.
"""

from __future__ import annotations

import contextvars
import importlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, Self
from weakref import WeakKeyDictionary, WeakValueDictionary

from weft.settings import AUTO, OFF, ON, PROGRESS
from weft.support.backports import after_fork
from weft.support.html import escaped, shortened
from weft.support.locks import renew
from weft.support.quoting import harmless

DELAY = 1.0
"""The seconds before a stage is shown."""

MOST = 8
"""The stages that are shown at once."""


LONGEST = 60
"""The characters of a description."""


class Stage:
    """Work that may take long, shown while it lasts; a context.

    Raises ArgumentError for a value of ``WEFT_PROGRESS`` that has no meaning.

    Attributes
    ----------
    title
        What is done, as in ``compiling step``.
    total, done
        The number of equal parts, None if nobody knows it, and how many of them are done.
    part
        What is done right now.
    start
        When it began, by `time.monotonic`.
    """

    def __init__(self, title: str, total: int | None = None) -> None:
        self.title = title
        self.total = total
        self.done = 0
        self.part = ""
        self.start = 0.0

    def __enter__(self) -> Self:
        self.start = time.monotonic()
        _board.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        _board.leave(self)

    def advance(self) -> None:
        """Count a part as done; stages are advanced by one thread."""
        self.done += 1

    @property
    def description(self) -> str:
        """The title and the part, as one short printable line."""
        text = f"{self.title}: {self.part}" if self.part else self.title
        return harmless(shortened(text, LONGEST))

    @property
    def status(self) -> str:
        """How much is done, and for how long it has lasted."""
        seconds = f"{time.monotonic() - self.start:.0f} s"
        return seconds if self.total is None else f"{self.done} of {self.total}, {seconds}"


class Display(Protocol):
    """Where stages are shown."""

    interval: float
    """The seconds between two updates."""

    def update(self, stages: Sequence[Stage]) -> None:
        """Show these stages instead of those before."""

    def close(self) -> None:
        """Leave no trace."""


class Terminal:
    """The lines below the cursor of a terminal, which rich draws on the error stream."""

    interval = 0.25

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[status]}", markup=False),
            console=Console(stderr=True, force_terminal=True),
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.tasks: WeakKeyDictionary[Stage, Any] = WeakKeyDictionary()

    def update(self, stages: Sequence[Stage]) -> None:
        """Show these stages instead of those before."""
        known = [self.tasks[each] for each in stages if each in self.tasks]
        for gone in set(self.progress.task_ids).difference(known):
            self.progress.remove_task(gone)
        for each in stages:
            if each not in self.tasks:
                self.tasks[each] = self.progress.add_task("", total=each.total, status="")
            self.progress.update(
                self.tasks[each],
                description=each.description,
                completed=each.done,
                status=each.status,
            )
        self.progress.start()
        self.progress.refresh()

    def close(self) -> None:
        """Remove the lines."""
        self.progress.stop()


class Notebook:
    """An output of the cell that runs."""

    interval = 0.5
    handle: Any = None

    def update(self, stages: Sequence[Stage]) -> None:
        """Show these stages instead of those before."""
        text = "\n".join(f"{each.description}, {each.status}" for each in stages)
        self._show("".join(map(_bar, stages)), text)

    def close(self) -> None:
        """Leave the output empty."""
        self._show("", "")

    def _show(self, html: str, text: str) -> None:
        data = {"text/html": html, "text/plain": text}
        if self.handle is None:
            display = importlib.import_module("IPython.display").display
            self.handle = display(data, raw=True, display_id=True)
        else:
            self.handle.update(data, raw=True)


def _bar(stage: Stage) -> str:
    known = "" if stage.total is None else f' value="{stage.done}" max="{stage.total}"'
    text = escaped(f"{stage.description}, {stage.status}")
    return f"<div><progress{known}></progress> {text}</div>"


def chosen_display() -> Callable[[], Display] | None:
    """Return where stages are shown, or None for nowhere.

    Raises ArgumentError for a value of ``WEFT_PROGRESS`` that has no meaning.
    """
    choice = PROGRESS.value
    if choice == OFF or (choice == AUTO and _is_worker()):
        return None
    if _is_notebook():
        return Notebook
    return Terminal if choice == ON or _is_terminal() else None


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


def _is_notebook() -> bool:
    """Whether a kernel of Jupyter runs the program."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _is_worker() -> bool:
    """Whether this is a process of `multiprocessing`, one of many on a terminal."""
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None


class _Board:
    """The stages of this process, and the thread that shows them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        # Weak, so that one is gone that an interrupt kept from leaving.
        self.stages: WeakValueDictionary[int, Stage] = WeakValueDictionary()
        self.thread: threading.Thread | None = None
        self.has_ended = threading.Event()

    def enter(self, stage: Stage) -> None:
        with self.lock:
            is_shown = self.thread is not None and self.thread.is_alive()
            chosen = None if is_shown else chosen_display()
            self.stages[id(stage)] = stage
            if chosen is None:
                return
            self.has_ended = threading.Event()
            # In a notebook, what a thread shows belongs to the cell that its context knows.
            run = contextvars.copy_context().run
            work = (self._show, chosen, self.has_ended)
            self.thread = threading.Thread(target=run, args=work, name="weft-progress", daemon=True)
            self.thread.start()

    def leave(self, stage: Stage) -> None:
        with self.lock:
            self.stages.pop(id(stage), None)
            if self.stages:
                return
            thread, self.thread = self.thread, None
            self.has_ended.set()
        if thread is not None and thread.is_alive():
            thread.join()

    def _show(self, chosen: Callable[[], Display], has_ended: threading.Event) -> None:
        """Show all stages until there are none; work goes on where that fails."""
        if has_ended.wait(DELAY):
            return
        with suppress(Exception):
            display = chosen()
            try:
                while stages := list(self.stages.values())[:MOST]:
                    display.update(stages)
                    del stages
                    if has_ended.wait(display.interval):
                        break
            finally:
                display.close()

    def renew(self) -> None:
        """Begin without stages in a forked process, which has no thread that shows them."""
        renew(self.lock)
        self.stages, self.thread = WeakValueDictionary(), None


_board = _Board()

after_fork(_board.renew)
