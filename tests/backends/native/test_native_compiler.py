"""The compiler: which is taken, what it is asked, what is kept, and what is said when it fails."""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import plugins
from weft.errors import BackendError
from weft_native import binding, compiler, processes, shared_library
from weft_native.compiler import TARGETS, Vectors
from weft_native.dialect import host_dialect
from weft_native.shared_library import load
from weft_native.transformer import NativeTransformer

pytestmark = pytest.mark.usefixtures("anew")


def compile_something(folder: Path | None = None, name: str = "step") -> Any:
    """Compile and run a small program with a cache of its own."""
    cache: Any = False if folder is None else str(folder)
    with NativeTransformer(cache=cache) as transformer:
        x = weft.placeholder((5,))
        computation = transformer.computation(weft.exp(x) * 3 - 1, x, name=name)
        return computation(np.arange(5, dtype=np.float32))


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Make a script the compiler; ``$REAL`` in it is the command of the real one."""

    def make(text: str) -> Path:
        path = tmp_path / "compiler"
        real = " ".join(compiler.command())
        path.write_text(f"#!/bin/sh\n{text.replace('$REAL', real)}\n")
        path.chmod(0o755)
        compiler.command.cache_clear()
        monkeypatch.setenv("WEFT_CC", str(path))
        return path

    return make


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("WEFT_CACHE_DIR", str(folder))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    return folder


COUNTING = 'case "$*" in *program.c*) echo once >> "$0.log";; esac\nexec $REAL "$@"'


@pytest.mark.needs("compiler")
def test_a_named_compiler_is_taken(script: Any, cache_folder: Path) -> None:
    path = script(COUNTING)
    assert NativeTransformer.probe() == (str(path), "")
    np.testing.assert_allclose(compile_something(), np.exp(np.arange(5)) * 3 - 1, rtol=1e-5)
    assert Path(f"{path}.log").exists()


def test_a_name_that_is_no_command_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CC", "no-such-compiler")
    with pytest.raises(BackendError, match="WEFT_CC='no-such-compiler' is not a command"):
        NativeTransformer.probe()
    assert plugins.backend_status("native").is_broken
    with pytest.raises(BackendError, match="name one in WEFT_CC"):
        weft.make_transformer("native")


def test_without_a_compiler_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_CC", raising=False)
    monkeypatch.setattr(compiler.shutil, "which", lambda name: None)
    monkeypatch.setattr(compiler, "find_spec", lambda name: None)
    device, reason = NativeTransformer.probe()
    assert device is None
    assert "weftc[native-zig]" in reason
    assert not plugins.backend_status("native").is_broken


def test_zig_is_the_last_resort(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WEFT_CC", raising=False)
    monkeypatch.setattr(compiler.shutil, "which", lambda name: None)
    origin = tmp_path / "ziglang" / "__init__.py"
    monkeypatch.setattr(
        compiler, "find_spec", lambda name: ModuleSpec(name, None, origin=str(origin))
    )
    zig = "zig.exe" if sys.platform == "win32" else "zig"
    assert compiler.command() == (str(origin.with_name(zig)), "cc", "-g0")


@pytest.mark.needs("compiler")
def test_one_text_gives_one_library() -> None:
    one, other = (compiler.build("int x;", "a test") for _ in range(2))
    assert one == other


@pytest.mark.needs("compiler")
def test_a_compiler_without_headers_is_not_usable(script: Any, cache_folder: Path) -> None:
    missing = "echo 'fatal error: math.h: No such file or directory' >&2; exit 1"
    script(f'case "$*" in *-dM*) exec $REAL "$@";; esac\n{missing}')
    with pytest.raises(BackendError, match=r"math\.h: No such file or directory"):
        NativeTransformer.probe()
    assert plugins.backend_status("native").is_broken


FAILURES = {
    "it crashes": ("kill -SEGV $$", r"could not compile"),
    "it says why": ("echo 'program.c:3:5: error: odd' >&2; exit 1", r"(?s)error: odd.*>    3 "),
    "it makes nothing": ("exit 0", r"could not compile"),
    "it is not a program": ("exec /nonexistent", r"could not compile"),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.needs("compiler")
def test_a_compiler_that_fails_is_named_with_its_output(
    script: Any, cache_folder: Path, name: str
) -> None:
    compiler.macros()  # of the real one
    compile_something()
    text, message = FAILURES[name]
    compiler.identity.cache_clear()
    path = script(f'case "$*" in *-dM*) exec $REAL "$@";; esac\n{text}')
    x = weft.placeholder((5,))
    with NativeTransformer(cache=False) as transformer:
        computation = transformer.computation(weft.exp(x) * 7, x, name="another")
        with pytest.raises(BackendError, match=message) as caught:
            computation(np.ones(5, np.float32))
    assert str(path) in str(caught.value)
    assert f'File "{__file__}", line' in str(caught.value)


@pytest.mark.needs("compiler")
def test_a_compiler_that_hangs_is_stopped(
    script: Any, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_something()
    compiler.identity.cache_clear()
    script('case "$*" in *-dM*) exec $REAL "$@";; esac\nexec sleep 60')
    monkeypatch.setattr(processes, "TIME_LIMIT", 0.5)
    with pytest.raises(BackendError, match="did not end within"):
        compiler.build("int x;", "a test")


@pytest.mark.needs("compiler")
def test_libraries_are_kept(script: Any, cache_folder: Path) -> None:
    path = script(COUNTING)
    first = compile_something(cache_folder)
    log = Path(f"{path}.log")
    before = log.read_text()
    shared_library._loaded.clear()
    np.testing.assert_array_equal(compile_something(cache_folder), first)
    assert log.read_text() == before
    assert all(stat.S_IMODE(each.stat().st_mode) == 0o600 for each in cache_folder.iterdir())


@pytest.mark.needs("compiler")
def test_another_compiler_compiles_again(script: Any, cache_folder: Path) -> None:
    path = script(COUNTING)
    key = compiler.key_of("text")
    path.write_text(path.read_text() + "\n# changed\n")
    compiler.identity.cache_clear()
    assert compiler.key_of("text") != key


@pytest.mark.needs("compiler")
def test_a_damaged_library_is_compiled_again(cache_folder: Path) -> None:
    text = '__attribute__((visibility("default"))) int answer(void) { return 42; }'
    load(text, "a test", ["answer"])
    for path in cache_folder.iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    shared_library._loaded.clear()
    with pytest.warns(UserWarning, match="damaged"):
        assert load(text, "a test", ["answer"]).answer() == 42


@pytest.mark.needs("linux")
@pytest.mark.needs("compiler")
def test_a_folder_that_forbids_execution_is_no_obstacle(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shared_library.Library

    def refusing(path: str) -> shared_library.Library:
        if not path.startswith("/proc/self/fd/"):
            raise OSError("failed to map segment from shared object")
        return real(path)

    monkeypatch.setattr(shared_library, "Library", refusing)
    names = ["one", "two"]
    texts = [
        f'__attribute__((visibility("default"))) int {name}(void) {{ return 1; }}' for name in names
    ]
    found = [load(text, "a test", [name]) for name, text in zip(names, texts, strict=True)]
    assert [getattr(each, name)() for each, name in zip(found, names, strict=True)] == [1, 1]


@pytest.mark.needs("compiler")
def test_a_full_disk_is_reported(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compiler.Path, "write_text", full)
    with pytest.raises(BackendError, match=r"the disk is full\..*TMPDIR"):
        compiler.build("int x;", "a test")


@pytest.mark.needs("compiler")
def test_a_compiler_that_finds_a_full_disk_is_not_blamed(script: Any, cache_folder: Path) -> None:
    compiler.macros()  # of the real one
    compiler.identity.cache_clear()
    # In the language of a user who has set one, it would say something else.
    script(
        'case "$*" in *-dM*) exec $REAL "$@";; esac\n'
        'if [ "$LC_ALL" = C ]; then full="No space left on device"; else full="Disk voll"; fi\n'
        'echo "ld: final link failed: $full" >&2; exit 1'
    )
    with pytest.raises(BackendError) as caught:
        compiler.build("int x;", "a test")
    where = re.escape(tempfile.gettempdir())
    assert re.search(
        rf"compiling a test: the disk is full\..* {where}, where [0-9.]+ MB", str(caught.value)
    )
    assert "error of weft" not in str(caught.value)


@pytest.mark.parametrize(
    ("macros", "expected"),
    [
        ("#define __AVX2__ 1\n#define __AVX512F__ 1\n", Vectors(16, 26)),
        ("#define __AVX2__ 1\n", Vectors(8, 12)),
        ("#define __ARM_NEON 1\n", Vectors(4, 26)),
        ("#define __AVX2__EXTRA 1\n", Vectors(4, 12)),
    ],
)
@pytest.mark.needs("compiler")
def test_vectors_follow_from_the_macros_of_the_compiler(
    cache_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    macros: str,
    expected: Vectors,
) -> None:
    monkeypatch.setattr(compiler, "run", lambda arguments, doing, folder: macros)
    assert compiler.vectors() == expected
    compiler.macros.cache_clear()
    monkeypatch.setattr(compiler, "run", None)
    assert compiler.vectors() == expected, "it is kept"


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda each: f"{each.lanes} lanes")
@pytest.mark.needs("compiler")
def test_kernels_for_any_lanes_compute_the_same(
    monkeypatch: pytest.MonkeyPatch, target: Vectors
) -> None:
    values = np.linspace(-3, 3, 7 * 130, dtype=np.float32).reshape(7, 130)
    x = weft.placeholder((7, 130))
    results = [
        weft.softmax(weft.tanh(x) * 2), weft.max(x, 0), weft.where(weft.greater(x, 0), x, -x),
        x @ weft.transpose(x), weft.log(weft.abs(x) + 1),
    ]  # fmt: skip
    expected = weft.make_transformer("numpy").computation(results, x)(values)
    monkeypatch.setattr(compiler, "vectors", lambda: target)
    with NativeTransformer(cache=False) as transformer:
        transformer.processor = transformer.processor
        for one, other in zip(transformer.computation(results, x)(values), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.needs("compiler")
def test_bytes_are_widened_in_vectors(tmp_path: Path) -> None:
    """GCC 12 loads them one by one by itself, which takes nine times as long."""
    if not compiler.macros() & {"__AVX512F__", "__AVX2__"}:
        pytest.skip("only processors with AVX2 have the instruction")
    lanes = compiler.vectors().lanes
    text = "".join(
        f"void widen_{kind}(near_{kind}x{lanes} *x, near_i32x{lanes} *out) "
        f"{{ *out = convert_int{lanes}(*x); }}\n"
        for kind in ("i8", "u8")
    )
    (tmp_path / "widened.c").write_text(host_dialect(lanes).prelude + text)
    arguments = [*compiler.target_flags(), *compiler.FLAGS, "-S", "widened.c", "-o", "widened.s"]
    compiler.run([*compiler.command(), *arguments], "compiling", tmp_path)
    found = (tmp_path / "widened.s").read_text()
    for instruction in ("vpmovsxbd", "vpmovzxbd"):
        assert found.count(instruction) == 1, instruction
    assert "vpinsr" not in found


@pytest.mark.needs("compiler")
def test_without_the_lock_of_the_interpreter_calls_go_through_ctypes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(binding.sysconfig, "get_config_var", lambda name: 1)
    assert binding.binder() is None
    np.testing.assert_allclose(compile_something(), np.exp(np.arange(5)) * 3 - 1, rtol=1e-5)


LATER = """
import numpy as np, weft
x = weft.placeholder((5,))
t = weft.make_transformer("native")
print(t.computation(weft.exp(x) * 3 - 1, x)(np.arange(5, dtype=np.float32)).tolist())
"""


@pytest.mark.needs("compiler")
def test_a_later_process_needs_no_compiler(script: Any, cache_folder: Path) -> None:
    path = script(COUNTING)
    environment = {**os.environ, "WEFT_CACHE_DIR": str(cache_folder), "WEFT_CC": str(path)}
    results = [
        subprocess.run(
            [sys.executable, "-c", LATER],
            capture_output=True, text=True, check=True, env=environment, timeout=120,
        ).stdout
        for _ in range(2)
    ]  # fmt: skip
    assert results[0] == results[1]
    compiled = Path(f"{path}.log").read_text().split()
    assert len(compiled) == 2, "once the runtime with the binding, and once the program"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("gcc", ["gcc"]),
        ("gcc -O2 '-DX=a b'", ["gcc", "-O2", "-DX=a b"]),
        (r"/my\ tools/cc -x", ["/my tools/cc", "-x"]),
        ("cc -DY=#1", ["cc", "-DY=#1"]),
    ],
)
def test_a_command_is_read_as_a_shell_reads_it(command: str, words: list[str]) -> None:
    assert compiler.split_command(command, "linux") == words == shlex.split(command)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (r"C:\mingw\bin\gcc.exe -pipe", [r"C:\mingw\bin\gcc.exe", "-pipe"]),
        (r'"C:\my tools\cc.exe" -x', [r"C:\my tools\cc.exe", "-x"]),
    ],
)
def test_backslashes_of_windows_are_of_paths(command: str, words: list[str]) -> None:
    assert compiler.split_command(command, "win32") == words
