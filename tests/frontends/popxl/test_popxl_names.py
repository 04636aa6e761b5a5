"""Names, parameters and hints of PopXL that programs written for it use."""

from __future__ import annotations

import inspect
import pickle
import pydoc
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import numpy as np
import pytest
from popxl_programs import results, stored
from popxl_signatures import HINTS, MEMBERS, SIGNATURES
from test_popxl_arguments import OPS, home

import weft
import weft_popxl as popxl
from weft_popxl import ops, transforms

PAGE = (Path(__file__).parents[3] / "docs" / "popxl.md").read_text()


def thing(name: str) -> Any:
    """Return what has a dotted name in `weft_popxl`; raises AttributeError."""
    found: Any = popxl
    for part in name.split("."):
        found = getattr(found, part)
    return found


def parameters_of(function: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def misfits(mine: list[inspect.Parameter], wanted: list[inspect.Parameter]) -> list[str]:
    """Return the parameters of PopXL's that are others here, and ours that a call must give."""
    found = []
    for place, other in enumerate(wanted):
        own = mine[place] if place < len(mine) else None
        same = own is not None and (own.name, own.kind) == (other.name, other.kind)
        if not same or other.default not in (other.empty, own.default):
            found.append(f"{other} is {own}")
    more = mine[len(wanted) :]
    return found + [f"{each} is needed" for each in more if each.default is each.empty]


def test_parameters_have_popxls_names_order_and_defaults() -> None:
    for line in SIGNATURES:
        name, _, rest = line.partition("(")
        wanted = parameters_of(eval(f"lambda {rest[:-1]}: None", {"popxl": popxl}))
        assert misfits(parameters_of(thing(name)), wanted) == [], name


NEARLY: dict[str, Callable[..., Any]] = {
    "another name": lambda x, axes=0: None,
    "another order": lambda axis, t: None,
    "another default": lambda t, axis=1: None,
    "keyword-only": lambda t, *, axis=0: None,
    "one less": lambda t: None,
    "one more that is needed": lambda t, axis=0, *, more: None,
}


@pytest.mark.parametrize("function", NEARLY.values(), ids=NEARLY)
def test_signatures_that_differ_are_noticed(function: Callable[..., Any]) -> None:
    def wanted(t: Any, axis: int = 0) -> None: ...

    def fits(t: Any, axis: int = 0, *, hint: Any = None) -> None: ...

    assert misfits(parameters_of(function), parameters_of(wanted))
    assert misfits(parameters_of(fits), parameters_of(wanted)) == []


ALIASES = {"clamp": "clip", "rename": "identity"}
FUNCTIONS = {
    f"{owner.__name__}.{name}": getattr(owner, name)
    for owner in (ops, ops.collectives, ops.var_updates)
    for name in owner.__all__
    if inspect.isfunction(getattr(owner, name))
}


@pytest.mark.parametrize("path", FUNCTIONS)
def test_functions_are_what_their_names_say(path: str) -> None:
    function, name = FUNCTIONS[path], path.rpartition(".")[2]
    name = ALIASES.get(name, name)
    code = function.__code__
    names = {function.__name__, function.__qualname__, code.co_name, code.co_qualname}
    assert names == {name}
    assert pickle.loads(pickle.dumps(function)) is function
    assert function.__doc__
    assert f"{name}(" in pydoc.render_doc(function, renderer=pydoc.plaintext)
    parameters = {*inspect.signature(function).parameters, "return"}
    assert {*get_type_hints(function)} == {*function.__annotations__} == parameters
    with pytest.raises(TypeError, match=rf"^{name}\(\) "):
        function(*range(50), another=0)


def test_no_import_is_for_types_alone() -> None:
    # The layers of pyproject.toml say nothing of such imports, which could go in circles.
    for path in Path(popxl.__file__).parent.rglob("*.py"):
        assert not re.search(r"^ +(from|import) weft_popxl", path.read_text(), re.MULTILINE), path


def test_errors_name_the_function_that_was_called() -> None:
    with popxl.Ir().main_graph:
        x = popxl.variable([1.0, 2.0])
        calls: dict[str, Callable[[], Any]] = {
            "exp": lambda: ops.exp("a"),  # type: ignore[arg-type]
            "sum": lambda: ops.sum(x, 3),
            "slice_": lambda: ops.slice_(x, 0, 1, axis=3),
            "lamb_updater": lambda: ops.var_updates.lamb_updater(x, x, weight_decay=0.1),
            "__add__": lambda: x + "a",
            "__rsub__": lambda: "a" - x,
        }
        for name, call in calls.items():
            with pytest.raises(weft.WeftError, match=rf"test_popxl_names.py.*calling {name}$"):
                call()


def test_what_is_not_here_stands_on_the_page() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        x, context = popxl.variable(1.0), popxl.context.get_current_context()
    of_classes: dict[str, Any] = {"popxl": popxl, "context": context, "dtype": popxl.float32}
    of_classes |= {"Ir": ir, "Graph": ir.main_graph, "Session": popxl.Session(ir)}
    of_classes |= {"Tensor": x, "Variable": x, "ReplicaGrouping": ir.replica_grouping()}
    absent = []
    for owner, names in MEMBERS.items():
        has = {*dir(of_classes[owner] if owner in of_classes else thing(owner))}
        prefix = "" if owner == "popxl" else f"{owner}."
        absent += [prefix + name for name in names.split() if name not in has]
    (said,) = re.findall(r"^Not there: (.*)$", PAGE, re.MULTILINE)
    assert sorted(re.findall(r"`([\w.]+)`", said)) == sorted(absent)


HINTED = {
    f"{owner}.{name}": hints
    for owner, home_of in (("popxl", popxl), ("ops", ops), ("ops.collectives", ops.collectives))
    for name, function in sorted(vars(home_of).items())
    if inspect.isfunction(function) and not name.startswith("_")
    and (hints := sorted({*inspect.signature(function).parameters} & {*HINTS}))
}  # fmt: skip


def test_every_hint_is_taken_somewhere_and_stands_on_the_page() -> None:
    assert {hint for hints in HINTED.values() for hint in hints} == {*HINTS}
    (said,) = re.findall(r"^Where PopXL has hints (.*)$", PAGE, re.MULTILINE)
    assert [hint for hint in HINTS if f"`{hint}`" not in said] == []
    assert len(HINTED) > 20


DIRECT: dict[str, Callable[..., Any]] = {
    "popxl.constant": lambda **hints: popxl.constant([1.0, 2.0], **hints),
    "popxl.variable": lambda **hints: popxl.variable([1.0, 2.0], **hints),
    "popxl.graph_input": lambda **hints: popxl.graph_input((2,), popxl.float32, **hints),
    "popxl.h2d_stream": lambda **hints: popxl.h2d_stream((2,), popxl.float32, **hints),
    "popxl.d2h_stream": lambda **hints: popxl.d2h_stream((2,), popxl.float32, **hints),
}


@pytest.mark.parametrize("name", HINTED)
def test_a_hint_changes_nothing(name: str) -> None:
    hints = {hint: HINTS[hint] for hint in HINTED[name]}
    h = home()

    def made(**more: Any) -> Any:
        if name in DIRECT:
            return DIRECT[name](**more)
        arguments = {key: value(h) for key, value in OPS[name.rpartition(".")[2]].items()}
        returned = thing(name)(**{k: v for k, v in arguments.items() if k not in hints}, **more)
        return getattr(returned, "outputs", returned)

    with h.main, popxl.in_sequence():
        both = [made(), made(**hints)]
        if name in ("popxl.graph_input", "popxl.h2d_stream", "popxl.d2h_stream"):
            assert both[0].spec == both[1].spec
            return
        streams = [stored(each if isinstance(each, tuple) else (each,)) for each in both]
    with popxl.Session(h.ir) as session:
        found = session.run()
    for bare, hinted in zip(*streams, strict=True):
        np.testing.assert_array_equal(found[bare], found[hinted])


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
        with pytest.raises(ValueError, match="not a dtype's name"):
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
