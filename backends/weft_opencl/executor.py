"""OpenCLKernelGroup: the executor of a program, with everything bound that can be bound once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.description import TensorDescription
from weft.errors import BackendError, StateError
from weft.kernels.c.function import GPUKernel, HostCall, LibraryCall, region
from weft.kernels.c.group import Arrays, GPUKernelGroup, Report, Segment
from weft.plan import INPUT, RESULT
from weft.program import Program
from weft_opencl.device import Memory
from weft_opencl.edge import CopiedEdge, Edge, SharedEdge
from weft_opencl.memory import OpenCLStorage, bytes_of, view

if TYPE_CHECKING:
    from weft_opencl.transformer import OpenCLTransformer

Launch = Callable[[], Any]


class OpenCLKernelGroup(GPUKernelGroup):
    """The executor of a program on an OpenCL device.

    Where the device shares the host's memory, kernels work on the caller's arrays; else on copies
    in memory that the group keeps. Calls come one at a time.
    """

    def __init__(self, transformer: OpenCLTransformer, program: Program) -> None:
        super().__init__(transformer.processor)
        self.transformer = transformer
        self.device = transformer.device
        self.cl = transformer.cl
        self.queue = transformer.queue
        self._finish = transformer.queue.finish
        self.program = program
        self.inputs = len(program.captured.inputs)
        self.edge: Edge = (SharedEdge if self.processor.shares_host else CopiedEdge)(self)
        self._places: Mapping[Any, OpenCLStorage] = {}
        self._words: Memory | None = None
        self._kernels: dict[GPUKernel, Any] = {}
        self._stretches: list[_Stretch] = []
        self._is_bound = self._is_closed = False

    def build(self) -> None:
        """Build the program, once all kernels are there; raises BackendError if that fails."""
        self.launch_small()
        self.program.source = text = self.source.text
        self.program.code = self
        if not self.source.functions:
            return
        built = self.device.build(text, self.program.name)
        try:
            for work in self.work:
                if isinstance(work, GPUKernel):
                    self._kernels[work] = self.cl.Kernel(built, work.function.name)
        except self.cl.Error as error:
            doing = f"making the kernels of {self.program.name}"
            raise self.transformer.failed(error, doing) from error

    def __call__(self, *arrays: np.ndarray[Any, Any]) -> None:
        """Compute: takes the input arrays, then the arrays to write results to."""
        if self.device.lost:
            raise BackendError(self.device.lost)
        try:
            if not self._is_bound:
                self._bind()
            held = self.edge.begin(arrays)
            for stretch in self._stretches:
                for launch in stretch.launches:
                    launch()
                if stretch.is_last:
                    self.edge.end(arrays)
                if stretch.waits:
                    self._finish()
                if stretch.reports:
                    self._raise_reported(stretch.reports, arrays)
                if stretch.host is not None:
                    stretch.host.run(arrays)
            del held
        except self.cl.Error as error:
            self._abandon()
            raise self.transformer.failed(error, f"computing {self.program.name}") from error
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """Wait for what runs: it may use the caller's memory."""
        with suppress(self.cl.Error):
            self._finish()

    def close(self) -> None:
        """Give everything back."""
        self._is_closed, self._is_bound = True, False
        self._stretches, self._kernels, self._places = [], {}, {}
        if self._words is not None:
            self._words.release()
        self.edge.close()

    # Binding

    def _bind(self) -> None:
        """Bind the arguments of every launch, but for those in the caller's memory."""
        if self._is_closed:
            raise StateError(f"{self.program.name}: its transformer was closed: make another one")
        self._places = {
            buffer: storage
            for buffer, storage in self.program.storages.items()
            if isinstance(storage, OpenCLStorage)
        }
        if self.reports:
            nbytes = len(self.reports) * self.processor.alignment
            shared = self.processor.shares_host
            self._words = self.device.memory(nbytes, "error words", shared)
            self._clear_words()
        self._stretches = [self._stretch(segment) for segment in self.segments]
        last = self._stretches[-1]
        last.is_last, last.waits = True, last.waits or not self.processor.shares_host
        self._is_bound = True

    def _stretch(self, segment: Segment) -> _Stretch:
        launches = [self._launch(kernel, word) for kernel, word in segment.kernels]
        host = None if segment.host is None else HostWork(self, segment.host)
        return _Stretch(launches, segment.reports, host, waits=bool(launches))

    def _launch(self, work: GPUKernel | LibraryCall, word: int | None) -> Launch:
        assert isinstance(work, GPUKernel), "the processor has no library"
        kernel = self._kernels[work]
        for index, lies in enumerate(work.args):
            if lies is None:
                assert self._words is not None
                assert word is not None
                alignment = self.processor.alignment
                kernel.set_arg(index, self._words.part(word * alignment, alignment))
            elif lies.base.kind in (INPUT, RESULT):
                self.edge.bind(kernel, index, self._number(lies), *self._span(lies))
            else:
                kernel.set_arg(index, self._places[lies.base].memory.part(*self._span(lies)))
        sizes = (work.items,), (work.function.group,)
        return partial(self.cl.enqueue_nd_range_kernel, self.queue, kernel, *sizes)

    def _span(self, lies: TensorDescription) -> tuple[int, int]:
        """Return where the buffer that a kernel is given begins, and its size."""
        first, size = region(lies)
        start = first // self.processor.alignment * self.processor.alignment
        return start, max(first + size - start, 1)

    def _number(self, lies: TensorDescription) -> int:
        """Return the place of the caller's array that a tensor lies in."""
        owner: int = lies.base.owner
        return owner if lies.base.kind == INPUT else self.inputs + owner

    # The host's part, and errors

    def host_array(self, lies: TensorDescription, arrays: Arrays) -> np.ndarray[Any, Any]:
        """Return the elements at a place: they themselves if the host shares them, else a copy."""
        start, size = region(lies)
        if lies.base.kind in (INPUT, RESULT):
            found = self.edge.read(self._number(lies), arrays)
            return view(lies, found)
        return view(lies, self._places[lies.base].read(start, size), start)

    def write_back(self, lies: TensorDescription, value: np.ndarray[Any, Any]) -> None:
        """Write elements to a place, if `host_array` returns copies."""
        if self.processor.shares_host:
            return
        assert lies.is_contiguous, "steps write without gaps"
        if lies.base.kind == RESULT:
            self.edge.write(self._number(lies), lies.offset, bytes_of(value))
        else:
            self._places[lies.base].write(lies.offset, bytes_of(value))

    def _raise_reported(self, reports: Sequence[Report], arrays: Arrays) -> None:
        words = self._read_words()
        found = next((report for report in reports if words[report.word]), None)
        if found is not None:
            self._clear_words()
            self.raise_reported(found, arrays)

    def run_again(self, stop: int, arrays: Arrays) -> None:
        """Run the work before a place again, but for effects, and wait for it."""
        for work in self.work[:stop]:
            if isinstance(work, HostCall):
                self._finish()
                if not work.op.has_effect:
                    HostWork(self, work).run(arrays)
                continue
            assert isinstance(work, GPUKernel), "the processor has no library"
            sizes = (work.items,), (work.function.group,)
            self.cl.enqueue_nd_range_kernel(self.queue, self._kernels[work], *sizes)
        self._finish()
        self._clear_words()

    def _clear_words(self) -> None:
        assert self._words is not None
        if self._words.host is not None:
            self._words.host[:] = 0
        else:
            zeros = np.zeros(len(self.reports) * self.processor.alignment, np.uint8)
            self.cl.enqueue_copy(self.queue, self._words.buffer, zeros)

    def _read_words(self) -> list[int]:
        assert self._words is not None
        found = self._words.host
        if found is None:
            found = np.empty(len(self.reports) * self.processor.alignment, np.uint8)
            self.cl.enqueue_copy(self.queue, found, self._words.buffer)
        words: list[int] = found.view(np.int32)[:: self.processor.alignment // 4].tolist()
        return words


class _Stretch:
    """A segment, bound."""

    __slots__ = ("host", "is_last", "launches", "reports", "waits")

    def __init__(
        self, launches: list[Launch], reports: list[Report], host: HostWork | None, waits: bool
    ) -> None:
        self.launches = launches
        self.reports = reports
        self.host = host
        self.waits = waits
        self.is_last = False


class HostWork:
    """Work of the host, with the arrays that are the same in every call."""

    def __init__(self, group: OpenCLKernelGroup, call: HostCall) -> None:
        self.group = group
        self.call = call
        self._fixed = [
            group.host_array(lies, ()) if self._is_fixed(lies) else None for lies in call.args
        ]

    def _is_fixed(self, lies: TensorDescription) -> bool:
        return self.group.processor.shares_host and lies.base.kind not in (INPUT, RESULT)

    def run(self, arrays: Arrays) -> None:
        """Call the function, and write back what it wrote."""
        group, call = self.group, self.call
        values = [
            group.host_array(lies, arrays) if known is None else known
            for lies, known in zip(call.args, self._fixed, strict=True)
        ]
        with np.errstate(all="ignore"):
            call.work(*values)
        for place in call.written:
            group.write_back(call.args[place], values[place])
