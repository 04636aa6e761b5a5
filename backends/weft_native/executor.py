"""NativeKernelGroup: the executor of a program, which one call of a C function runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from weft.errors import StateError
from weft.plan.plan import Buffer
from weft.report.recorder import CAPACITY, Recorder
from weft.runtime.host_threads import available_processors
from weft.runtime.program import Program
from weft.support.backports import override
from weft_c.runtime.bound_segment import BoundSegment
from weft_c.runtime.host_io import HostIO
from weft_c.runtime.kernel_group import GPUKernelGroup
from weft_c.runtime.segments import Launch, Segment
from weft_c.runtime.storage import Arrays, Bytes, bytes_of
from weft_native.binding import binder
from weft_native.device import Host, Memory
from weft_native.program_text import (
    FUNCTIONS,
    INTERRUPTED,
    NUMBERS,
    RECORD_HEAD,
    ProgramText,
)
from weft_native.shared_library import Library, load

if TYPE_CHECKING:
    from weft_native.transformer import NativeTransformer


class NativeHostIO(HostIO):
    """The caller's arrays, which programs access in place."""

    def __init__(self, group: NativeKernelGroup) -> None:
        super().__init__(group.program)
        self.group = group

    def begin(self, arrays: Arrays) -> None:
        """Put the addresses of the arrays into the table."""
        for number, array in enumerate(arrays):
            self.group.table[number] = array.ctypes.data

    def end(self, arrays: Arrays) -> None:
        """Do nothing: results are in place."""

    def read(self, number: int, arrays: Arrays) -> Bytes:
        """Return the bytes of an array."""
        return bytes_of(arrays[number])

    def write(self, number: int, start: int, bytes_: Bytes) -> None:
        """Do nothing: `read` returned the array's own bytes."""


class NativeSegment(BoundSegment):
    """A segment that one call of a C function launches, where Python runs the host's work."""

    def __init__(self, group: NativeKernelGroup, segment: Segment, is_last: bool) -> None:
        super().__init__(group, segment, is_last, waits=False)
        if segment.kernels:
            number = group.text.segment_number(segment)
            run = partial(group.library["weft_segment"], group.table, number)
            self.launches = [(segment.kernels[0][0], run)]


class NativeKernelGroup(GPUKernelGroup):
    """The executor of a program on the host's processors.

    Attributes
    ----------
    text
        The C text of the program.
    library
        The shared library of the program.
    table
        The addresses of the caller's arrays, the buffers and the error words.
    table_of_numbers
        The numbers of the launches, if programs for other lengths share the text.
    is_bound
        Whether the table has the addresses of the buffers; 1 or 0.
    """

    device: Host
    error_words: Memory
    library: Library
    table: ctypes.Array[ctypes.c_void_p]

    def __init__(self, transformer: NativeTransformer, program: Program) -> None:
        super().__init__(transformer, program)
        self.text: ProgramText
        self._call: Callable[..., int]
        self._is_direct = False
        self.table_of_numbers = np.empty(0, np.int64)
        self.is_bound = (ctypes.c_int64 * 1)()
        self._record = np.empty(0, np.int64)

    def build(self) -> None:
        """Compile the program after the last `add_kernel`; raises BackendError if that fails."""
        self.launch_small()
        self.program.code = self
        self.text = ProgramText(self)
        text = self.text.text(available_processors())
        self.table_of_numbers = np.array(self.text.numbers, np.int64)
        self.program.source = partial(self.text.readable, text)
        self.program.source_locations = self.text.line_locations
        self.load(text)

    def load(self, text: str) -> None:
        """Compile and load the C text; raises BackendError if that fails."""
        self.library = load(
            text,
            self.program.name,
            FUNCTIONS if self.recorder is None else (*FUNCTIONS, "weft_record"),
            prepare=lambda library: library["weft_init"](self.device.runtime.table),
            units=self.text.units,
        )
        arrays = self.text.arrays
        self.table = (ctypes.c_void_p * max(arrays + len(self.text.buffers), 1))()
        # A call that may take long lets other threads of Python run.
        kind = ctypes.PYFUNCTYPE if self._is_short else ctypes.CFUNCTYPE
        prototype = kind(ctypes.c_int, ctypes.c_void_p, *[ctypes.py_object] * arrays)
        call = prototype(("weft_call", self.library))
        self._call = partial(call, ctypes.addressof(self.table))
        self._is_direct = self.text.is_whole and not self.text.has_loops

    def recording(self, launch: Launch, start: Callable[[], Any]) -> Callable[[], Any]:
        """Return `start`: the C text has the marks."""
        return start

    def begin_recording(self) -> None:
        """Clear the memory for the marks of the C text."""
        assert self.recorder is not None, "only programs with a recorder have marks"
        rows = len(self.recorder.rows)
        if not self._record.size:
            self._record = np.empty(RECORD_HEAD + 2 * (CAPACITY + rows), np.int64)
        head, totals = self._record[:RECORD_HEAD], self._record[RECORD_HEAD + 2 * CAPACITY :]
        head[:], totals[:] = (CAPACITY, 0, 0), 0
        self.library["weft_record"](ctypes.c_void_p(self._record.ctypes.data))

    def deliver_times(self, recorder: Recorder) -> None:
        """Give a recorder the marks that the C text made."""
        made = int(self._record[1])
        marks = self._record[RECORD_HEAD : RECORD_HEAD + 2 * made].reshape(-1, 2)
        totals = self._record[RECORD_HEAD + 2 * CAPACITY :]
        recorder.add_marks([(row, time) for row, time in marks.tolist()])
        for row, (time, count) in enumerate(totals.reshape(-1, 2).tolist()):
            if count:
                recorder.add_unlisted(row, time / 1e9, count)

    def entry(self) -> Callable[..., None]:
        """Return the function to call with the arrays of a call: a builtin one if possible."""
        bind = binder() if self._is_direct else None
        if bind is None:
            return self
        # The collector cannot follow the builtin's references, so it must not hold the group. The
        # closures hold the memory that it writes to, and the library whose code it runs.
        group, memory = ref(self), (self.table, self.is_bound, self.table_of_numbers, self.library)

        def alive() -> NativeKernelGroup:
            found = group()
            if found is None or not memory:
                raise StateError("the computation of this program is gone")
            return found

        found: Callable[..., None] = bind(
            ctypes.cast(self.library["weft_program"], ctypes.c_void_p),
            ctypes.addressof(self.table),
            ctypes.addressof(self.is_bound),
            self.text.arrays,
            self._is_short,
            lambda *arrays: alive()(*arrays),
            lambda *arrays: alive().report(*arrays),
        )
        return found

    def report(self, *arrays: np.ndarray[Any, Any]) -> None:
        """Raise the error that a kernel reported in a call with these arrays."""
        self._check_reports(self.reports, arrays)

    @property
    def _is_short(self) -> bool:
        """Whether a call takes microseconds: no loops, and work for one thread only."""
        items = [getattr(launch, "items", 0) for launch in self.work]
        return not self.text.has_loops and len(items) <= 64 and all(n == 1 for n in items)

    # Calls

    def __call__(self, *arrays: np.ndarray[Any, Any]) -> None:
        """Run the program on the input arrays, followed by the arrays that receive the results."""
        # An interrupt cannot land inside of C, so a bound program needs no `held`.
        if not self._is_direct or not self.is_bound[0]:
            super().__call__(*arrays)
        elif self._call(*arrays):
            self.report(*arrays)

    def run(self, arrays: Arrays) -> None:
        """Run the program in one call, or segment by segment where the host has work."""
        if not self.text.is_whole:
            super().run(arrays)
            return
        if self._bound_to != self.workspace_pool.version:
            self._bind()
        status = self._call(*arrays)
        if status == INTERRUPTED:
            self.device.runtime.raise_interrupt()
        elif status:
            self.report(*arrays)

    def make_host_io(self) -> NativeHostIO:
        """Return access to the arrays of calls, in place."""
        return NativeHostIO(self)

    def unbind(self) -> None:
        """Bind the table again before the next call: memory has moved."""
        self.is_bound[0] = 0

    @override
    def close(self) -> None:
        self.unbind()
        super().close()

    def _bind(self) -> None:
        super()._bind()
        for base, number in self.text.buffers.items():
            self.table[self.text.arrays + number] = self._address_of(base)
        self.is_bound[0] = 1

    def _address_of(self, base: Buffer | None) -> int:
        if base is NUMBERS:
            return int(self.table_of_numbers.ctypes.data)
        memory: Memory = self.error_words if base is None else self._places[base].memory
        return memory.address

    def bind_segments(self, segments: Iterable[Segment]) -> list[BoundSegment]:
        """Bind segments, unless one call runs all of them."""
        return [] if self.text.is_whole else super().bind_segments(segments)

    def bind_segment(self, segment: Segment, is_last: bool) -> BoundSegment:
        """Bind a segment, whose launches are one call."""
        return NativeSegment(self, segment, is_last)

    @override
    def bind_launch(self, launch: Launch, word: int | None) -> Callable[[], Any]:
        return partial(self.launch_again, launch)

    def launch_again(self, launch: Launch) -> None:
        """Run one launch."""
        self.library["weft_launch"](self.table, self.text.launches[id(launch)])

    def wait(self) -> None:
        """Do nothing: calls have ended when they return."""

    # Error words

    @override
    def make_error_words(self) -> Memory:
        return self.device.memory(4 * len(self.reports), "error words")

    @override
    def clear_error_words(self) -> None:
        self.error_words.host[:] = 0

    @override
    def read_error_words(self) -> list[int]:
        found: list[int] = self.error_words.host.view(np.int32).tolist()
        return found
