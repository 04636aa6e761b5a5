"""Which device is taken, and what is said of those that are not."""

from __future__ import annotations

import os
import site
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from machines import ACCELERATOR, CPU, GPU, Machine, fake_device

import weft
from weft.errors import ArgumentError, BackendError
from weft_opencl import drivers, probe
from weft_opencl import transformer as transformer_module
from weft_opencl.device import Device
from weft_opencl.devices import best, ranked, summary
from weft_opencl.host_io import CopiedHostIO, MappedHostIO, SharedHostIO
from weft_opencl.transformer import OpenCLTransformer
from weft_opencl.verdicts import Verdict

pytestmark = pytest.mark.slow

POCL, INTEL = "Portable Computing Language", "Intel(R) OpenCL"


def everything() -> dict[str, list[Any]]:
    return {
        POCL: [fake_device("pthread-znver5", CPU)],
        "Other CPU": [fake_device("Some Processor", CPU)],
        INTEL: [fake_device("Xeon", CPU)],
        "Cards": [
            fake_device("Chip inside", GPU, max_compute_units=99),
            fake_device("Small card", GPU, host_unified_memory=False),
            fake_device("Large card", GPU, host_unified_memory=False, max_compute_units=64),
            fake_device("Board", ACCELERATOR),
        ],
    }


def name_of(wanted: int | str | None) -> str:
    return best(wanted)[0].device_name


def test_the_best_device_comes_first(machine: Machine) -> None:
    machine(everything())
    assert [each.device_name for each in ranked(drivers.candidates())] == [
        "Large card", "Small card", "Chip inside", "Board", "Xeon", "Some Processor",
        "pthread-znver5",
    ]  # fmt: skip
    assert name_of(None) == "Large card"


def test_the_next_one_is_taken_where_the_best_does_not_work(machine: Machine) -> None:
    machine(everything(), dict.fromkeys(["Large card", "Small card", "Chip inside"], "it hangs"))
    assert name_of(None) == "Board"


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (0, "pthread-znver5"),
        ("2", "Xeon"),
        ("small CARD", "Small card"),
        ("portable", "pthread-znver5"),
        ("Card", "Large card"),  # the better one of two
        ("3:0", "Chip inside"),
        ("Cards:Small", "Small card"),
        ("intel:0", "Xeon"),
        (" 1:proc ", "Some Processor"),
    ],
)
def test_a_device_is_named_by_number_name_or_platform(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, wanted: int | str, name: str
) -> None:
    machine(everything())
    assert name_of(wanted) == name
    monkeypatch.setenv("WEFT_OPENCL_DEVICE", str(wanted))
    assert name_of(None) == name
    assert name_of("Board") == "Board", "an argument wins over the environment"


@pytest.mark.parametrize(
    "wanted", ["7", "radeon", "9:0", "Cards:4", "Cards:pthread", "²", "²:0", "Cards:²"]
)
def test_a_name_that_no_device_has_is_refused_with_a_list(machine: Machine, wanted: str) -> None:
    machine(everything())
    with pytest.raises(ArgumentError, match="not one of the OpenCL devices") as caught:
        best(wanted)
    assert "4: Small card (Cards)" in str(caught.value)
    assert repr(wanted) in str(caught.value)


def test_the_message_names_the_variable_that_is_wrong(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(everything())
    monkeypatch.setenv("WEFT_OPENCL_DEVICE", "radeon")
    with pytest.raises(ArgumentError, match="WEFT_OPENCL_DEVICE='radeon'"):
        best(None)


@pytest.mark.parametrize("wanted", [1.5, True, ["0"]])
def test_what_is_no_name_is_refused(machine: Machine, wanted: Any) -> None:
    machine(everything())
    with pytest.raises(ArgumentError, match="a number or a name"):
        best(wanted)


def test_a_named_device_that_does_not_work_is_an_error(machine: Machine) -> None:
    machine(everything(), {"Xeon": "its driver ended the process"})
    with pytest.raises(BackendError, match="its driver ended the process") as caught:
        best("Xeon")
    assert "2: Xeon (Intel(R) OpenCL)" in str(caught.value)


def test_where_no_device_works_all_are_listed(machine: Machine) -> None:
    names = [each.name for devices in everything().values() for each in devices]
    machine(everything(), {name: f"{name} is broken" for name in names})
    with pytest.raises(BackendError) as caught:
        best(None)
    for name in names:
        assert f"{name} is broken" in str(caught.value)
    device, reason = summary()
    assert device is None
    assert "Xeon is broken" in reason


def test_the_summary_names_the_best_and_says_why_others_are_not_usable(machine: Machine) -> None:
    machine(everything(), {"pthread-znver5": "LLVM does not know the processor"})
    device, _ = summary()
    assert device is not None
    assert device.startswith("Large card (Cards); 0: pthread-znver5")
    assert "LLVM does not know the processor" in device


def in_a_process(code: str, **variables: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, **variables}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


CHOOSE = """
import weft
from weft.errors import BackendError
try:
    weft.make_transformer("opencl")
except BackendError as error:
    print(error.problem)
from weft import plugins
print(plugins.backend_status("opencl").device.reason)
"""


def test_without_pyopencl_the_error_says_what_to_install() -> None:
    found = in_a_process("import sys; sys.modules['pyopencl'] = None\n" + CHOOSE)
    assert found.count("pip install 'weftc[opencl]'") == 2


def test_without_a_loader_of_drivers_the_error_says_so(tmp_path: Path) -> None:
    (tmp_path / "pyopencl.py").write_text("raise ImportError('libOpenCL.so.1: not found')\n")
    found = in_a_process(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + CHOOSE)
    assert found.count("libOpenCL.so.1: not found") == 2
    assert "ocl-icd-libopencl1" in found


def test_without_a_driver_the_error_says_what_to_install(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    hidden = (
        "import pyopencl, os; os.environ['PYOPENCL_HOME'] = '/nowhere'\n"
        "import weft_opencl.drivers as drivers; drivers.intel_library = lambda: None\n"
    )
    found = in_a_process(hidden + CHOOSE, OCL_ICD_VENDORS=str(tmp_path))
    assert found.count("no OpenCL driver is installed: for a CPU: apt install") == 2


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_driver_that_does_not_load_is_named(tmp_path: Path, is_folder: bool) -> None:
    pytest.importorskip("pyopencl")
    entry = tmp_path / "card.icd"
    entry.write_text("/nowhere/libcard.so\n")
    hidden = "import weft_opencl.drivers as drivers; drivers.intel_library = lambda: None\n"
    vendors = str(tmp_path if is_folder else entry)
    found = in_a_process(hidden + CHOOSE, OCL_ICD_VENDORS=vendors)
    assert found.count(f"no OpenCL driver can be loaded:\n  {entry}: /nowhere/libcard.so") == 2
    assert "apt install" in found


def test_naming_the_backend_or_asking_for_its_name_imports_no_driver() -> None:
    code = (
        "import weft, sys\nfrom weft import plugins\nprint(weft.transformer_choices())\n"
        "plugins.load('weft.backends', 'opencl')\nassert 'pyopencl' not in sys.modules\n"
    )
    assert "opencl" in in_a_process(code)


def test_intels_runtime_from_a_package_is_added_to_the_drivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "lib" / "libintelocl.so"
    library.parent.mkdir()
    library.write_bytes(b"")
    vendors = tmp_path / "vendors"
    vendors.mkdir()
    (vendors / "card.icd").write_text("libcard.so\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("OCL_ICD_VENDORS", str(vendors))
    with drivers.intel_runtime_among_drivers():
        seen = Path(os.environ["OCL_ICD_VENDORS"])
        listed = {each.name: each.read_text() for each in seen.iterdir()}
    assert listed == {"card.icd": "libcard.so\n", "weft_intel_cpu.icd": f"{library}\n"}
    assert os.environ["OCL_ICD_VENDORS"] == str(vendors)
    assert not seen.exists()
    assert "pip install intel-cmplr-lib-rt" in drivers.trouble_with_intel(())


def test_intels_runtime_is_not_added_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "lib" / "libintelocl.so"
    library.parent.mkdir()
    library.write_bytes(b"")
    (tmp_path / "intel.icd").write_text(str(library))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    for vendors in (tmp_path, tmp_path / "intel.icd"):
        monkeypatch.setenv("OCL_ICD_VENDORS", str(vendors))
        with drivers.intel_runtime_among_drivers():
            assert os.environ["OCL_ICD_VENDORS"] == str(vendors)
    for name in ("prefix", "base_prefix"):
        monkeypatch.setattr(sys, name, str(tmp_path / "elsewhere"))
    monkeypatch.setattr(site, "getuserbase", lambda: str(tmp_path / "elsewhere"))
    assert drivers.trouble_with_intel(()) == ""


@pytest.mark.needs("posix")
@pytest.mark.usefixtures("device")
def test_a_forked_process_is_told_that_drivers_do_not_live_through_it() -> None:
    code = """
import os, warnings, weft
warnings.simplefilter("ignore")
from weft.errors import BackendError
x = weft.placeholder((3,))
transformer = weft.make_transformer("opencl")
double = transformer.computation(x * 2, x)
double([1, 2, 3])
child = os.fork()
if not child:
    said = 0
    for work in (lambda: double([1, 2, 3]), lambda: weft.make_transformer("opencl")):
        try:
            work()
        except BackendError as error:
            said += "forked" in str(error)
    os._exit(said)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), double([1, 2, 3]).tolist())
"""
    assert in_a_process(code).split("\n")[0] == "2 [2.0, 4.0, 6.0]"


def test_an_option_that_there_is_not_is_refused(device: None) -> None:
    with pytest.raises(ArgumentError, match="Did you mean 'device'"):
        weft.make_transformer("opencl", devise=0)


@pytest.mark.parametrize(
    ("kind", "width", "nbytes"),
    [(CPU, 16, 0), (GPU, 1, 16), (ACCELERATOR, 4, 16), (ACCELERATOR, 1, 0)],
)
def test_all_but_processors_may_move_sixteen_bytes_at_once(
    transformer: OpenCLTransformer, monkeypatch: pytest.MonkeyPatch, kind: int, width: int,
    nbytes: int,
) -> None:  # fmt: skip
    device = transformer.device
    monkeypatch.setattr(device, "is_cpu", kind == CPU)
    handle = SimpleNamespace(type=kind, preferred_vector_width_float=width)
    monkeypatch.setattr(device, "handle", handle)
    assert device.access_bytes == nbytes


def test_signed_bytes_are_compared_eight_at_a_time_on_nvidia(
    transformer: OpenCLTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = weft.placeholder((64,), "int8")
    graph = weft.capture([weft.greater(x + 9, 0)], [x])
    for is_nvidia, count in ((False, 16), (True, 8)):
        device = Device(transformer.device.cl, transformer.device.handle, Verdict(""))
        monkeypatch.setitem(vars(device), "is_nvidia", is_nvidia)
        facts = {"is_serial": False, "access_bytes": 16, "shares_host": False}
        with weft.make_transformer("opencl", cache=False) as made:
            made.processor = replace(device.processor, **facts)
            assert f"i8 of[{count}];" in made.computation(graph).program.source


@pytest.mark.parametrize(
    ("extensions", "has"),
    [("", False), ("cl_khr_fp64 cl_khr_int64_base_atomics", True), ("cl_khr_int64", False)],
)
def test_the_device_says_whether_it_has_atomics_of_64_bits(
    transformer: OpenCLTransformer, extensions: str, has: bool
) -> None:
    device = transformer.device

    class Handle:
        def __init__(self) -> None:
            self.extensions = extensions

        def __getattr__(self, name: str) -> Any:
            return getattr(device.handle, name)

    made = Device(device.cl, device.handle, device.verdict)
    made.handle = Handle()
    assert made.processor.has_int64_atomics is has


@pytest.mark.parametrize(("most", "group"), [(1, 1), (192, 128), (256, 256), (1000, 256)])
def test_groups_are_powers_of_two(
    transformer: OpenCLTransformer, monkeypatch: pytest.MonkeyPatch, most: int, group: int
) -> None:
    device = transformer.device
    monkeypatch.setattr(device, "handle", SimpleNamespace(max_work_group_size=most))
    assert device.group == group


@pytest.mark.parametrize(
    ("kind", "has_host_memory", "coherent", "host_io"),
    [
        (CPU, True, True, SharedHostIO),
        (CPU, True, False, MappedHostIO),
        (CPU, False, True, CopiedHostIO),
        (GPU, True, True, MappedHostIO),
        (GPU, True, False, MappedHostIO),
        (GPU, False, True, CopiedHostIO),
        (ACCELERATOR, True, True, SharedHostIO),
        (ACCELERATOR, False, False, CopiedHostIO),
    ],
)
@pytest.mark.usefixtures("device")
def test_how_the_hosts_memory_is_used_is_a_fact_of_the_device(
    kind: int, has_host_memory: bool, coherent: bool, host_io: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Device, "is_cpu", kind == CPU)
    monkeypatch.setattr(Device, "access_bytes", 16 if kind == GPU else 0)
    monkeypatch.setattr(Device, "has_host_memory", has_host_memory)
    made = Device(drivers.opencl(), best(None)[0].handle, Verdict("", coherent))
    monkeypatch.setattr(transformer_module, "choose", lambda wanted: made)
    x = weft.placeholder((100,))
    with weft.make_transformer("opencl") as transformer:
        computation = transformer.computation(x * 2, x)
        assert computation(np.ones(100)).tolist() == [2] * 100
        assert type(computation.program.code.host_io) is host_io


@pytest.mark.parametrize("warp", [0, 16, 32])
@pytest.mark.usefixtures("device")
def test_the_size_of_sub_groups_that_was_found_is_in_the_dialect(warp: int) -> None:
    made = Device(drivers.opencl(), best(None)[0].handle, Verdict("", warp=warp))
    assert made.processor.dialect.warp == warp


def test_sub_groups_are_used_where_the_driver_offers_what_that_takes(
    transformer: OpenCLTransformer,
) -> None:
    device = transformer.device
    offered = probe.SHUFFLING.issubset(device.handle.extensions.split())
    assert bool(device.verdict.warp) is offered


@pytest.mark.parametrize(
    ("allowed", "set_by_user", "seen"),
    [
        ({0, 1, 2, 3}, None, "1"),
        ({0, 1, 2, 3}, "0", "0"),
        ({2, 3}, None, None),
        ({0, 1, 2, 4}, None, None),
    ],
    ids=["all cores", "the user's", "some cores", "others"],
)
def test_threads_of_pocl_have_a_core_each_where_all_are_allowed(
    allowed: set[int], set_by_user: str | None, seen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: allowed, raising=False)
    monkeypatch.delenv("POCL_AFFINITY", raising=False)
    if set_by_user is not None:
        monkeypatch.setenv("POCL_AFFINITY", set_by_user)
    with drivers.threads_on_cores():
        assert os.environ.get("POCL_AFFINITY") == seen
    assert os.environ.get("POCL_AFFINITY") == set_by_user


@pytest.mark.usefixtures("device")
def test_a_home_that_cannot_be_written_to_takes_no_device_away(tmp_path: Path) -> None:
    home, folders = tmp_path / "home", tmp_path / "temporary"
    home.write_text("a file, below which even root can make nothing")
    folders.mkdir()
    code = """
import os, weft
x = weft.placeholder((3,))
with weft.make_transformer("opencl") as transformer:
    print(transformer.computation(x * 2, x)([1, 2, 3]).tolist())
assert "XDG_CACHE_HOME" not in os.environ
"""
    variables = {name: str(folders) for name in ("TMPDIR", "TEMP", "TMP")}
    environment = {**os.environ, **variables, "HOME": str(home), "WEFT_CACHE": "0"}
    for name in ("XDG_CACHE_HOME", "POCL_CACHE_DIR"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split("\n")[-2] == "[2.0, 4.0, 6.0]", done.stderr
    assert not list(folders.iterdir())


@pytest.mark.usefixtures("device")
def test_a_folder_that_pocl_cannot_write_to_is_named(tmp_path: Path) -> None:
    if best(None)[0].platform_name != POCL:
        pytest.skip("the device is not one of PoCL's")
    file = tmp_path / "file"
    file.write_text("")
    found = in_a_process(CHOOSE, POCL_CACHE_DIR=str(file / "kernels"))
    said = f"PoCL cannot write to {file / 'kernels'}: set POCL_CACHE_DIR to another folder"
    assert found.count(said) == 2
