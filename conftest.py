"""For all tests: what they compile stays out of the user's cache, the longest come first.

None fails because the machine is busy, and each draws the same random numbers in any order.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from weakref import WeakValueDictionary

import pytest
from hypothesis import HealthCheck, settings

# Where the kit of a clone is run from another folder, pytest reads this file, but neither the
# settings in pyproject.toml, which have the folder of these two in the path, nor more options.
_IS_CONFIGURED = str(Path(__file__).parent / "tests") in sys.path
pytest_plugins = ["tiers", "needs"] if _IS_CONFIGURED else []


def _is_old_pocl() -> bool:
    """Whether the system's PoCL is older than 7."""
    texts = [path.read_bytes() for path in Path("/usr/lib").glob("*/libpocl.so.2")]
    found = [re.search(rb"OpenCL \d\.\d PoCL (\d+)", text) for text in texts]
    return any(version is not None and int(version[1]) < 7 for version in found)


# By default, PoCL 7.1 reads local memory after a barrier where a kernel reads it before; with this
# method PoCL 6.0 makes loops without an end of some kernels where there is AVX-512. No kernel of
# weft for a processor has barriers, but tests run those for GPUs there.
if not _is_old_pocl():
    os.environ.setdefault("POCL_WORK_GROUP_METHOD", "cbs")

# The same examples every time; `--hypothesis-profile=explore` draws others.
settings.register_profile(
    "weft", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("weft"), derandomize=False)
settings.load_profile("weft")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(weft_cache_folder: str) -> None:
    """Have a folder for this run."""


@pytest.fixture(autouse=True)
def _own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the same random numbers in a test whichever tests ran before it.

    The streams are others than those of ops that modules make when they are imported.
    """
    from weft.ops.random import philox

    monkeypatch.setattr(philox, "_streams", count(2**31 + 2**24))


@pytest.fixture
def fresh_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give ops the names that they ask for, also those of ops that other tests left."""
    from weft.ir import op

    monkeypatch.setattr(op, "_named", WeakValueDictionary())


LONGEST = (
    "test_the_backend_passes_the_kit",
    "test_compiled_program_gives_what_the_reference_gives[opencl]",
    "test_rows_in_a_rarer_dtype[opencl-float16-",
    "test_rows_in_a_rarer_dtype[opencl-bfloat16-",
)
"""How their names begin. Each takes half a minute or more; at the end, one of them would keep
pytest-xdist's workers waiting."""


WORKERS = 4
"""At least so many processes share all tests, for PoCL keeps each kernel that ran in memory: for
one process they have more than Linux lets it map (weft_opencl/mappings.py)."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Have a process for each core, but not too few; the lower tiers have fewer kernels."""
    cores = os.cpu_count() or 1
    return max(WORKERS, cores) if config.getoption("--tier") == "all" else max(2, cores)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector, which would walk all modules and tests again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first and the kit next, whose batches are then not torn apart."""

    def place(item: pytest.Item) -> int:
        if item.name.startswith(LONGEST):
            return 0
        is_of_kit = item.nodeid.startswith("core/weft/testing/")
        return 1 if is_of_kit else 2

    items.sort(key=place)
