"""Replicas in one process: their collectives, groups, and what cannot run there.

`tests/communicators` has several.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft_popxl as popxl
from weft.errors import UnknownPluginError
from weft_popxl import ops, transforms
from weft_popxl.ops import collectives

ROOT = Path(__file__).parents[2]
OF_RANKS = runpy.run_path(str(ROOT / "communicators" / "programs" / "popxl_replicas.py"))
"""The checks that ranks run, here for one."""


@pytest.mark.parametrize("name", OF_RANKS["CASES"])
def test_one_replica_alone(name: str) -> None:
    OF_RANKS["check_cases"]([name], "numpy")


@pytest.mark.parametrize("check", [name for name in OF_RANKS if name.startswith("check_")])
def test_one_replica_alone_on_each_backend(check: str, backend: str) -> None:
    OF_RANKS[check](*([OF_RANKS["CASES"]] if check == "check_cases" else []), backend)


SHAPES: dict[str, tuple[Callable[[popxl.Tensor], popxl.Tensor], tuple[int, ...]]] = {
    "reduction": (collectives.replicated_all_reduce, (4, 3)),
    "product": (lambda t: collectives.replicated_all_reduce(t, "mul"), (4, 3)),
    "gather": (collectives.replicated_all_gather, (16, 3)),
    "gather columns": (lambda t: collectives.replicated_all_gather(t, 1), (4, 12)),
    "stack": (lambda t: collectives.replicated_all_gather(t, 1, None, "new_axis"), (4, 4, 3)),
    "scalars": (lambda t: collectives.replicated_all_gather(ops.sum(t)), (4,)),
    "slice": (collectives.replicated_slice, (3,)),
    "slice of several": (lambda t: collectives.replicated_slice(ops.concat([t, t])), (2, 3)),
    "scatter": (lambda t: collectives.replicated_reduce_scatter(t, "max"), (3,)),
    "scatter with padding": (lambda t: collectives.replicated_reduce_scatter(t[:3]), (3,)),
    "sharded slice": (lambda t: collectives.replica_sharded_slice(t[:2]), (2,)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_program_for_other_processes_is_built_and_differentiated_here(name: str) -> None:
    build, shape = SHAPES[name]
    ir = popxl.Ir(replication=4)
    with ir.main_graph:
        x = popxl.variable(np.ones((4, 3)))
        graph = ir.create_graph(build, x)
        (y,) = ops.call(graph, x)
        assert y.shape == shape
        info = transforms.autodiff(graph)
    assert info.graph.outputs[0].shape == (4, 3)
    with pytest.raises(popxl.popart_exception, match=r"mpiexec -n 4 .*Ir\(replication=1\)"):
        popxl.Session(ir)


def test_replicas_that_exchange_nothing_are_ranks_too() -> None:
    ir = popxl.Ir(replication=2)
    assert (ir.replication_factor, ir.instance_replication_factor) == (2, 1)
    with pytest.raises(popxl.popart_exception, match="mpiexec -n 2") as caught:
        popxl.Session(ir)
    # The line that made the session, and no function that it calls.
    assert re.search(rf'File "{re.escape(__file__)}", line \d+$', str(caught.value))
    assert popxl.Ir(replication="popdist").replication_factor == 1


GROUPINGS = {
    # stride and size among 8 replicas: the groups, and those of the transpose, by replica
    (1, None): ("00000000", "01234567"),
    (1, 1): ("01234567", "00000000"),
    (8, 1): ("01234567", "00000000"),
    (1, 2): ("00112233", "01010101"),
    (1, 4): ("00001111", "01230123"),
    (2, None): ("01010101", "00112233"),
    (4, 2): ("01230123", "00001111"),
    (2, 2): ("01012323", "00110011"),
}


@pytest.mark.parametrize(("stride", "size"), GROUPINGS)
def test_groups_of_replicas(stride: int, size: int | None) -> None:
    groups, transposed = GROUPINGS[stride, size]
    grouping = popxl.Ir(replication=8).replica_grouping(stride, size)
    assert "".join(map(str, grouping.assignment)) == groups
    assert grouping.num_groups == len(set(groups))
    assert grouping.num_groups * grouping.group_size == grouping.num_replicas == 8
    assert grouping.stride == (stride if grouping.group_size > 1 else 1)
    assert grouping.is_const
    assert "".join(map(str, grouping.transpose().assignment)) == transposed
    assert grouping.transpose().transpose() == grouping


@pytest.mark.parametrize(
    ("groups", "stride", "transposed"),
    [
        ("0000", 1, "0123"), ("0123", 1, "0000"), ("0101", 2, "0011"), ("012012", 3, "000111"),
        ("00110011", None, "01012323"), ("0110", None, "0011"), ("010011", None, "001212"),
        ("01010011", None, "00112323"),
    ],
)  # fmt: skip
def test_groups_from_assignments(groups: str, stride: int | None, transposed: str) -> None:
    ir = popxl.Ir(replication=len(groups))
    grouping = ir.replica_grouping_from_assignments(map(int, groups))
    assert "".join(map(str, grouping.assignment)) == groups
    assert grouping.num_groups * grouping.group_size == grouping.num_replicas == len(groups)
    assert "".join(map(str, grouping.transpose().assignment)) == transposed
    assert grouping.is_const == (stride is not None)
    if stride is None:
        with pytest.raises(NotImplementedError, match="has no constant stride"):
            _ = grouping.stride
    else:
        assert grouping.stride == stride
        assert grouping == ir.replica_grouping(stride, grouping.group_size)


@pytest.mark.parametrize("groups", ["0", "00000", "0010", "1100", "0022", ""])
def test_assignments_of_other_groups_are_refused(groups: str) -> None:
    with pytest.raises(ValueError, match="replica_grouping"):
        popxl.Ir(replication=4).replica_grouping_from_assignments([int(each) for each in groups])


def test_variables_know_their_shape_on_host_and_replica() -> None:
    ir = popxl.Ir(replication=4)
    pairs = ir.replica_grouping_from_assignments([0, 1, 1, 0])
    with ir.main_graph:
        shared = popxl.variable(np.ones((2, 3)))
        paired = popxl.variable(
            np.ones((2, 3)), replica_grouping=pairs, retrieval_mode="all_replicas"
        )
        with pytest.raises(ValueError, match="retrieval_mode must be 'one_per_group'"):
            popxl.variable(1.0, retrieval_mode="all")
    assert (shared.shape_on_host, shared.shape_on_replica) == ((2, 3), (2, 3))
    assert (paired.shape_on_host, paired.shape_on_replica, paired.shape) == ((2, 3), (3,), (3,))
    assert (shared.retrieval_mode, paired.retrieval_mode) == ("one_per_group", "all_replicas")


@pytest.mark.parametrize(("stride", "size"), [(3, None), (1, 3), (2, 8), (16, 1), (0, 1), (1, 0)])
def test_groups_that_do_not_divide_the_replicas_are_refused(stride: int, size: int | None) -> None:
    with pytest.raises(ValueError, match="replica"):
        popxl.Ir(replication=8).replica_grouping(stride, size)


REFUSED: dict[str, tuple[type[Exception], str, Callable[[popxl.Ir, popxl.Tensor], Any]]] = {
    "several groups": (
        NotImplementedError,
        "several groups, but a communicator connects all ranks",
        lambda ir, x: collectives.replicated_all_reduce(x, group=ir.replica_grouping(2)),
    ),
    "variables of other groups": (
        ValueError,
        r"data for 2 groups must have as many rows: \(3,\)",
        lambda ir, x: popxl.variable([1, 2, 3], replica_grouping=ir.replica_grouping(2)),
    ),
    "variables without rows for groups": (
        ValueError,
        r"data for 4 groups must have as many rows: \(\)",
        lambda ir, x: popxl.variable(1.0, replica_grouping=ir.replica_grouping(group_size=1)),
    ),
    "groups of another Ir": (
        ValueError,
        "ReplicaGrouping.* does not fit Ir.* with 4 replicas",
        lambda ir, x: collectives.replicated_slice(x, group=popxl.Ir(2).replica_grouping()),
    ),
    "another reduction": (
        ValueError,
        "'square_add', .* or 'mul', not 'local'",
        lambda ir, x: collectives.replicated_all_reduce_(x, "local"),
    ),
    "another reduction of equal inputs": (
        ValueError,
        "op must be 'add', not 'max'",
        lambda ir, x: collectives.replicated_all_reduce_identical_inputs(x, "max"),
    ),
    "a mean of integers": (
        popxl.popart_exception,
        "a mean over replicas needs floats, not int32",
        lambda ir, x: collectives.replicated_reduce_scatter(ops.cast(x, popxl.int32), "mean"),
    ),
    "and of floats": (
        popxl.popart_exception,
        "'and' over replicas needs bools, not float32",
        lambda ir, x: collectives.replicated_all_reduce(x, "and"),
    ),
    "a sum of bools": (
        popxl.popart_exception,
        "bools are not added up",
        lambda ir, x: collectives.replicated_all_reduce(x > 0),
    ),
    "unequal parts": (
        ValueError,
        "4 replicas have no equal parts of axis 0.*6, 2",
        lambda ir, x: collectives.replicated_slice(x),
    ),
    "a meta shape": (
        ValueError,
        "output_shape must be",
        lambda ir, x: collectives.replicated_all_gather(x, output_shape="meta_shape"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    kind, message, build = REFUSED[name]
    ir = popxl.Ir(replication=4)
    with ir.main_graph:
        x = popxl.variable(np.ones((6, 2)))
        with pytest.raises(kind, match=message):
            build(ir, x)


def test_the_communicator_is_the_one_of_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    ir = popxl.Ir()
    monkeypatch.setenv("WEFT_COMMUNICATOR", "pigeons")
    with ir.main_graph:
        collectives.replicated_all_reduce(popxl.variable(1.0))
    with pytest.raises(UnknownPluginError, match="pigeons"):
        popxl.Session(ir)
