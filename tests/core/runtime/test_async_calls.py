"""Calls that a coroutine awaits: results, errors, order and cancellation, with and without threads.

The backends that are there take part, each with the same test.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import threading
import time
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest
from needs import skip_without_backend

import weft
from weft.errors import ArgumentError, CheckFailed, DTypeError, StateError
from weft.runtime import call_queue


@pytest.fixture(params=[True, False], ids=["threads", "no-threads"])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether calls run in threads, or in the event loop as in a browser."""
    monkeypatch.setattr(call_queue, "HAS_THREADS", request.param)
    return bool(request.param)


BACKENDS = ("numpy", "native", "opencl", "webgpu", "cupy")


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, 60))


def counting(transformer: weft.Transformer) -> Any:
    """Return a computation that appends a digit to a number, which shows the order of calls."""
    digit = weft.placeholder((), dtype="int32", name="digit")
    number = weft.variable((), dtype="int32", initial_value=0, name="number")
    return transformer.computation(
        weft.sequential([weft.assign(number, number * 10 + digit), number]), digit
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_in_flight_on_every_backend(backend: str, threads: bool) -> None:
    skip_without_backend(backend)

    async def main() -> None:
        x = weft.placeholder((4,), name="x")
        with weft.make_transformer(backend) as transformer:
            square = transformer.computation({"square": x * x, "sum": weft.sum(x)}, x)
            started = [square.call_async(np.full(4, k, np.float32)) for k in range(6)]
            for k, found in enumerate(await asyncio.gather(*started)):
                assert found["square"].tolist() == [k * k] * 4
                assert found["sum"] == 4 * k
            # Calls that write a state take place in the order in which they were started.
            count = counting(transformer)
            found = await asyncio.gather(*[count.call_async(k) for k in (1, 2, 3, 4, 5)])
            assert [int(each) for each in found] == [1, 12, 123, 1234, 12345]
            # An error is the future's, and the others are not concerned.
            wrong = square.call_async("text")
            right = square.call_async([1, 2, 3, 4])
            with pytest.raises((ArgumentError, DTypeError)) as caught:
                await wrong
            assert f"{os.path.basename(__file__)}" in str(caught.value)
            assert (await right)["sum"] == 10

    run(main())


def test_an_error_names_the_line_that_started_the_call(threads: bool) -> None:
    x = weft.placeholder((2,), name="x")

    async def main() -> tuple[str, int]:
        with weft.make_transformer("numpy") as transformer:
            double = transformer.computation(x * 2, x)
            here = test_an_error_names_the_line_that_started_the_call.__code__.co_filename
            future = double.call_async([1, 2], [3])  # this line
            with pytest.raises(ArgumentError) as caught:
                await future
        return here, str(caught.value)  # type: ignore[return-value]

    here, said = run(main())
    with open(here) as file:
        line = next(n for n, text in enumerate(file, 1) if text.endswith("# this line\n"))
    assert re.search(rf'File "{re.escape(here)}", line {line}\b', said), said


def test_the_loop_goes_on_while_a_call_runs() -> None:
    began, may_end = threading.Event(), threading.Event()

    class Slow:
        def __array__(self, *args: Any, **options: Any) -> Any:
            began.set()
            assert may_end.wait(30)
            return np.ones(2, np.float32)

    async def main() -> None:
        x = weft.placeholder((2,), name="x")
        with weft.make_transformer("numpy") as transformer:
            future = transformer.computation(x * 2, x).call_async(Slow())
            while not began.is_set():
                await asyncio.sleep(0.001)
            assert not future.done()
            may_end.set()
            assert (await future).tolist() == [2, 2]

    run(main())


def test_a_canceled_call_runs_only_if_it_has_begun(threads: bool) -> None:
    async def main() -> None:
        with weft.make_transformer("numpy") as transformer:
            count = counting(transformer)
            await count.call_async(1)
            with transformer.state_lock:  # no call can begin its work
                first = count.call_async(2)
                deadline = time.monotonic() + 0.05
                while threads and time.monotonic() < deadline:
                    await asyncio.sleep(0.001)
                others = [count.call_async(3), count.call_async(4)]
                others[0].cancel()
                if threads:
                    first.cancel()
            if threads:
                with pytest.raises(asyncio.CancelledError):
                    await first
            with pytest.raises(asyncio.CancelledError):
                await others[0]
            assert int(await others[1]) == 124

    run(main())


def test_calls_of_functions(threads: bool) -> None:
    @weft.jit(static_argnames="power")
    def scaled(tree: dict[str, Any], power: int) -> dict[str, Any]:
        return {"all": [tree["x"] ** power, tree["y"] * 2]}

    async def main() -> None:
        tree = {"x": np.arange(3.0), "y": np.float32(4)}
        first, second = await asyncio.gather(
            scaled.call_async(tree, power=2), scaled.call_async(tree, power=3)
        )
        assert [each.tolist() for each in first["all"]] == [[0, 1, 4], 8]
        assert [each.tolist() for each in second["all"]] == [[0, 1, 8], 8]
        alone = weft.jit(lambda x: x + 1)
        assert await alone.call_async(np.float32(1)) == 2
        with pytest.raises(ArgumentError, match="ops have no values to wait for"):
            scaled.call_async({"x": weft.placeholder((3,)), "y": 1}, power=2)
        with pytest.raises(ArgumentError, match="ops have no values to wait for"):
            weft.jit(lambda x: alone.call_async(x))(1)

    run(main())


def test_calls_with_options_and_bound_parameters(threads: bool) -> None:
    async def main() -> None:
        x, y = weft.placeholder((2,), name="x"), weft.placeholder((2,), name="y")
        with weft.make_transformer("numpy") as transformer:
            computation = transformer.computation(x - y, x, y)
            out = np.empty(2, np.float32)
            await computation.call_async(feed_dict={x: [5, 6], y: [1, 1]}, out=out)
            assert out.tolist() == [4, 5]
            bound = computation.bind({y: np.ones(2, np.float32)})
            assert (await bound.call_async([2, 3])).tolist() == [1, 2]
            check = transformer.computation(weft.assert_op(x, weft.sum(x) > 0), x)
            with pytest.raises(CheckFailed):
                await check.call_async([-1, -1])

    run(main())


def test_outside_of_a_loop_and_of_a_closed_transformer(threads: bool) -> None:
    x = weft.placeholder((2,), name="x")
    transformer = weft.make_transformer("numpy")
    double = transformer.computation(x * 2, x)
    with pytest.raises(ArgumentError, match="no event loop of asyncio is running"):
        double.call_async([1, 2])

    async def main() -> None:
        assert (await double.call_async([1, 2])).tolist() == [2, 4]
        transformer.close()
        with pytest.raises(StateError, match="has been closed"):
            await double.call_async([1, 2])

    run(main())


def test_threads_end_with_their_transformers() -> None:
    def ours() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name.startswith("weft calls")]

    async def main() -> None:
        with weft.make_transformer("numpy") as transformer:
            await counting(transformer).call_async(1)
            assert ours()
        forgotten = weft.make_transformer("numpy")
        await counting(forgotten).call_async(1)

    run(main())
    gc.collect()
    deadline = time.monotonic() + 30
    while ours() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not ours()


@pytest.mark.needs("posix")
def test_a_forked_process_starts_a_thread_of_its_own() -> None:
    with weft.make_transformer("numpy") as transformer:
        count = counting(transformer)

        async def call(digit: int) -> int:
            return int(await count.call_async(digit))

        assert run(call(1)) == 1
        child = os.fork()
        if not child:  # pragma: no cover
            os._exit(0 if run(call(2)) == 12 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert run(call(3)) == 13
