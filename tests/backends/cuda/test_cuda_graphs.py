"""Calls on a GPU that is made up: copies, CUDA graphs, errors, and what is given back."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import weft
from weft.errors import BackendError, IndexOutOfRange, StateError
from weft_c.runtime.errors import DeviceMemoryError
from weft_cupy import blas, drivers
from weft_cupy.compiler import OPTIONS
from weft_cupy.transformer import CuPyTransformer

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from conftest import Maker
    from pretended import Machine

NUMBERS = np.arange(6, dtype=np.float32)


def kinds(machine: Machine) -> list[str]:
    """What was given to the stream since the last time, without names."""
    found = [each.split()[0] for each in machine.log]
    machine.log.clear()
    return found


def counted(transformer: CuPyTransformer) -> tuple[Any, Any]:
    """A computation that takes elements at indices and counts its calls, and the count."""
    x, at = weft.placeholder((6,)), weft.placeholder((2,), "int32")
    calls = weft.variable((), initial_value=0)
    weft.assign(calls, calls + 1)
    taken = weft.take(x * 2, at) + 1
    return transformer.computation([taken, calls], x, at), calls


def test_the_first_call_launches_the_second_makes_a_graph_later_ones_replay_it(
    make: Maker, machine: Machine
) -> None:
    x, y = weft.placeholder((6,)), weft.placeholder((6,))
    computation = make().computation([weft.cumsum(x) * y, weft.sum(y)], x, y)
    transformer = computation.transformer
    transformer.initialize()
    kinds(machine)
    copies_in, copies_out = ["upload"] * 2, ["download"] * 2
    launches = ["launch"] * len(computation.program.run.work)
    expected = np.cumsum(NUMBERS) * NUMBERS[::-1]
    for number, between in enumerate((launches, ["capture", "graph"], ["graph"], ["graph"])):
        got, total = computation(NUMBERS + number, NUMBERS[::-1])
        np.testing.assert_allclose(got, expected + number * np.arange(1, 7) * NUMBERS[::-1])
        assert total == 15
        assert kinds(machine) == [*copies_in, *between, *copies_out, "wait"]


def test_writes_that_look_at_the_error_themselves_are_in_the_same_graph(
    make: Maker, machine: Machine
) -> None:
    computation, calls = counted(make())
    for number in range(3):
        kinds(machine)
        taken, count = computation(NUMBERS, [5, -6])
        assert (taken.tolist(), count) == ([11, 1], number + 1)
    results, words = ["download"] * 2, ["download", "wait"]
    assert kinds(machine) == ["upload", "upload", "graph", *results, *words]
    assert computation.transformer.get_value(calls) == 3


def test_each_segment_is_a_graph_of_its_own(make: Maker, machine: Machine) -> None:
    x, at, other = weft.placeholder((6,)), *(weft.placeholder((2,), "int32") for _ in range(2))
    calls = weft.variable((), initial_value=0)
    weft.assign(calls, calls + 1)
    taken = weft.take(x * 2, at) + weft.take(x, other)
    computation = make().computation([taken, calls], x, at, other)
    for number in range(3):
        kinds(machine)
        assert computation(NUMBERS, [5, -6], [0, 1])[1] == number + 1
    results, words = ["download"] * 2, ["download", "wait"]
    expected = ["upload"] * 3 + ["graph", *words, "graph", *results, "wait"]
    assert kinds(machine) == expected, "a state is written once none of the errors was reported"
    with pytest.raises(IndexOutOfRange, match="index 9 at"):
        computation(NUMBERS, [5, -6], [0, 9])
    assert computation.transformer.get_value(calls) == 3


def test_a_loop_replays_one_graph_and_what_it_waits_for_is_a_bool(
    make: Maker, machine: Machine
) -> None:
    x, more = weft.placeholder((6,)), weft.placeholder((6,))
    body = weft.capture([weft.cumsum(x) * 0.5], [x], "body")
    test = weft.capture([weft.less(weft.sum(more), 1000)], [more], "test")
    graph = weft.capture([weft.cumsum(more) + 1], [more], "graph")
    start = weft.placeholder((6,))
    looped = weft.loop(body, 16, start)[0]
    computation = make().computation([looped, weft.while_loop(test, graph, looped)[0]], start)
    wanted = NUMBERS
    for _ in range(16):
        wanted = np.cumsum(wanted) * 0.5
    ended = wanted
    rounds = 0
    while ended.sum() < 1000:
        ended, rounds = np.cumsum(ended) + 1, rounds + 1
    for _ in range(3):
        kinds(machine)
        for got, expected in zip(computation(NUMBERS), (wanted, ended), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5)
    log = kinds(machine)
    assert rounds > 1
    assert log.count("wait") >= rounds + 1, "the host looks at the bool after each round"
    assert log[: log.index("wait")].count("graph") >= 8, "nothing waits in a loop of known length"
    assert "launch" not in log


@pytest.mark.parametrize("calls_before", [0, 1, 2])
def test_an_index_out_of_range_leaves_states_as_they_were(make: Maker, calls_before: int) -> None:
    transformer = make()
    computation, calls = counted(transformer)
    for _ in range(calls_before):
        computation(NUMBERS, [0, 1])
    for wrong in ([0, 6], [-7, 0]):
        with pytest.raises(IndexOutOfRange, match=f"index {max(wrong, key=abs)} at"):
            computation(NUMBERS, wrong)
    taken, count = computation(NUMBERS, [5, -6])
    assert (taken.tolist(), count) == ([11, 1], calls_before + 1)
    assert transformer.get_value(calls) == calls_before + 1


def test_the_host_works_between_graphs(
    make: Maker, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    x = weft.placeholder((3,))
    computation = make().computation(weft.print_op(x * 2, "seen") + 1, x)
    for number in range(3):
        assert computation([number] * 3).tolist() == [2 * number + 1] * 3
    assert capsys.readouterr().out.count("seen") == 3
    assert kinds(machine).count("capture") == 2


def test_what_the_host_only_writes_is_not_copied_to_it(make: Maker, machine: Machine) -> None:
    x = weft.placeholder((40, 40))
    computation = make().computation(weft.inverse(x * 2) + 1, x)
    for _ in range(3):
        assert computation(np.eye(40)).tolist() == (np.eye(40) / 2 + 1).tolist()
        assert kinds(machine).count("download") == 2, "the operand of the host, and the result"


def test_states_and_constants_are_read_and_written(make: Maker) -> None:
    transformer = make()
    w = weft.variable((2, 3), initial_value=np.arange(6).reshape(2, 3))
    big = weft.constant(np.arange(5000, dtype=np.float32))
    weft.assign(w, w + 1)
    computation = transformer.computation([w, weft.sum(big)])
    assert computation()[1] == 12497500
    transformer.set_value(w, np.zeros((2, 3)))
    assert computation()[0].tolist() == [[1, 1, 1], [1, 1, 1]]
    tensor = transformer.state_tensors[w]
    tensor[0, 1:] = [7, 8]
    assert tensor[0].tolist() == [1, 7, 8]
    assert tensor.get(np.empty((2, 3), np.float32)).tolist() == [[1, 7, 8], [1, 1, 1]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("fast_math", [False, True])
def test_cublas_multiplies_within_the_graph(
    make: Maker, machine: Machine, dtype: str, fast_math: bool
) -> None:
    x, y = weft.placeholder((2, 20, 30), dtype), weft.placeholder((40, 30), dtype)
    computation = make(fast_math=fast_math).computation(weft.matmul(x + 1, y.T) * 2, x, y)
    random = np.random.default_rng(7)
    left = random.integers(-3, 4, (2, 20, 30)).astype(x.dtype)
    right = random.integers(-3, 4, (40, 30)).astype(x.dtype)
    expected = (left.astype("f8") + 1) @ right.T.astype("f8") * 2
    for _ in range(3):
        np.testing.assert_allclose(computation(left, right).astype("f8"), expected, 1e-2)
    log = kinds(machine)
    assert log.count("gemm") == 1, "once by itself, then in a graph"
    assert "capture" in log
    wanted = {"float64": 70, "float32": 77 if fast_math else 68}.get(dtype, 68)
    assert set(blas.library().computes) == {wanted}


def test_without_cublas_our_own_kernels_multiply(
    make: Maker, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blas, "library", lambda: None)
    x = weft.placeholder((20, 30))
    values = np.random.default_rng(7).normal(size=(20, 30)).astype(np.float32)
    computation = make().computation(weft.matmul(x, x.T), x)
    np.testing.assert_allclose(computation(values), values @ values.T, 1e-4, 1e-4)
    assert "gemm" not in kinds(machine)


@pytest.mark.parametrize(
    ("call", "status", "reported", "kind", "words"),
    [
        ("create", 1, None, BackendError, r"failed(.|\n)*cublasCreate_v2 returned status 1"),
        ("create", 3, None, DeviceMemoryError, r"no memory left(.|\n)*returned status 3"),
        ("workspace", 14, None, BackendError, r"cublasSetWorkspace_v2 returned status 14"),
        ("gemm", 3, None, DeviceMemoryError, r"no memory left(.|\n)*returned status 3"),
        ("gemm", 7, 700, BackendError, r"failed(.|\n)*cublasGemm\w+ returned status 7"),
        ("gemm", 13, None, BackendError, r"failed(.|\n)*cublasGemm\w+ returned status 13"),
        ("gemm", 13, 700, BackendError, "does not answer any more"),
        ("gemm", 14, 2, DeviceMemoryError, "no memory left"),
    ],
)
def test_a_failure_of_cublas_says_what_failed(
    make: Maker, machine: Machine, call: str, status: int, reported: int | None,
    kind: type[Exception], words: str,
) -> None:  # fmt: skip
    x = weft.placeholder((20, 30))
    transformer = make()
    computation = transformer.computation(weft.matmul(x, x.T), x)
    library = blas.library()
    library.statuses[call] = status
    if reported is not None:
        machine.fails["synchronize"] = machine.cuda.runtime.CUDARuntimeError(reported)
    with pytest.raises(BackendError, match=words) as caught:
        computation(np.zeros((20, 30)))
    assert type(caught.value) is kind
    assert ", starting matmul" in str(caught.value)
    assert "test_cuda_graphs.py" in str(caught.value)
    assert bool(transformer.device.lost) is ("any more" in words)
    assert len(library.handles) == (call == "gemm"), "a handle is given back where the rest fails"
    library.statuses.clear()
    machine.fails.clear()
    if not transformer.device.lost:
        np.testing.assert_array_equal(computation(np.ones((20, 30))), np.full((20, 20), 30))


def test_a_transformer_that_nobody_closed_leaves_nothing(machine: Machine) -> None:
    def use() -> None:
        transformer = weft.make_transformer("cupy")
        assert isinstance(transformer, CuPyTransformer)
        x = weft.placeholder((20, 30))
        transformer.computation(weft.matmul(x, x.T), x)(np.ones((20, 30)))
        assert blas.library().handles

    use()
    gc.collect()
    assert not blas.library().handles
    assert machine.held == 0


def test_a_program_comes_back_from_the_cache(
    make: Maker, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    x, at = weft.placeholder((20, 20)), weft.placeholder((2,), "int32")
    values = np.random.default_rng(7).normal(size=(20, 20)).astype(np.float32)
    result = weft.take(weft.matmul(weft.tanh(x), x), at, 0)
    expected = (np.tanh(values) @ values)[[1, 2]]
    for is_kept in (False, True):
        computation = make(cache=tmp_path).computation(result, x, at)
        computation.transformer.initialize()
        assert computation.program.is_restored is is_kept
        for _ in range(3):
            np.testing.assert_allclose(computation(values, [1, 2]), expected, 1e-4, 1e-5)
        with pytest.raises(IndexOutOfRange, match="index 20 "):
            computation(values, [0, 20])


@pytest.mark.parametrize(
    ("calls_before", "what"),
    [(0, "upload"), (0, "launch"), (0, "wait"), (1, "launch"), (1, "wait"), (2, "wait")],
)
def test_after_an_error_of_cuda_the_next_call_works(
    make: Maker, machine: Machine, calls_before: int, what: str
) -> None:
    """An error while a graph is made, in the second call, too; a graph itself launches nothing."""
    x = weft.placeholder((6,))
    computation = make().computation(weft.cumsum(x) + 1, x)
    for _ in range(calls_before):
        computation(NUMBERS)
    computation.transformer.initialize()
    machine.fails[what] = machine.cuda.runtime.CUDARuntimeError(1, "odd")
    with pytest.raises(BackendError, match=r"Pretended GPU failed, computing .*odd"):
        computation(NUMBERS)
    for _ in range(3):
        np.testing.assert_allclose(computation(NUMBERS), np.cumsum(NUMBERS) + 1)


@pytest.mark.parametrize("calls_before", [0, 1])
def test_an_error_at_a_launch_shows_the_kernel_and_its_lines(
    make: Maker, machine: Machine, calls_before: int
) -> None:
    x = weft.placeholder((6,))
    computation = make().computation(weft.cumsum(x), x)
    for _ in range(calls_before):
        computation(NUMBERS)
    computation.transformer.initialize()
    machine.fails["launch"] = machine.cuda.runtime.CUDARuntimeError(701, "too many resources")
    with pytest.raises(BackendError, match="too many resources") as caught:
        computation(NUMBERS)
    said = str(caught.value)
    (name,) = computation.program.run.source.functions
    assert f"starting {name}: " in said
    assert "it computes:\n  File" in said
    assert any(line.startswith(">") and f"void {name}(" in line for line in said.splitlines())


def test_a_lost_device_says_so_from_then_on(make: Maker, machine: Machine) -> None:
    x = weft.placeholder((6,))
    computation = make().computation(x + 1, x)
    computation(NUMBERS)
    machine.fails["wait"] = machine.cuda.runtime.CUDARuntimeError(700, "illegal address")
    for _ in range(2):
        with pytest.raises(BackendError, match="does not answer any more"):
            computation(NUMBERS)


def test_memory_that_is_not_there_is_a_memory_error(make: Maker, machine: Machine) -> None:
    x = weft.placeholder((1000, 100))
    result = weft.cumsum(weft.cumsum(x, 0), 1)
    values = np.ones((1000, 100))
    transformer = make()
    before, machine.size = machine.held, machine.held + 100_000
    with pytest.raises(DeviceMemoryError, match=r"no memory left, making .* for the arena"):
        transformer.computation(result, x)(values)
    gc.collect()
    assert machine.held == before
    machine.size = before + 1_000_000
    computation = transformer.computation(result, x)
    transformer.initialize()
    kept = machine.held
    with pytest.raises(DeviceMemoryError, match="for copies of the caller's arrays"):
        computation(values)
    assert machine.held == kept
    machine.size += 1_000_000
    assert computation(values)[-1, -1] == 100_000


def test_a_source_that_does_not_build_is_shown(make: Maker, machine: Machine) -> None:
    x = weft.placeholder((6,))
    transformer = make(cache=False)
    computation = transformer.computation(x + 1, x)
    machine.fails["compile"] = machine.nvrtc.NVRTCError("NVRTC_ERROR_COMPILATION")
    machine.nvrtc.log = 'kernels.cu(3): error: identifier "f23" is undefined\n'
    with pytest.raises(BackendError, match=r'NVRTC refused(.|\n)*"f23"(.|\n)*>    3 ') as caught:
        computation(NUMBERS)
    assert "test_cuda_graphs.py" in str(caught.value)
    assert transformer.computation(x + 1, x)(NUMBERS).tolist() == (NUMBERS + 1).tolist()


def test_a_closed_transformer_refuses_calls_and_tensors(make: Maker) -> None:
    transformer = make()
    computation, calls = counted(transformer)
    computation(NUMBERS, [0, 1])
    run, tensor = computation.program.run, transformer.state_tensors[calls]
    transformer.close()
    transformer.close()
    with pytest.raises(StateError, match="closed"):
        computation(NUMBERS, [0, 1])
    with pytest.raises(StateError, match="closed"):
        run(NUMBERS, np.zeros(2, "i4"), np.zeros(2, "f4"), np.zeros((), "f4"))
    with pytest.raises(StateError, match="closed"):
        tensor.get()


@pytest.mark.long
def test_two_hundred_transformers_leave_nothing(make: Maker, machine: Machine) -> None:
    x = weft.placeholder((20, 20))
    w = weft.variable((20, 20), initial_value=1)
    weft.assign(w, w + x)
    result = weft.take(weft.matmul(x, w), [1, 2], 0)
    library = blas.library()
    for _ in range(200):
        with make() as transformer:
            computation = transformer.computation([result, w], x)
            computation(np.ones((20, 20)))
            assert machine.held
        assert machine.held == 0
        assert transformer.device.live_bytes == 0
        assert not library.handles


def growing(transformer: CuPyTransformer, rows: int) -> Any:
    x = weft.placeholder((rows, 20))
    return transformer.computation(weft.cumsum(weft.cumsum(x, 0), 1), x)


def test_programs_share_one_arena_and_one_place_for_copies(make: Maker, machine: Machine) -> None:
    """Whatever the order, and for programs that have run, been captured and been replayed."""
    transformer = make()
    computations = {}
    alone = 0
    for rows in (4, 8, 16, 300, 2, 40):
        before = machine.held
        computations[rows] = growing(transformer, rows)
        for _ in range(3):
            for each, computation in computations.items():
                given = np.full((each, 20), 2, np.float32)
                np.testing.assert_array_equal(computation(given), np.cumsum(np.cumsum(given, 0), 1))
        if rows < 300:
            assert (machine.held > before) is (rows in (4, 8, 16))
        else:
            with make() as other:
                held = machine.held
                growing(other, rows)(np.ones((rows, 20)))
                alone = machine.held - held
        if alone:
            assert machine.held == alone


def test_programs_are_bound_again_only_where_memory_has_moved(
    make: Maker, machine: Machine
) -> None:
    transformer = make()
    small, given = growing(transformer, 30), np.ones((30, 20))
    for _ in range(3):
        small(given)
    large = growing(transformer, 60)
    large(np.ones((60, 20)))
    kinds(machine)
    middle = growing(transformer, 45)
    middle(np.ones((45, 20)))
    kinds(machine)
    logs = []
    for _ in range(4):
        small(given)
        logs.append([each for each in kinds(machine) if each in ("launch", "capture", "graph")])
    assert logs[0]
    assert set(logs[0]) == {"launch"}
    assert logs[1:] == [["capture", "graph"], ["graph"], ["graph"]]


def test_an_arena_that_cannot_grow_leaves_smaller_programs_working(
    make: Maker, machine: Machine
) -> None:
    transformer = make()
    small = growing(transformer, 30)
    expected = np.cumsum(np.cumsum(np.ones((30, 20)), 0), 1)
    for _ in range(3):
        np.testing.assert_array_equal(small(np.ones((30, 20))), expected)
    machine.size = machine.held + 10_000
    large = growing(transformer, 3000)
    for _ in range(2):
        with pytest.raises(DeviceMemoryError, match="for the arena of") as caught:
            large(np.ones((3000, 20)))
        said = str(caught.value)
        assert "240000 bytes: " in said
        assert "of float32 (3000, 20), " in said
        assert "test_cuda_graphs.py" in said
        for _ in range(3):
            np.testing.assert_array_equal(small(np.ones((30, 20))), expected)
    machine.size += 10_000_000
    assert large(np.ones((3000, 20)))[-1, -1] == 60_000


def test_a_constant_is_on_the_device_once(make: Maker, machine: Machine) -> None:
    transformer = make()
    value = np.random.default_rng(7).normal(size=(64, 64)).astype(np.float32)
    w = weft.constant(value)
    held = []
    for rows in (20, 19, 18):
        x = weft.placeholder((rows, 64))
        computation = transformer.computation(weft.matmul(x, w), x)
        kinds(machine)
        computation.transformer.initialize()
        assert kinds(machine).count("upload") == (rows == 20), "its value is copied once"
        given = np.ones((rows, 64), np.float32)
        np.testing.assert_allclose(computation(given), given @ value, 1e-4, 1e-4)
        held.append(machine.held)
    assert held[0] == held[1] == held[2] > value.nbytes
    with make() as other:
        x = weft.placeholder((64,))
        other.computation(w[1] + x, x)(np.ones(64))
    transformer.close()
    assert machine.held == 0


def test_machine_code_is_kept_where_programs_are(
    make: Maker, machine: Machine, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    x = weft.placeholder((6,))
    result = x * 3 + 1
    compiled = machine.nvrtc.compiled
    for cache, count in ((False, 1), (tmp_path, 1), (tmp_path, 0), (False, 1)):
        compiled.clear()
        with make(cache=cache) as transformer:
            assert transformer.computation(result, x)(NUMBERS)[1] == 4
        assert compiled == [(*OPTIONS, "-arch=sm_90")] * count


def test_programs_of_equal_source_share_a_module(make: Maker, machine: Machine) -> None:
    for _ in range(2):
        machine.nvrtc.compiled.clear()
        with make(cache=False) as transformer, make(cache=False) as other:
            for each in (transformer, other):
                x = weft.placeholder((6,))
                assert each.computation(x * 3 + 1, x)(NUMBERS)[1] == 4
        assert len(machine.nvrtc.compiled) == 1


def test_a_gpu_that_is_newer_than_nvrtc_is_given_ptx(
    make: Maker, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drivers, "architectures", lambda: (75, 80))
    x = weft.placeholder((6,))
    assert make(cache=False).computation(x + 1, x)(NUMBERS)[1] == 2
    assert machine.nvrtc.compiled[-1][-1] == "-arch=compute_80"
