"""Which GPU is taken, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from nvrtc import complaints, ptx_of

import weft
from weft import plugins
from weft.errors import ArgumentError, BackendError
from weft_c.runtime.errors import DeviceMemoryError, excerpt
from weft_cupy import blas, devices, drivers
from weft_cupy.compiler import compiled
from weft_cupy.devices import best, summary
from weft_cupy.errors import build_error, explained, lines_in

pytestmark = pytest.mark.slow

CARDS = {"NVIDIA Old": 61, "NVIDIA A100": 80, "NVIDIA H200": 90}


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


@pytest.fixture(autouse=True)
def _nothing_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_opened", {})
    monkeypatch.setattr(devices, "_after_fork", "")
    monkeypatch.setattr(blas, "library", lambda: object())
    monkeypatch.setattr(drivers, "architectures", lambda: (75, 80, 90))
    monkeypatch.delenv("WEFT_CUPY_DEVICE", raising=False)


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Have a driver with three cards."""

    def properties(number: int) -> dict[str, Any]:
        name, capability = list(CARDS.items())[number]
        return {"name": name.encode(), "major": capability // 10, "minor": capability % 10}

    runtime = SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        driverGetVersion=lambda: 13000,
        getDeviceCount=lambda: len(CARDS),
        getDeviceProperties=properties,
    )
    monkeypatch.setattr(
        drivers, "cupy", lambda: SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    )
    return runtime


@pytest.mark.parametrize(
    ("wanted", "name"),
    [(None, "NVIDIA A100"), (2, "NVIDIA H200"), ("1", "NVIDIA A100"), ("h200", "NVIDIA H200")],
)
@pytest.mark.usefixtures("cards")
def test_a_gpu_is_named_by_number_or_name(
    monkeypatch: pytest.MonkeyPatch, wanted: int | str | None, name: str
) -> None:
    assert best(wanted).name == name
    if wanted is not None:
        monkeypatch.setenv("WEFT_CUPY_DEVICE", str(wanted))
        assert best(None).name == name
        assert best("A100").name == "NVIDIA A100", "an argument wins over the environment"


@pytest.mark.usefixtures("cards")
def test_what_cannot_be_used_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match=r"(?s)device='radeon' is not one.*0: NVIDIA Old"):
        best("radeon")
    with pytest.raises(ArgumentError, match=r"(?s)device='²' is not one"):
        best("²")
    with pytest.raises(ArgumentError, match="a number or a name, not True"):
        best(True)
    with pytest.raises(BackendError, match=r"capability 6\.1, and NVRTC compiles for 7\.5"):
        best("Old")
    chosen, _ = summary()
    assert chosen is not None
    assert chosen.startswith("NVIDIA A100; 0: NVIDIA Old is not usable: it has compute")
    monkeypatch.setattr(blas, "library", lambda: None)
    assert "without cuBLAS" in str(summary()[0])


@pytest.mark.parametrize(
    ("status", "words"),
    [(100, "finds no GPU"), (35, "driver is too old"), (999, "cannot be listed: cudaError 999")],
)
def test_no_device_says_why(cards: SimpleNamespace, status: int, words: str) -> None:
    def fail() -> int:
        raise CUDARuntimeError(status)

    cards.getDeviceCount = fail
    assert summary()[0] is None
    assert words in summary()[1]
    with pytest.raises(BackendError, match=words):
        weft.make_transformer("cupy")


def test_no_driver_and_no_card_say_so(cards: SimpleNamespace) -> None:
    cards.getDeviceCount = lambda: 0
    assert "finds no GPU" in summary()[1]
    cards.driverGetVersion = lambda: 0
    assert "no NVIDIA driver is installed" in summary()[1]


def test_no_cupy_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    drivers.cupy.cache_clear()
    monkeypatch.setitem(sys.modules, "cupy", None)
    status = plugins.backend_status("cupy")
    assert status.importable
    assert not status.device
    with pytest.raises(BackendError, match="cupy") as caught:
        weft.make_transformer("cupy")
    assert "CuPy" in str(caught.value)


def test_cupy_has_what_the_backend_calls() -> None:
    """As far as that can be seen without a GPU: the imitation of CuPy must not drift away."""
    cupy = pytest.importorskip("cupy")
    cuda, runtime = cupy.cuda, cupy.cuda.runtime
    for name in ("memcpyAsync", "deviceSynchronize", "memsetAsync", "driverGetVersion",
                 "getDeviceCount", "getDeviceProperties", "memGetInfo"):  # fmt: skip
        assert callable(getattr(runtime, name))
    assert (runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost) == (1, 2)
    error = runtime.CUDARuntimeError(2)
    assert error.status == 2
    assert isinstance(explained(error, "a GPU", "working"), DeviceMemoryError)
    assert issubclass(cuda.driver.CUDADriverError, RuntimeError)
    assert issubclass(cuda.memory.OutOfMemoryError, MemoryError)
    for kind, names in {
        cuda.Stream: ("begin_capture", "end_capture", "synchronize", "__enter__", "ptr"),
        cuda.Graph: ("launch",),
        cuda.Memory: ("ptr", "size"),
        cuda.Device: ("__enter__", "__exit__"),
        cuda.Module: ("load", "get_function"),
    }.items():
        assert [name for name in names if not hasattr(kind, name)] in ([], ["ptr"])


SUBNORMALS = """\
extern "C" __global__ void f(float *x) {
    x[0] = x[0] * 0.5f + x[1] / x[2];
    x[3] = x[4] == 0 ? sqrtf(x[3]) : x[5];
}
"""


@pytest.mark.needs("nvrtc")
def test_subnormal_numbers_are_not_taken_for_zero() -> None:
    assert ".f32" in ptx_of(SUBNORMALS)
    assert ".ftz" not in ptx_of(SUBNORMALS)


@pytest.mark.parametrize(("capability", "is_ptx"), [(80, False), (90, False), (95, True)])
def test_nvrtc_compiles_by_the_bindings_of_cupy(capability: int, is_ptx: bool) -> None:
    pytest.importorskip("cupy")
    found = compiled(SUBNORMALS, "this", capability, "a GPU", None)
    assert found.startswith(b"\x7fELF") is not is_ptx
    if is_ptx:
        assert b".target sm_90" in found
        assert b".ftz" not in found
    with pytest.raises(BackendError, match=r'NVRTC refused(.|\n)*"f23"(.|\n)*>    2 '):
        compiled("// fine\nint f() { return f23; }\n", "this", capability, "a GPU", None)


@pytest.mark.needs("nvrtc")
def test_the_lines_that_nvrtc_refuses_are_shown() -> None:
    source = "// fine\n__device__ int f() { return f23; }\n"
    error = build_error(complaints(source), source, "a GPU", "this")
    assert ">    2 __device__ int f() { return f23; }" in str(error)


def test_nothing_imports_cupy_before_it_is_asked_for() -> None:
    code = (
        "import sys, weft, weft_cupy.transformer\n"
        "from weft import cli, plugins\n"
        "plugins.records(); plugins.load('weft.backends', 'cupy')\n"
        "print([name for name in sys.modules if name.split('.')[0] in {'cupy', 'cupy_backends'}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_process_that_was_forked_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(lost="")
    monkeypatch.setattr(devices, "_opened", {0: device})
    devices._give_up()
    assert "forked" in device.lost
    with pytest.raises(BackendError, match="forked"):
        best(None)


def test_an_excerpt_shows_the_lines_around_errors() -> None:
    source = "\n".join(f"line {number}" for number in range(1, 30))
    log = "kern.cu(10): error: one\nkern.cu(12): error: two\nkern.cu(20): warning"
    shown = excerpt(source, lines_in(log))
    assert shown.splitlines()[3] == ">   10 line 10"
    assert ">   12 line 12" in shown
    assert "line 20" not in shown
    assert excerpt(source, lines_in("no line")).startswith(">    1 line 1\n")
