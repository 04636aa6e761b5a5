"""Files that `weft run` is given: whatever is in them is read, or refused with their names."""

from __future__ import annotations

import io
import pickle
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hamkaas_command import WHOLE, run
from hamkaas_models import floats
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft.runtime.array_files import read_array, stored_arrays


@pytest.mark.parametrize("kept", [0, 1, 50, 200])
@pytest.mark.parametrize("name", ["x.npy", "weights.npz"])
def test_files_that_are_cut_off_are_named(folder: Path, name: str, kept: int):
    (folder / name).write_bytes((folder / name).read_bytes()[:-50][:kept])
    status, _, wrong = run(folder, *WHOLE)
    assert status == 1
    assert f"{name} holds no arrays that can be read" in wrong
    assert "Traceback" not in wrong


def header(shape: tuple[int, ...], fill: bytes = b""):
    """Return the beginning of a .npy file that claims a shape."""
    file = io.BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, described)
    return file.getvalue() + fill


def archive(*entries: Any):
    """Return an .npz file with entries of any bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in entries:
            made.writestr(name, content)
    return file.getvalue()


GARBAGE = {
    "nothing": b"",
    "text": b"x = [1, 2]",
    "a pickle": pickle.dumps(np.ones(3)),
    "beginning of a zip file": b"PK\x03\x04" + b"x" * 50,
    "too few elements": header((2, 3), b"x" * 20),
    "negative length": header((-3, 2), b"x" * 24),
    "more elements than there are numbers": header((10**30,)),
    "header of nonsense": header((2, 3)).replace(b"descr", b"d)scr"),
}
ENTRIES = {
    **{name: archive(("layer.weight.npy", content)) for name, content in GARBAGE.items()},
    "no array": archive(("layer.weight", b"3")),
    "wrong sum": archive(("layer.weight.npy", header((3, 4), b"x" * 48))).replace(b"xxx", b"xyx"),
}


@pytest.mark.parametrize("name", GARBAGE)
@pytest.mark.parametrize("file", ["x.npy", "weights.npz"])
def test_a_file_without_arrays_is_named(folder: Path, file: str, name: str):
    (folder / file).write_bytes(GARBAGE[name])
    refused_by_name(folder, file)


@pytest.mark.parametrize("name", ENTRIES)
def test_a_file_with_an_entry_that_is_no_array_is_named(folder: Path, name: str):
    (folder / "weights.npz").write_bytes(ENTRIES[name])
    refused_by_name(folder, "weights.npz")


def refused_by_name(folder: Path, file: str):
    status, said, wrong = run(folder, *WHOLE)
    assert (status, said) == (1, "")
    assert wrong.startswith(str(folder / file))
    assert len(wrong.splitlines()) == 1


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_file_with_mistakes_is_read_or_refused_by_its_name(folder: Any, data: Any):
    file = data.draw(st.sampled_from(["x.npy", "weights.npz"]))
    whole = (folder / file).read_bytes()
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(at, at + 9))
        content[at:end] = data.draw(st.binary(max_size=9))
    (folder / file).write_bytes(content)
    status, said, wrong = run(folder, *WHOLE)
    (folder / file).write_bytes(whole)
    assert (status == 0) == said.startswith("result: float32[2, 4]")
    words = (file, "Input tensor x has wrong", "constant 'layer.weight' is")
    assert status == 0 or any(each in wrong for each in words)


def test_only_constants_that_the_script_needs_are_read(folder: Path):
    weights = [("layer.weight.npy", header((3, 4), floats(3, 4).tobytes())), ("other.npy", b"x")]
    (folder / "weights.npz").write_bytes(archive(*weights))
    assert run(folder, *WHOLE)[0] == 0


@pytest.mark.parametrize("file", ["x.npy", "weights.npz"])
def test_a_file_that_asks_for_more_memory_than_there_is_is_named(folder: Path, file: str):
    huge = header((10**13,))
    entry = archive(("layer.weight.npy", huge))
    (folder / file).write_bytes(entry if file == "weights.npz" else huge)
    status, _, wrong = run(folder, *WHOLE)
    assert status == 1
    assert f"{file} holds no arrays that can be read: it has 0 bytes of elements" in wrong
    assert "Traceback" not in wrong


def deflated(name: str, *parts: Any):
    """Return an .npz file of few bytes, however many an entry has."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made,
        made.open(name, "w", force_zip64=True) as entry,
    ):
        for part in parts:
            entry.write(part)
    return file.getvalue()


MILLIONS = [bytes(2**20)] * 64
STARTS = {
    "another shape": header((2**24,)),
    "another dtype": header((3, 4)).replace(b"<f4", b"<f8"),
    "more than it says": header((3, 4)),
    "a long header": b"\x93NUMPY\x02\0\0\0\0\x04",
}


@pytest.mark.parametrize("name", STARTS)
def test_an_entry_that_does_not_fit_is_refused_by_its_header(folder: Path, name: str):
    bomb = deflated("layer.weight.npy", STARTS[name], *MILLIONS)
    assert len(bomb) < 2**18
    (folder / "weights.npz").write_bytes(bomb)
    tracemalloc.start()
    try:
        status, _, wrong = run(folder, *WHOLE)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert status == 1
    assert "layer.weight" in wrong or "weights.npz" in wrong
    assert "Traceback" not in wrong
    assert most < 2**24


def test_an_input_that_does_not_fit_is_refused_by_its_header(folder: Path):
    with (folder / "x.npy").open("wb") as file:
        file.write(header((10**12,)))
        file.truncate(file.tell() + 4 * 10**12)
    status, _, wrong = run(folder, *WHOLE)
    assert status == 1
    assert "Input tensor x has wrong" in wrong


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3), (3, 0, 2), (2, 1, 3)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read_as_numpy_reads_them(tmp_path: Path, shape: tuple[int, ...], order: str):
    array = np.asarray(np.arange(np.prod(shape)).reshape(shape), ">f8", order=order)
    np.save(tmp_path / "x.npy", array)
    with (tmp_path / "y.npy").open("wb") as file:
        np.lib.format.write_array(file, array, version=(2, 0))
    np.savez_compressed(tmp_path / "x.npz", x=array, **{"a.npy.b": array})
    with stored_arrays(tmp_path / "x.npz") as stored:
        assert sorted(stored) == ["a.npy.b", "x"]
        found = [stored["x"], stored["a.npy.b"]]
    for each in [read_array(tmp_path / "x.npy"), read_array(tmp_path / "y.npy"), *found]:
        np.testing.assert_array_equal(each, array, strict=True)


@pytest.mark.parametrize("order", [">", "<"])
def test_numbers_in_either_order_of_bytes_are_read(folder: Path, order: str, backend: str):
    np.save(folder / "x.npy", floats(2, 3).astype(f"{order}f4"))
    np.savez(folder / "weights.npz", **{"layer.weight": floats(3, 4).astype(f"{order}f4")})
    assert run(folder, *WHOLE, "--output", "y.npy", "--backend", backend)[0] == 0
    found = np.load(folder / "y.npy")
    expected = np.maximum(floats(2, 3) @ floats(3, 4), 0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_an_input_is_one_array(folder: Path):
    status, _, wrong = run(folder, *WHOLE[:1], "--input", "x=weights.npz", *WHOLE[3:])
    assert status == 1
    assert "holds several arrays" in wrong


def test_nothing_is_unpickled(folder: Path):
    np.save(folder / "x.npy", np.array([print]), allow_pickle=True)
    status, _, wrong = run(folder, *WHOLE)
    assert status == 1
    assert "no arrays that can be read" in wrong
