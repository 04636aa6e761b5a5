"""CUDAKernelGroup: the executor of a program; each stretch of launches becomes a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.description import TensorDescription
from weft.errors import BackendError, StateError
from weft.kernels.c import blas
from weft.kernels.c.function import GPUKernel, HostCall, LibraryCall, region
from weft.kernels.c.group import Arrays, GPUKernelGroup, Report, Segment
from weft.kernels.c.host import bytes_of, view
from weft.plan import INPUT, RESULT
from weft.program import Program
from weft_cupy.device import Memory
from weft_cupy.edge import Edge
from weft_cupy.memory import CuPyStorage

if TYPE_CHECKING:
    from weft_cupy.transformer import CuPyTransformer

Launch = Callable[[], Any]
WORD = 4
"""The bytes of an error word."""


class CUDAKernelGroup(GPUKernelGroup):
    """The executor of a program on a GPU. Calls come one at a time."""

    def __init__(self, transformer: CuPyTransformer, program: Program) -> None:
        super().__init__(transformer.processor)
        self.transformer = transformer
        self.device = transformer.device
        self.queue = transformer.queue
        self.program = program
        self.inputs = len(program.captured.inputs)
        self.edge: Edge | None = None
        self._places: Mapping[Any, CuPyStorage] = {}
        self._words: Memory | None = None
        self._module: Any = None
        self._stretches: list[Stretch] = []
        self._is_bound = self._is_closed = False

    def build(self) -> None:
        """Build the program, once all kernels are there; raises BackendError if that fails."""
        self.launch_small()
        self.program.source = text = self.source.text
        self.program.code = self
        if self.source.functions:
            self._module = self.device.build(text, self.program.name)

    def __call__(self, *arrays: np.ndarray[Any, Any]) -> None:
        """Compute: takes the input arrays, then the arrays to write results to."""
        if self.device.lost:
            raise BackendError(self.device.lost)
        if self._is_closed:
            raise StateError(f"{self.program.name}: its transformer was closed: make another one")
        try:
            with self.device.handle, self.queue.stream:
                self._run(arrays)
        except self.device.errors as error:
            self._abandon()
            raise self.device.failed(error, f"computing {self.program.name}") from error
        except BaseException:
            self._abandon()
            raise

    def _run(self, arrays: Arrays) -> None:
        if not self._is_bound:
            self._bind()
        edge, queue = self._edge, self.queue
        edge.begin(arrays)
        for stretch in self._stretches:
            stretch.run(queue.stream)
            if stretch.is_last:
                edge.end(arrays)
            if stretch.reports:
                self._raise_reported(stretch.reports, arrays)
            elif stretch.is_last:
                queue.wait()
            if stretch.host is not None:
                self._run_on_host(stretch.host, arrays)

    def _abandon(self) -> None:
        """Wait for what runs: it may use the caller's memory."""
        with suppress(*self.device.errors), self.device.handle:
            self.queue.wait()

    def close(self) -> None:
        """Give everything back."""
        self._is_closed, self._is_bound = True, False
        self._stretches, self._places, self._module = [], {}, None
        for held in (self._words, self.edge):
            if held is not None:
                held.release()

    # Binding

    def _bind(self) -> None:
        """Find the address of every argument, all of which stay where they are."""
        self.edge = Edge(self.device, self.queue, self.program.captured)
        self._places = {
            buffer: storage
            for buffer, storage in self.program.storages.items()
            if isinstance(storage, CuPyStorage)
        }
        if self.reports:
            self._words = self.device.memory(len(self.reports) * WORD, "error words")
            self._clear_words()
        self._stretches = [self._stretch(segment) for segment in self.segments]
        self._stretches[-1].is_last = True
        self._is_bound = True

    @property
    def _edge(self) -> Edge:
        assert self.edge is not None, "the group is bound"
        return self.edge

    def _stretch(self, segment: Segment) -> Stretch:
        launches = [self._launch(work, word) for work, word in segment.kernels]
        return Stretch(launches, segment.reports, segment.host)

    def _launch(self, work: GPUKernel | LibraryCall, word: int | None) -> Launch:
        if isinstance(work, LibraryCall):
            return self._product(work)
        kernel = self._module.get_function(work.function.name)
        args = tuple(
            self._word(word) if lies is None else self._address(lies, region(lies)[0])
            for lies in work.args
        )
        group = work.function.group
        return partial(kernel, (work.items // group,), (group,), args)

    def _product(self, work: LibraryCall) -> Launch:
        found = blas.gemm(*work.args)
        assert found is not None
        assert work.name == "matmul"
        dtype = work.args[0].dtype
        addresses = (self._base(lies) + lies.offset for lies in work.args)
        return self.transformer.blas.product(found, dtype, *addresses)

    def _word(self, word: int | None) -> int:
        assert self._words is not None
        assert word is not None
        return self._words.address + word * WORD

    def _address(self, lies: TensorDescription, first: int) -> int:
        """Return the address of a byte of a buffer, rounded down as kernels expect it."""
        alignment = self.processor.alignment
        return self._base(lies) + first // alignment * alignment

    def _base(self, lies: TensorDescription) -> int:
        """Return where the buffer begins that a tensor lies in."""
        if lies.base.kind in (INPUT, RESULT):
            return self._edge.addresses[self._number(lies)]
        storage: CuPyStorage = self._places[lies.base]
        return storage.memory.address

    def _number(self, lies: TensorDescription) -> int:
        """Return the place of the caller's array that a tensor lies in."""
        owner: int = lies.base.owner
        return owner if lies.base.kind == INPUT else self.inputs + owner

    # The host's part, and errors

    def _run_on_host(self, call: HostCall, arrays: Arrays) -> None:
        values = [self.host_array(lies, arrays) for lies in call.args]
        with np.errstate(all="ignore"):
            call.work(*values)
        for place in call.written:
            self._write_back(call.args[place], values[place])

    def host_array(self, lies: TensorDescription, arrays: Arrays) -> np.ndarray[Any, Any]:
        """Return a copy of the elements at a place, once all work before has ended."""
        if lies.base.kind in (INPUT, RESULT):
            return view(lies, self._edge.read(self._number(lies), arrays))
        start, size = region(lies)
        return view(lies, self._places[lies.base].read(start, size), start)

    def _write_back(self, lies: TensorDescription, value: np.ndarray[Any, Any]) -> None:
        assert lies.is_contiguous, "steps write without gaps"
        if lies.base.kind == RESULT:
            self._edge.write(self._number(lies), lies.offset, bytes_of(value))
        else:
            self._places[lies.base].write(lies.offset, bytes_of(value))

    def _raise_reported(self, reports: Sequence[Report], arrays: Arrays) -> None:
        """Wait, and raise the error of the first launch that reported one."""
        words = self._read_words()
        found = next((report for report in reports if words[report.word]), None)
        if found is not None:
            self._clear_words()
            self.raise_reported(found, arrays)

    def run_again(self, stop: int, arrays: Arrays) -> None:
        """Run the work before a place again, but for effects, and wait for it."""
        for work in self.work[:stop]:
            if isinstance(work, HostCall):
                if not work.op.has_effect:
                    self._run_on_host(work, arrays)
            else:
                self._launch(work, 0)()
        self.queue.wait()
        if self._words is not None:
            self._clear_words()

    def _clear_words(self) -> None:
        self.queue.clear(self._word(0), len(self.reports) * WORD)

    def _read_words(self) -> list[int]:
        found = np.empty(len(self.reports), np.int32)
        self.queue.download(found, self._word(0))
        self.queue.wait()
        words: list[int] = found.tolist()
        return words


class Stretch:
    """A segment, bound: its launches run one by one at first, then as a CUDA graph.

    The first time loads their code, which cannot be done while a graph is made; the second time
    makes the graph. All addresses are fixed, so a graph serves every later call.
    """

    def __init__(
        self, launches: Sequence[Launch], reports: Sequence[Report], host: HostCall | None
    ) -> None:
        self.launches = launches
        self.reports = reports
        self.host = host
        self.is_last = False
        self._has_run = not launches
        self._graph: Any = None

    def run(self, stream: Any) -> None:
        """Give everything to a stream, which is the current one."""
        if not self._has_run:
            self._launch_each()
            self._has_run = True
        elif self.launches:
            self._graph = self._graph or self._captured(stream)
            self._graph.launch(stream)

    def _launch_each(self) -> None:
        for launch in self.launches:
            launch()

    def _captured(self, stream: Any) -> Any:
        """Return the launches as a graph, without running them."""
        stream.begin_capture()
        try:
            self._launch_each()
        except BaseException:
            with suppress(Exception):  # what was captured so far is dropped
                stream.end_capture()
            raise
        return stream.end_capture()
