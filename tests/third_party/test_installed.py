"""What users see who install packages of third parties with pip, good ones and bad ones."""

from __future__ import annotations

import json

import pytest
from installation import SOURCES, Installation

pytestmark = pytest.mark.slow

TOY = ("weft_toy",)
MIXED = ("weft_toy", "weft_broken", "weft_future")
EVERYTHING = (*MIXED, "weft_slow")

REFUSALS = {
    "crashing": (
        "Backend 'crashing' of weft-broken 1.0.0 cannot be loaded: "
        "RuntimeError: the firmware is upside down."
    ),
    "driverless": (
        "Backend 'driverless' of weft-broken 1.0.0 cannot be loaded: "
        "ModuleNotFoundError: No module named 'weft_driver_that_nobody_wrote'. "
        "To install what it needs: pip install 'weft-broken[driverless]'"
    ),
    "misnamed": (
        "Backend 'misnamed' of weft-broken 1.0.0 is not what its entry point says: "
        "weft_register_backends of 'weft_broken.misnamed' registers 'mistaken', "
        "and it must register 'misnamed'."
    ),
    "future": (
        "Backend 'future' of weft-future 1.0.0 is written for version 2.0 of weft's plugin "
        "interface and this weft has version 1.0: install a release of the plugin made for it."
    ),
}
CRASHING_PASS = REFUSALS["crashing"].replace("Backend 'crashing'", "Pass 'crashing-pass'")
CRASHING_HOOK = REFUSALS["crashing"].replace("Backend", "Hook plugin")
CLASH = (
    "Backend 'toy' is there more than once, from weft-toy 1.0.0 (weft_toy) and "
    "weft-duplicate 1.0.0 (weft_duplicate): uninstall all but one of them, or choose one by "
    "WEFT_PREFER=backends:toy=weft-toy"
)

DOUBLE = """
import json, sys, weft
x = weft.placeholder((3,))

def double(backend):
    return weft.make_transformer(backend).computation(x * 2, x)([1, 2, 3]).tolist()

def modules():
    return [name for name in sys.modules if name.startswith("weft_")]
"""


def cells(table: str) -> list[list[str]]:
    """Return the cells of every line of the tables that the command prints."""
    lines = [line for line in table.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


# The package that works


def test_the_backend_is_one_short_file() -> None:
    lines = (SOURCES / "weft_toy" / "weft_toy" / "backend.py").read_text().splitlines()
    assert len(lines) < 300


def test_the_backend_computes(installation: Installation) -> None:
    printed = installation.output("-c", DOUBLE + "print(double('toy'))", packages=TOY)
    assert printed == "[2.0, 4.0, 6.0]\n"


@pytest.mark.long
def test_the_package_passes_its_own_tests(installation: Installation) -> None:
    """They are about the op, its gradient, its kernel for NumPy, and the pass."""
    printed = kit(installation, installation.source("weft_toy") / "tests", "--weft-backend=numpy")
    assert " passed" in printed


@pytest.mark.long
def test_the_backend_passes_the_quick_part_of_the_kit(installation: Installation) -> None:
    arguments = "--pyargs", "weft.testing", "--weft-quick", "-k", "toy"
    assert " passed" in kit(installation, *arguments)


@pytest.mark.long
def test_the_backend_passes_the_kit(installation: Installation) -> None:
    assert " passed" in kit(installation, "--pyargs", "weft.testing", "-k", "toy")


def kit(installation: Installation, *arguments: object) -> str:
    """Return what pytest prints as it tests the backend; nothing may fail."""
    return installation.output(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "--weft-backend=toy"),
        *map(str, arguments),
        packages=TOY,
    )


def test_its_op_is_found_when_a_text_names_it(installation: Installation) -> None:
    code = """
import sys, weft
text = '''
v0: float32() = Parameter('x')
v1: float32() = PolynomialOp(v0, coefficients=(1.0, 0.0, 3.0))
result(v1)
'''
assert "weft_toy" not in sys.modules
for backend in ("toy", "numpy"):
    computation = weft.make_transformer(backend).computation(weft.parse(text))
    print(*computation(2), "horner(" in computation.source)
"""
    assert installation.output("-c", code, packages=TOY) == "13.0 False\n13.0 True\n"


PIPELINE = """
import weft
x = weft.placeholder((3,))
y = weft.cast(weft.cast(x, "float64"), "float32") * 2
transformer = weft.make_transformer("numpy")
print(*[transformer.computation(y, x).source.count("copyto(") for _ in range(2)])
"""


@pytest.mark.long
def test_its_pass_takes_part_as_long_as_it_is_enabled(installation: Installation) -> None:
    assert installation.output("-c", PIPELINE, packages=TOY) == "0 0\n"
    assert installation.output("-c", PIPELINE, packages=()) == "2 2\n"
    off = installation.output("-c", PIPELINE, packages=TOY, WEFT_DISABLE_PLUGINS="hooks:toy")
    assert off == "2 2\n"


# Packages that do not work, and those beside them


@pytest.mark.long
def test_packages_are_listed_and_none_is_imported(installation: Installation) -> None:
    code = DOUBLE + "print(json.dumps([weft.transformer_choices(), modules()]))"
    names, modules = json.loads(installation.output("-c", code, packages=EVERYTHING))
    assert names == sorted(["cupy", "native", "numpy", "opencl", "slow", "toy", *REFUSALS])
    assert modules == []
    table = cells(installation.output("-m", "weft", "plugins", "--no-load", packages=EVERYTHING))
    assert ["weft.backends", "crashing", "weft-broken", "1.0.0", "installed", "-"] in table
    assert ["weft.rules", "numpy.toy", "weft-toy", "1.0.0", "installed", "-"] in table
    assert {row[4] for row in table} == {"installed"}


def test_each_bad_one_is_refused_in_a_sentence(installation: Installation) -> None:
    code = """
import json, sys, weft
from weft.errors import PluginError
found = {}
for name in sys.argv[1:]:
    try:
        weft.make_transformer(name)
    except PluginError as error:
        found[name] = [str(error), type(error.__cause__).__name__]
print(json.dumps(found))
"""
    found = json.loads(installation.output("-c", code, *REFUSALS, packages=MIXED))
    assert {name: text for name, (text, _) in found.items()} == REFUSALS
    causes = {name: cause for name, (_, cause) in found.items() if cause != "NoneType"}
    assert causes == {"crashing": "RuntimeError", "driverless": "ModuleNotFoundError"}


def test_bad_ones_do_not_disturb_the_others(installation: Installation) -> None:
    code = DOUBLE + "print(double('toy'), double('numpy'))"
    done = installation.run("-c", code, packages=MIXED)
    assert (done.returncode, done.stdout) == (0, "[2.0, 4.0, 6.0] [2.0, 4.0, 6.0]\n")
    assert done.stderr.count(f"A plugin is skipped. {CRASHING_HOOK}") == 1
    off = {"WEFT_DISABLE_PLUGINS": "hooks:crashing"}
    assert installation.output("-c", code, packages=MIXED, **off) == done.stdout


@pytest.mark.long
def test_a_slow_one_is_imported_only_for_its_own_users(installation: Installation) -> None:
    code = DOUBLE + "double('toy'); double('numpy'); print(modules())"
    others = installation.output("-c", code, packages=("weft_toy", "weft_slow"))
    assert "'weft_toy.backend'" in others
    assert "weft_slow" not in others
    code = DOUBLE + "print(double('slow')); print(modules())"
    own = installation.output("-c", code, packages=("weft_toy", "weft_slow"))
    assert own.startswith("[2.0, 4.0, 6.0]\n")
    assert "weft_slow" in own
    assert "'weft_toy.backend'" not in own


@pytest.mark.long
def test_two_that_clash_are_refused_and_both_named(installation: Installation) -> None:
    code = DOUBLE + (
        "try:\n    double('toy')\n"
        "except weft.errors.PluginError as error:\n    print(error)\n"
        "print(double('numpy'), 'weft_duplicate' in modules(), 'weft_toy.backend' in modules())\n"
    )
    packages = ("weft_toy", "weft_duplicate")
    printed = installation.output("-c", code, packages=packages)
    assert printed == f"{CLASH}\n[2.0, 4.0, 6.0] False False\n"
    table = cells(installation.output("-m", "weft", "backends", packages=packages))
    assert ["toy", "weft-toy and weft-duplicate", "no", CLASH] in table


@pytest.mark.long
def test_the_doctor_says_what_is_wrong_and_what_to_do(installation: Installation) -> None:
    done = installation.run("-m", "weft", "doctor", packages=MIXED)
    assert (done.returncode, done.stderr) == (0, "")
    table = cells(done.stdout)
    for usable in ("numpy", "toy"):
        assert [usable, "yes", "yes", "yes", "yes", "yes", "the host's processor"] in table
    for name, reason in REFUSALS.items():
        distribution = "weft-future" if name == "future" else "weft-broken"
        assert [name, "yes", "no", "no", "no", "-", reason] in table
        assert [f"weft.backends:{name}", distribution, reason] in table
    assert ["weft.passes:crashing-pass", "weft-broken", CRASHING_PASS] in table
    assert ["weft.hooks:crashing", "weft-broken", CRASHING_HOOK] in table


@pytest.mark.long
def test_the_doctor_fails_if_the_backend_in_use_is_bad(installation: Installation) -> None:
    done = installation.run("-m", "weft", "doctor", packages=MIXED, WEFT_BACKEND="future")
    assert done.returncode == 1
    assert f"The backend 'future' would be used and is not usable: {REFUSALS['future']}" in (
        done.stdout
    )


def test_plugins_are_listed_with_what_came_of_loading_them(installation: Installation) -> None:
    table = cells(installation.output("-m", "weft", "plugins", packages=MIXED))
    toy = [row for row in table if row[2] == "weft-toy"]
    assert [row[:2] for row in toy] == [
        ["weft.backends", "toy"],
        ["weft.passes", "direct-casts"],
        ["weft.ops", "toy"],
        ["weft.rules", "numpy.toy"],
        ["weft.hooks", "toy"],
    ]
    assert {row[4] for row in toy} == {"loaded"}
    for name, reason in REFUSALS.items():
        (row,) = [row for row in table if row[:2] == ["weft.backends", name]]
        assert row[4:] == ["failed", reason]


@pytest.mark.long
def test_passes_are_listed_with_what_they_do(installation: Installation) -> None:
    table = cells(installation.output("-m", "weft", "passes", packages=MIXED))
    does = "Cast a tensor directly where it was widened first, which lost nothing."
    assert ["direct-casts", "pattern", "weft-toy", does] in table
    assert ["crashing-pass", "-", "weft-broken", CRASHING_PASS] in table
