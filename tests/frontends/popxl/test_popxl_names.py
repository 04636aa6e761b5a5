"""Names, parameters and hints of PopXL that programs written for it use."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from popxl_programs import results

import weft
import weft_popxl as popxl
from weft_popxl import ops, transforms

SIGNATURES = {
    "topk": "t k axis largest sorted",
    "pow": "t e",
    "greater": "input other",
    "identity": "t output_name",
    "gather": "t indices axis available_memory_proportion zero_OOR",
    "scatter": "t indices values axis available_memory_proportion",
    "scatter_reduce": (
        "data indices reduction initial_values axis axis_size available_memory_proportion"
    ),
    "max_pool": (
        "t kernel_size stride padding out_pads dilation in_dilations auto_pad ceil_mode "
        "storage_order"
    ),
    "average_pool": (
        "t kernel_size stride padding out_pads dilation in_dilations auto_pad ceil_mode"
    ),
    "conv": (
        "t weight stride padding dilation groups pad_type available_memory_proportions "
        "partials_types enable_conv_dithering"
    ),
    "matmul": "lhs rhs available_memory_proportion output_type partials_type",
    "batch_norm_inference": "t scale bias mean var epsilon momentum",
    "print_tensor": (
        "t title print_self print_gradient summarise_threshold edge_items max_line_width digits "
        "float_format separator open_bracket close_bracket"
    ),
    "dynamic_update": "t index t_update axes sizes no_overlap",
    "call_with_info": "graph inputs inputs_dict check_inputs",
    "repeat_with_info": "graph repeat_count inputs inputs_dict check_inputs",
    "conditional_with_info": (
        "cond then_branch else_branch then_inputs else_inputs then_inputs_dict else_inputs_dict "
        "check_inputs"
    ),
    "maximum": "ts",
    "subsample": "t strides",
    "split_random_seed": "seed n",
    "argmax": "t dim keepdim",
    "increment_mod": "t increment modulus",
    "clamp": "t min max",
    "collectives.replica_sharded_slice": "t group",
    "collectives.replicated_all_gather": "t axis group output_shape",
    "collectives.replicated_all_reduce": "t op group",
    "collectives.replicated_all_reduce_": "t op group",
    "collectives.replicated_all_reduce_identical_grad_inputs": "t op group",
    "collectives.replicated_all_reduce_identical_inputs": "t op group",
    "collectives.replicated_reduce_scatter": (
        "t op group configure_output_for_replicated_tensor_sharding"
    ),
    "collectives.replicated_slice": "t axis group",
    "var_updates.adam_var_update": "t x r1 r2 learning_rate max_weight_norm",
    "var_updates.accumulate_": "t X f",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_parameters_have_popxls_names_and_order(name: str) -> None:
    function: Any = ops
    for part in name.split("."):
        function = getattr(function, part)
    assert [*inspect.signature(function).parameters] == SIGNATURES[name].split()


def test_aliases() -> None:
    assert ops.clamp is ops.clip
    assert ops.rename is ops.identity
    assert (popxl.half, popxl.float, popxl.double) == (
        popxl.float16,
        popxl.float32,
        popxl.float64,
    )
    assert popxl.dtypes.half is popxl.half
    with popxl.Ir().main_graph:
        assert ops.rename(popxl.variable(1.0), "other").name == "other"


def test_hints_change_nothing() -> None:
    def build(ir: popxl.Ir) -> list[popxl.Tensor]:
        x = popxl.variable(np.arange(16.0).reshape(1, 1, 4, 4), replica_grouping=None)
        y = popxl.variable(1.0, retrieval_mode="one_per_group", log2_scale=0, nan_on_overflow=True)
        w = popxl.variable(np.ones((1, 1, 2, 2)))
        hints = {"partials_types": ["half"], "enable_conv_dithering": [1]}
        return [
            ops.conv(x, w, available_memory_proportions=[0.5], **hints),  # type: ignore[arg-type]
            ops.conv(x, w),
            ops.max_pool(x, (2, 2), storage_order=True, out_pads=(0, 0), in_dilations=(1, 1)),
            ops.max_pool(x, (2, 2)),
            ops.scatter_reduce(x, [0], "sum", axis_size=1, available_memory_proportion=0.1),
            x + 0.0 * y,
            ops.print_tensor(x, "x", False, digits=3, open_bracket="|", separator=","),
            x,
        ]

    found = results("cpu", build)
    for hinted, bare in zip(found[::2], found[1::2], strict=True):
        np.testing.assert_array_equal(hinted, bare)


@pytest.mark.parametrize("hint", ["out_pads", "in_dilations"])
def test_options_that_would_change_the_result_are_refused(hint: str) -> None:
    options: dict[str, Any] = {hint: (2, 2)}
    with popxl.Ir().main_graph:
        x = popxl.variable(np.ones((1, 1, 4, 4)))
        with pytest.raises(popxl.popart_exception, match=f"{hint} other than"):
            ops.max_pool(x, (2, 2), **options)


def test_a_spec_is_a_mapping() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.ones((2, 3)), name="x")
        assert dict(x.spec) == {"shape": (2, 3), "dtype": popxl.float32, "meta_shape": ()}
        assert x.spec.to_dict() == dict(x.spec)
        assert x.spec.to_tuple() == ((2, 3), popxl.float32, ())
        assert x.spec == popxl.TensorSpec((2, 3), popxl.float32)
        assert {x.spec: 1}[popxl.TensorSpec(**x.spec)] == 1
        assert popxl.h2d_stream(**x.spec).spec == popxl.d2h_stream(**x.spec).spec == x.spec
        graph = ir.create_empty_graph()
        with graph:
            made = popxl.graph_input(**x.spec, name="y")
        assert (made.shape, made.dtype, made.name, made.by_ref) == (x.shape, x.dtype, "y", False)
    with pytest.raises(KeyError):
        x.spec["by_ref"]


def test_no_session_runs_a_main_graph_with_inputs() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        assert popxl.graph_input(**popxl.TensorSpec((1, 2), popxl.int32), name="w").name == "w"
    with pytest.raises(popxl.popart_exception, match=r"the main graph has the inputs .*id=w "):
        popxl.Session(ir)


def test_diagonals_and_detached_memory(backend: str) -> None:
    def build(ir: popxl.Ir) -> list[popxl.Tensor]:
        x = popxl.variable(np.arange(6.0).reshape(2, 3))
        y = x.detach_()
        ops.add_(y, 1.0)
        return [x.diag(), x]

    diagonal, x = results(backend, build, in_sequence=True)
    assert diagonal.tolist() == [1, 5]
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]
    with popxl.Ir().main_graph:
        for shape in ((), (3,), (2, 2, 2)):
            with pytest.raises(ValueError, match="diag takes a matrix"):
                popxl.variable(np.ones(shape)).diag()


def test_what_dtypes_are() -> None:
    floats = [d.name for d in popxl.dtype._all.values() if d.is_floating_point]
    assert floats == ["float16", "float32", "float64"]
    assert not any(d.is_complex for d in popxl.dtype._all.values())
    assert popxl.dtype.from_name("int8") is popxl.int8
    for wrong in ("half", "complex64", "", None, 3, popxl.int8):
        with pytest.raises(ValueError, match="no dtype's name"):
            popxl.dtype.from_name(wrong)  # type: ignore[arg-type]


def test_dtypes_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch: Any = SimpleNamespace(float32=object(), bool=object())
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert popxl.float32.as_torch() is torch.float32
    assert popxl.bool.as_torch() is torch.bool
    with pytest.raises(TypeError, match="PyTorch has no dtype uint16"):
        popxl.uint16.as_torch()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match="pip install torch") as caught:
        popxl.float32.as_torch()
    assert isinstance(caught.value, weft.WeftError)


def test_values_that_have_a_dtype_of_pytorch() -> None:
    class Tensor:
        dtype = "torch.int16"

    assert popxl.dtype.as_dtype(Tensor()) is popxl.int16


def test_seeds_are_those_of_popxl() -> None:
    wanted = np.random.default_rng(1987).integers(0, 2**64 - 1, 6, np.uint64, endpoint=True)
    seeds = popxl.create_seeds(1984, 3, 3, 2)
    assert seeds.shape == (3, 2, 2)
    assert seeds.dtype == np.uint32
    whole = [int(high) << 32 | int(low) for high, low in seeds.reshape(-1, 2)]
    assert whole == wanted.tolist()
    assert popxl.create_seeds(5).shape == (2,)
    assert popxl.create_seeds(5, replicas=4).shape == (4, 2)

    def build(ir: popxl.Ir) -> list[popxl.Tensor]:
        return [ops.random_uniform(popxl.constant(seed), (50,)) for seed in seeds.reshape(-1, 2)]

    drawn = results("cpu", build)
    assert len({tuple(each) for each in drawn}) == 6


def test_the_ops_of_graphs_are_listed(tmp_path: Path) -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable([1.0, 2.0], name="x")
        graph = ir.create_graph(lambda a: ops.sin(a) * a, x)
        ops.call(graph, x)
        ops.add_(x, 1.0)
        info = transforms.autodiff(graph)
    assert [op.kind for op in ir.main_graph.ops] == ["call", "add_"]
    sin, mul = graph.ops
    assert (sin.kind, mul.kind) == ("sin", "mul")
    assert sin.inputs == (graph.inputs[0],)
    assert mul.inputs == (*sin.outputs, graph.inputs[0])
    assert mul.outputs == graph.outputs[:1]
    assert __file__ in sin.file_info
    assert ir.main_graph.ops[0].called_graphs == (graph,)
    kinds = [op.kind for op in info.graph.ops]
    assert sorted(kinds) == ["add", "cos", "multiply", "multiply", "multiply"]
    made = {each for op in info.graph.ops for each in op.outputs}
    assert set(info.graph.outputs) <= made
    assert all(each in info.graph for each in made)


NAMES = ['a "b"', "back\\slash", "line\nbreak", "][ -> }", "ﬁ²"]


def test_checkpoints_in_the_dot_language(tmp_path: Path) -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        tensors = [popxl.variable([1.0, 2.0], name=name) for name in NAMES]
        graph = ir.create_graph(lambda a: ops.sin(a) * a, tensors[0])
        call = ops.call_with_info(graph, tensors[0])
        info = transforms.autodiff(graph)
        ops.call(info.graph, tensors[1], inputs_dict=info.inputs_dict(call))
        folder = tmp_path / "new" / "folder"
        ir.dot_checkpoint("Foo", folder)
        before = (folder / "Foo.dot").read_text()
        ops.call(graph, tensors[2])
        ir.dot_checkpoint("Foo", str(folder))
        ir.dot_checkpoint("../up/ﬁ", folder)
        with pytest.raises(TypeError, match="save_dir must be a path"):
            ir.dot_checkpoint("Foo", 3)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="the check must be a text"):
            ir.dot_checkpoint(3, folder)  # type: ignore[arg-type]
    assert sorted(path.name for path in folder.iterdir()) == [".._up_ﬁ.dot", "Foo.dot"]
    text = (folder / "Foo.dot").read_text()
    assert text.count('label="call"') == before.count('label="call"') + 1 == 3
    assert text.count("subgraph cluster_") == 3
    for line in text.splitlines():
        outside = line.replace("\\\\", "").replace('\\"', "").split('"')[::2]
        assert len(outside) == line.replace("\\\\", "").replace('\\"', "").count('"') // 2 + 1
        assert not any(mark in "".join(outside[1:]) for mark in "->{}")


def test_a_checkpoint_goes_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    popxl.Ir().dot_checkpoint("")
    assert [path.name for path in tmp_path.iterdir()] == ["_.dot"]
