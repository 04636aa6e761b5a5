"""What users see of a package whose ops have rules in C: values, kept code, files, errors."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from installation import SOURCES, Installation
from needs import skip_without

pytestmark = pytest.mark.slow

SPECIAL = ("weft_special",)
TESTS = SOURCES.parent
NEEDS = {"native": "compiler", "opencl": "opencl"}


def own_tests(installation: Installation, backend: str, *arguments: str, **variables: str) -> str:
    """Return what pytest prints as it runs the package's own tests; nothing may fail."""
    return installation.output(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", f"--weft-backend={backend}"),
        *(*arguments, installation.source("weft_special") / "tests"),
        packages=SPECIAL,
        **variables,
    )


@pytest.mark.parametrize("backend", ["numpy", "native", "opencl"])
def test_the_package_passes_its_own_tests(installation: Installation, backend: str) -> None:
    """They compare values and gradients, and are about fusion, batches, lengths, files and C."""
    if backend in NEEDS:
        skip_without(NEEDS[backend])
    assert " passed" in own_tests(installation, backend)


@pytest.mark.long
def test_the_same_rules_are_right_in_cuda(installation: Installation, tmp_path: Path) -> None:
    """The kernels run on the emulator."""
    skip_without("g++")
    folders = [installation.folder("weft_special"), TESTS / "backends" / "cuda", TESTS]
    printed = own_tests(
        installation,
        "cupy",
        *("-p", "emulated_kit", "-p", "tiers", "--form=cuda", f"--kernels={tmp_path}"),
        PYTHONPATH=os.pathsep.join(map(str, folders)),
        WEFT_CACHE="0",
    )
    assert " passed" in printed
    launches = printed.partition("emulated launches: ")[2]
    assert int(launches.split()[0]) > 100


LAMBERT_OF_1 = """
import weft
from weft_special.ops import lambert
x = weft.placeholder((3,))
with weft.make_transformer("native") as transformer:
    step = transformer.computation(lambert(x), x)
    print(*step([1, 1, 1]).round(4), step.program.is_restored)
"""


@pytest.mark.needs("compiler")
def test_a_changed_expression_does_not_find_old_code(
    installation: Installation, tmp_path: Path
) -> None:
    folder = tmp_path / "site"
    shutil.copytree(installation.folder("weft_special"), folder)
    variables = {"PYTHONPATH": str(folder), "WEFT_CACHE_DIR": str(tmp_path / "cache")}

    def printed() -> str:
        return installation.output("-c", LAMBERT_OF_1, packages=(), **variables)

    assert [printed(), printed()] == ["0.5671 0.5671 0.5671 False\n", "0.5671 0.5671 0.5671 True\n"]
    rules = folder / "weft_special" / "c_rules.py"
    text = rules.read_text()
    stamp = rules.stat().st_mtime_ns
    changed = text.replace("{factor} * special", "{factor} + special")
    assert changed != text
    assert len(changed) == len(text)
    rules.write_text(changed)
    os.utime(rules, ns=(stamp, stamp))  # size and time are those of before
    shutil.rmtree(folder / "weft_special" / "__pycache__", ignore_errors=True)
    assert printed() == "1.5671 1.5671 1.5671 False\n"


SAVE = """
import sys, weft
from weft_special.ops import lambert, smooth
x = weft.placeholder((3,))
with weft.make_transformer(sys.argv[1]) as transformer:
    transformer.computation(lambert(smooth(x, 0.5)), x).save("special.weft")
"""
LOAD = """
import weft
for trust in (False, True):
    try:
        weft.load("special.weft", backend="numpy", trust=trust)
    except weft.errors.ArtifactError as error:
        print(error.problem)
"""


def test_a_file_names_the_package_that_is_missing(installation: Installation) -> None:
    installation.output("-c", SAVE, "numpy", packages=SPECIAL)
    assert installation.output("-c", LOAD, packages=()).splitlines() == 2 * [
        "special.weft has ops of packages that are not installed here, or do not register them "
        "(weft_register_ops): LambertOp of weft_special, SmoothOp of weft_special"
    ]


TWICE = """
import sys, weft, weft_c, weft_special.ops as ops
from weft.plugins import hookimpl

class Other:
    @hookimpl
    def weft_register_rules(self, backend, rules):
        rules.add(ops.LambertOp, weft_c.Expression("{0}"))

try:
    if sys.argv[1] == "plugin":
        weft.plugins.register(Other(), "other")
        weft_c.rules.find(ops.LambertOp)
    else:
        weft_c.rules.find(ops.LambertOp)
        weft_c.rules.add(ops.LambertOp, weft_c.Expression("{0}"))
except weft.errors.PluginError as error:
    print(error.problem)
"""


@pytest.mark.parametrize("who", ["plugin", "user"])
def test_a_second_rule_names_the_place_of_the_first(installation: Installation, who: str) -> None:
    printed = installation.output("-c", TWICE, who, packages=SPECIAL)
    assert "backend c has a rule for LambertOp already, Expression(" in printed
    place = installation.folder("weft_special") / "weft_special" / "c_rules.py"
    assert f'registered at File "{place}", line ' in printed
    assert ("Plugin 'other'" in printed) == (who == "plugin")
