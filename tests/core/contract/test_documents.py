"""The programs of the two documents, in their words; `ng` is weft."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft as ng
from weft import visit
from weft.ir import ax
from weft.ops.pointwise.elementwise import Add, Multiply
from weft.support.ordered_set import OrderedSet

# Document 001, Building graphs


def test_data_dependencies():
    x = ng.constant(0)
    y = ng.constant(1)
    mysum = ng.add(x, y)
    assert type(mysum) is Add
    assert Add.__name__ == "AddOp"
    assert isinstance(mysum, ng.Op)
    assert mysum.args == (x, y)
    assert repr(mysum.args) == (
        f"(<AssignableTensorOp(<Const(0)>):{id(x)}>, <AssignableTensorOp(<Const(1)>):{id(y)}>)"
    )


def test_initializers():
    x = ng.constant(0)
    mysum = ng.add(x, ng.constant(1))
    assert not mysum.initializers
    (init,) = x.initializers
    assert repr(init).startswith("<InitTensorOp(InitTensorOp_")


def test_non_data_control_dependencies(transformer):
    x = ng.placeholder((), initial_value=0)
    a = ng.assign(x, 5)
    z = x + 1
    assert repr(list(z.other_deps)).startswith("[<AssignOp(AssignOp_")
    assert type(z.other_deps) is OrderedSet
    assert z.other_deps.pop() is a
    assert transformer.computation(z)() == 6


def test_1_2_3(transformer):
    # set w
    w = ng.variable((), initial_value=0)

    # update op
    update_op = ng.assign(w, w + 1)

    w_comp = transformer.computation(w)

    assert isinstance(update_op, ng.Op)
    assert [w_comp().item(), w_comp().item(), w_comp().item()] == [1, 2, 3]


def test_0_0_0(transformer):
    w = ng.variable((), initial_value=0)
    with ng.Op.saved_user_deps():
        update_op = ng.assign(w, w + 1)
    w_comp = transformer.computation(w)
    assert [w_comp().item(), w_comp().item(), w_comp().item()] == [0, 0, 0]

    w_comp = transformer.computation([w, update_op])
    assert [w_comp()[0].item(), w_comp()[0].item(), w_comp()[0].item()] == [1, 2, 3]


def test_general_properties_of_ops():
    axes = ng.make_axes([ng.make_axis(3, "C")])
    op = ng.placeholder(axes, metadata={"stochastic": "dropout"})
    assert op.axes == axes
    op.name = "dropped"
    assert op.name == "dropped"
    assert op.metadata["stochastic"] == "dropout"
    assert op.filename == __file__
    assert op.file_info == f'File "{__file__}", line {op.lineno}'


def test_ops_influencing_evaluation(transformer):
    x = ng.placeholder((ax.C, ax.W, ax.H, ax.N))
    stored = x
    x = x + x
    assert x is not stored
    p = ng.placeholder((2,), initial_value=[1, 2])
    double = ng.SetItem(p, p + p)
    assert transformer.computation([double, p])()[1].tolist() == [2, 4]

    x = ng.placeholder((2,))
    x1 = x + x
    y = x1 * x1 - x
    plan = transformer.computation(y, x).plan
    (step,) = plan.steps
    computed = [type(each.op).__name__ for each in step.op.kernel.body]
    assert computed == ["AddOp", "MultiplyOp", "SubtractOp"]
    assert plan.arena_size == 0
    both = transformer.computation([x1, y], x)
    assert [v.tolist() for v in both([1, 2])] == [[2, 4], [3, 14]]


def test_derivatives(transformer):
    x = ng.placeholder((ax.C, ax.W, ax.H, ax.N))
    y0 = ng.placeholder((ax.Y, ax.N))
    w = ng.variable((ax.C, ax.W, ax.H, ax.Y))
    b = ng.variable((ax.Y,))
    y = ng.tanh(ng.dot(w, x) + b)
    c = ng.squared_L2(y - y0)
    d = ng.deriv(c, w)

    assert list(c.variables()) == [w, b]
    assert d.axes == w.axes
    given = transformer.computation(d, x, y0)
    rng = np.random.default_rng(0)
    for batch in (4, 7):
        images = rng.normal(size=(2, 3, 2, batch)).astype(np.float32)
        labels = rng.normal(size=(5, batch)).astype(np.float32)
        # With w and b zero, y is 0 and dc/dw is -2 x y0.
        expected = np.einsum("cwhn,yn->cwhy", images, -2 * labels)
        np.testing.assert_allclose(given(images, labels), expected, rtol=1e-4, atol=1e-5)


def test_schemas():
    x = ng.placeholder(ng.make_axis(20, "C"))
    s = ng.softmax(x)
    assert [type(schema).__name__ for schema in s.schemas] == ["Softmax"]
    assert type(s).__name__ == "DivideOp"


# Document 000, Transformer implementation


class PrunesZero(weft.PeepholeGraphPass):
    """The SimplePrune of the document, letter for letter."""

    @visit.on_type(Add)
    def visit(self, op):
        x, y = op.args
        rep = None
        if x.is_scalar and x.is_constant:
            if x.const == 0:
                rep = y
        elif y.is_scalar and y.is_constant:  # noqa: SIM102
            if y.const == 0:
                rep = x
        if rep is not None:
            self.replace_op(op, rep)


class TwoVisitors(weft.PeepholeGraphPass):
    """Overloads one name, as the reference's passes do."""

    @visit.on_type(Add)
    def visit(self, op):
        self.replace_op(op, ng.subtract(op.args[0], -op.args[1]))

    @visit.on_type(Multiply)
    def visit(self, op):
        self.replace_op(op, ng.divide(op.args[0], 1 / op.args[1]))


def test_a_pass_as_the_document_writes_it():
    transformer = weft.make_transformer("numpy", passes=[])
    transformer.register_graph_pass(PrunesZero())
    x = ng.placeholder((2,))
    y = 0 + (x + 0)
    c = transformer.computation(ng.tanh(y), x)
    assert [type(op).__name__ for op in c.program.graph.ops] == ["ParameterOp", "TanhOp"]
    assert y.args[1].args[0] is x


def test_visitors_of_one_name_add_up():
    x = ng.placeholder((2,))
    transformer = weft.make_transformer("numpy", passes=["decompose", TwoVisitors()])
    c = transformer.computation((x + 3) * 2, x)
    kinds = {type(op).__name__ for op in c.program.graph.ops}
    assert "AddOp" not in kinds
    assert "MultiplyOp" not in kinds
    np.testing.assert_allclose(c([1, 2]), [8, 10])


class Recorder(weft.NumPyTransformer):
    """Notes the steps of the life cycle."""

    def __init__(self, **options):
        super().__init__(**options)
        self.log = []

    def run_registered_graph_passes(self, programs):
        programs = list(programs)
        self.log.append(("passes", [program.name for program in programs]))
        super().run_registered_graph_passes(programs)

    def initialize_tensor_descriptions(self, program):
        before = set(self.device_buffers)
        super().initialize_tensor_descriptions(program)
        new = [storage for storage in self.device_buffers if storage not in before]
        self.log.append(("describe", program.name, [(s.name, s.allocated) for s in new]))

    def start_transform_allocate(self):
        self.log.append(("start allocation", len(self.allocations)))

    def finish_transform_allocate(self):
        self.log.append(("finish allocation", len(self.allocations)))

    def transform_ordered_ops(self, program, ordered_ops, name):
        place = {step.op: number for number, step in enumerate(ordered_ops)}
        for op, number in place.items():
            assert all(place.get(arg, -1) < number for arg in op.args)
        self.log.append(("transform", name, [type(step.op).__name__ for step in ordered_ops]))
        return super().transform_ordered_ops(program, ordered_ops, name)

    def finish_transform(self):
        self.log.append(("finish",))

    def allocate_storage(self):
        assert not any(action.__self__.allocated for action in self.allocations)
        self.log.append(("allocate", len(self.allocations)))
        super().allocate_storage()


def computed(*values):
    """Return what a program computes; constants are copied without one."""
    return ng.exp(ng.log(ng.constant(np.array(values, np.float32))))


def test_the_life_cycle_of_a_transformer():
    transformer = Recorder()
    w = ng.variable((2,), initial_value=computed(1, 2), name="w")
    x = ng.placeholder((2,), name="x")
    first = transformer.computation(ng.tanh(w * x) + ng.exp(x), x, name="first")
    assert list(transformer.computations) == [first]
    assert list(transformer.all_results) == list(first.results)
    assert transformer.log == []
    assert len(transformer.device_buffers) == 0

    first([1, 1])
    kinds = [entry[0] for entry in transformer.log]
    assert kinds == [
        "passes", "passes", "describe", "describe", "start allocation", "finish allocation",
        "transform", "transform", "finish", "allocate",
    ]  # fmt: skip
    log = transformer.log
    assert log[0][1] == ["first_1"]
    assert log[1][1] == [f"{transformer.init_computation.name}_2"]
    assert (w.name, False) in log[2][2]
    assert ("arena", False) in log[2][2]
    assert log[4] == ("start allocation", 0)
    assert log[5] == ("finish allocation", len(transformer.device_buffers))
    assert log[6][1:] == ("first_1", ["FusedOp"])
    assert log[9] == ("allocate", len(transformer.device_buffers))
    assert callable(first.executor)


def test_initialization_is_incremental():
    transformer = Recorder()
    w = ng.variable((2,), initial_value=computed(1, 2), name="w")
    transformer.computation(w * 2)()
    transformer.log.clear()
    v = ng.variable((2,), initial_value=computed(3, 4), name="v")
    later = transformer.computation(ng.tanh(w + v), name="later")
    assert transformer.log == []
    np.testing.assert_allclose(later(), np.tanh([4, 6]), rtol=1e-5)
    described = {entry[1]: entry[2] for entry in transformer.log if entry[0] == "describe"}
    assert [name for name, _ in described["later_3"]] == [v.name]
    (transformed,) = (e for e in transformer.log if e[0] == "transform" and e[1] != "later_3")
    assert transformed[2] == ["ContiguousOp"]
    transformer.log.clear()
    later()
    transformer.initialize()
    assert transformer.log == []


def test_initialize_can_be_called_by_hand():
    transformer = Recorder()
    x = ng.placeholder((2,))
    c = transformer.computation(x + 1, x)
    transformer.initialize()
    assert transformer.initialized
    transformer.log.clear()
    assert c([1, 2]).tolist() == [2, 3]
    assert transformer.log == []


def test_computations_can_be_created_after_initialization_unless_that_is_refused():
    x = ng.placeholder(())
    strict = weft.make_transformer("numpy", strict_finalize=True)
    c = strict.computation(x + 1, x)
    strict.initialize()
    with pytest.raises(ValueError, match="Cannot create computations from a finalized transformer"):
        strict.computation(x + 2, x)
    assert c(1).item() == 2
