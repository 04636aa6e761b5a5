"""What goes wrong on a WebGPU device is an error: no hang, and no end of the process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from needs import skip_without

import weft
from weft.errors import BackendError, CheckFailed

ONES = np.ones(4, np.float32)
BUFFERS = "max-storage-buffers-per-shader-stage"


@pytest.fixture
def webgpu() -> Iterator[Any]:
    """A transformer of this backend, whose device may be spoiled."""
    skip_without("webgpu")
    with weft.make_transformer("webgpu", cache=False) as made:
        yield made


def spoiled(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    """Change the text of shaders before the driver sees it."""
    from weft_webgpu import executor

    made = executor.module_text
    monkeypatch.setattr(executor, "module_text", lambda *args: change(made(*args)))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("let ", "lett ", r"parsing error(.|\n)*\n> +\d+ .*lett "),
        ("@workgroup_size(64", "@workgroup_size(6400", "workgroup size"),
    ],
    ids=["text", "limits"],
)
def test_a_refused_shader_shows_its_line_and_the_users(
    webgpu: Any, monkeypatch: pytest.MonkeyPatch, old: str, new: str, said: str
) -> None:
    x = weft.placeholder((4,), name="x")
    computation = webgpu.computation(weft.tanh(x), x)
    with monkeypatch.context() as patch:
        spoiled(patch, lambda text: text.replace(old, new, 1))
        with pytest.raises(BackendError, match="refuses the shader") as caught:
            computation(ONES)
    assert f'File "{__file__}"' in str(caught.value)
    caught.match(said)
    assert computation(ONES).tolist() == pytest.approx([np.tanh(1)] * 4)


def test_kernels_keep_within_the_buffers_of_the_device(
    webgpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(webgpu.device.limits, BUFFERS, 4)
    states = [weft.variable((4,), initial_value=n) for n in range(12)]
    total = states[0]
    for state in states[1:]:
        total = total * 2 + state
    expected = sum(n * 2 ** (11 - n) for n in range(12))
    assert webgpu.computation(total)().tolist() == [expected] * 4


def test_a_kernel_with_too_many_buffers_is_refused_with_its_lines(
    webgpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = weft.variable((4,), initial_value=1)
    x = weft.placeholder((4,), name="x")
    computation = webgpu.computation(state * x + 1, x)
    _ = webgpu.target
    monkeypatch.setitem(webgpu.device.limits, BUFFERS, 2)
    with pytest.raises(BackendError, match=r"binds 2 buffers .* has 3") as caught:
        computation(ONES)
    assert f'File "{__file__}"' in str(caught.value)


def test_memory_that_the_device_lacks(webgpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = webgpu.device
    x = weft.placeholder((4,), name="x")
    computation = webgpu.computation(x + 1, x)

    def refuse(**options: Any) -> Any:
        raise device.api.GPUOutOfMemoryError("no memory left")

    with monkeypatch.context() as patch:
        patch.setattr(device.handle, "create_buffer", refuse)
        with pytest.raises(MemoryError, match=r"has no memory left.*pass memory_limit="):
            computation(ONES)
    assert computation(ONES).tolist() == [2] * 4


def test_a_device_lost_between_a_launch_and_its_results(
    webgpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wgpu.backends.wgpu_native import lib

    from weft_webgpu.executor import WebGPUSegment

    x = weft.placeholder((4,), name="x")
    computation = webgpu.computation(x + 1, x)
    computation(ONES)
    launch = WebGPUSegment.launch

    def launched(self: Any) -> None:
        launch(self)
        lib.wgpuDeviceDestroy(webgpu.device.handle._internal)

    with monkeypatch.context() as patch:
        patch.setattr(WebGPUSegment, "launch", launched)
        with pytest.raises(BackendError, match="does not answer any more"):
            computation(ONES)
    with pytest.raises(BackendError, match="make another transformer"):
        computation(ONES)
    with weft.make_transformer("webgpu", cache=False) as other:
        assert other.computation(x + 1, x)(ONES).tolist() == [2] * 4


def test_threads_take_turns(webgpu: Any) -> None:
    x = weft.placeholder((4,), name="x")
    computation = webgpu.computation(x * 2 + 1, x)

    def call(number: int) -> bool:
        return bool((computation(np.full(4, number, np.float32)) == 2 * number + 1).all())

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(call, range(60)))


def test_nan_comes_through_and_is_found(webgpu: Any) -> None:
    x = weft.placeholder((4,), name="x")
    values = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    is_nan, same, log = webgpu.computation([weft.isnan(x), x * 1, weft.log(x)], x)(values)
    assert is_nan.tolist() == [True, False, False, False]
    np.testing.assert_array_equal(same, values)
    np.testing.assert_array_equal(log, np.array([np.nan, np.inf, np.nan, 0], np.float32))
    webgpu.checks_finite = True
    with pytest.raises(CheckFailed, match=r"LogOp_\d+ makes NaN of finite operands"):
        webgpu.computation(weft.log(x - 2), x)(ONES)


# In processes of their own

BEGIN = """
import asyncio, os, sys, threading
import numpy as np
import weft

transformer = weft.make_transformer("webgpu", cache=False)
x = weft.placeholder((256, 256), name="x")
computation = transformer.computation(x @ x @ x @ x, x)
ones = np.ones((256, 256), np.float32)
computation(ones)
"""

PROGRAMS = {
    "a thread in a call": """
threading.Thread(target=lambda: [computation(ones) for _ in range(20)], daemon=DAEMON).start()
""",
    "an awaited call": """
async def main():
    computation.call_async(ones)
asyncio.run(main())
""",
    "a forked child": """
child = os.fork()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    computation(ones)
else:
    try:
        computation(ones)
    except weft.errors.BackendError as error:
        assert "forked" in str(error)
        transformer.close()
    else:
        sys.exit(1)
""",
    "too little memory": """
import resource
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20),) * 2)
states = [weft.variable((1 << 24,), initial_value=1) for _ in range(12)]
try:
    transformer.computation([weft.sum(state) for state in states])()
except MemoryError as error:
    assert "close transformers that are not needed" in str(error)
else:
    sys.exit(1)
computation(ones)
""",
}


@pytest.mark.long
@pytest.mark.needs("webgpu", "linux")
@pytest.mark.parametrize("case", [*PROGRAMS, "a daemon in a call"])
def test_the_process_goes_on_and_ends(case: str) -> None:
    program = PROGRAMS.get(case, PROGRAMS["a thread in a call"])
    text = BEGIN + program.replace("DAEMON", str(case not in PROGRAMS)) + "print('end')"
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("end\n")
