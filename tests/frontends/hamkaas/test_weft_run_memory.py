"""What `weft run` says of memory: plans take none, and what there is too little for is named."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hamkaas_command import SCRIPT, WHOLE, run
from hamkaas_models import floats

import weft_hamkaas as hk

LARGE = 60_000
STACKED = f"""
$1 = InputTensor(x, float32, [1, {LARGE}]);
$2 = ConstantTensor(first, float32, [{LARGE}, {LARGE}]);
$3 = MatMulNode($1, $2);
$4 = ConstantTensor(others, float32, [4, {LARGE}, {LARGE}]);
$5 = SliceNode($4, 1, 2);
$6 = ReshapeNode($5, [{LARGE}, {LARGE}]);
$7 = PermuteNode($6, [1, 0]);
$8 = MatMulNode($3, $7);
$9 = BufferTensor(kept, float32, [1, {LARGE * 1000}]);
$10 = SliceNode($9, 0, 1);
$11 = ReshapeNode($10, [1000, {LARGE}]);
$12 = SliceNode($11, 7, 8);
$13 = SumNode($8, $12);
result = $13;
"""


def test_a_plan_takes_no_memory_for_constants_and_buffers(folder: Path, backend: str):
    (folder / "model.hk").write_text(STACKED)
    tracemalloc.start()
    try:
        status, said, _ = run(folder, "model.hk", "--plan", "--backend", backend)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert status == 0
    assert f"constants {5 * 4 * LARGE**2:,} bytes, buffers {4000 * LARGE:,} bytes" in said
    assert most < 50e6


def test_a_plan_without_values_is_that_of_the_values(folder: Path):
    """What holds for numbers that are not known, that they are equal or 0, changes nothing."""
    (folder / "model.hk").write_text(
        "$1 = InputTensor(x, float32, [3]);\n"
        + "".join(f"${n} = ConstantTensor(c{n}, float32, [{n % 2 * 2 + 1}]);\n" for n in (2, 3, 4))
        + "$5 = SumNode($1, $2); $6 = HadamardProductNode($5, $4); $7 = SumNode($6, $3);\n"
        "$8 = ConstantTensor(i, int64, [1]); $9 = ConstantTensor(j, int64, [1]);\n"
        "$10 = SlicedSoftmaxNode($7, $8); $11 = SlicedSoftmaxNode($7, $9);\n"
        "$12 = SumNode($10, $11); result = $12;"
    )
    values = {f"c{n}": floats(n % 2 * 2 + 1, seed=n) for n in (2, 3, 4)}
    np.savez(folder / "weights.npz", i=np.array([1]), j=np.array([2]), **values)
    plans = [run(folder, "model.hk", "--plan", *more) for more in ((), WHOLE[3:])]
    plain = [re.sub(r"_\d+", "", said) for _, said, _ in plans]
    assert plain[0] == plain[1]


def test_a_plan_speaks_of_nodes_as_the_script_does(folder: Path):
    numbered = SCRIPT.replace("$1", "$70").replace("$3 ", "$9 ").replace("($3)", "($9)")
    (folder / "model.hk").write_text(numbered.replace("$4", "$0005"))
    _, said, _ = run(folder, "model.hk", "--plan")
    lines = [line.split() for line in said.splitlines()]
    assert ["0", "24", "the", "start", "to", "$9", "$70", "InputTensor"] in lines
    assert ["256", "32", "$9", "to", "the", "end", "$9", "MatMulNode,", "$5", "ReLUNode"] in lines


VAST = (
    "\n$1 = BufferTensor(kept, float32, [1000000000000]);\n$2 = SliceNode($1, 0, 4); result = $2;"
)
VAST_PRODUCT = """
$1 = InputTensor(x, float32, [1000000, 1]);
$2 = ReshapeNode($1, [1, 1000000]);
$3 = MatMulNode($1, $2);
result = $3;
"""


def test_a_buffer_that_there_is_no_memory_for_is_named_with_its_line(folder: Path, backend: str):
    (folder / "model.hk").write_text(VAST)
    status, _, wrong = run(folder, "model.hk", "--backend", backend)
    assert status == 1
    assert re.search(r"the state kept\w* of 4,000,000,000,000 bytes, .*model\.hk\", line 2", wrong)
    with pytest.raises(MemoryError) as caught:
        hk.HamKaasPlugin(backend).compile_model(hk.parse_script(VAST, filename="model.hk"))
    assert 'of 4,000,000,000,000 bytes, File "model.hk", line 2' in "".join(caught.value.__notes__)


def test_a_result_that_there_is_no_memory_for_is_named_with_its_line(folder: Path, backend: str):
    (folder / "model.hk").write_text(VAST_PRODUCT)
    np.save(folder / "x.npy", floats(1_000_000, 1))
    status, _, wrong = run(folder, "model.hk", "--input", "x=x.npy", "--backend", backend)
    assert status == 1
    assert re.search(r"Matmul\w+ of 4,000,000,000,000 bytes, .*model\.hk\", line 4", wrong)
    model = hk.HamKaasPlugin(backend).compile_model(hk.parse_script(VAST_PRODUCT))
    with pytest.raises(MemoryError) as caught:
        model.evaluate({"x": floats(1_000_000, 1)})
    assert "of 4,000,000,000,000 bytes" in "".join(caught.value.__notes__)


def test_a_constant_that_there_is_no_memory_for_is_named_with_its_line():
    class Vast(dict):
        def __getitem__(self, name: str):
            raise MemoryError

        get = __getitem__

    with pytest.raises(MemoryError) as caught:
        hk.parse_script(SCRIPT, Vast(), "model.hk")
    (note,) = caught.value.__notes__
    assert "constant 'layer.weight' of 48 bytes" in note
    assert note.endswith('File "model.hk", line 3')
