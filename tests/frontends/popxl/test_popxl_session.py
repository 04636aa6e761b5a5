"""Sessions: runs, streams, weights on host and device, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
import weft_popxl as popxl
from weft_popxl import ops

DATA = np.array([[1, 2, 3]], np.float32)


def program(transfers: int = 1) -> SimpleNamespace:
    """Return a program that adds what it loads to a variable, and stores the sum."""
    ir = popxl.Ir()
    ir.num_host_transfers = transfers
    with ir.main_graph, popxl.in_sequence():
        made = SimpleNamespace(
            ir=ir,
            source=popxl.h2d_stream((1, 3), popxl.float32, "source"),
            sink=popxl.d2h_stream((1, 3), popxl.float32, "sink"),
            total=popxl.variable(np.zeros((1, 3), np.float32), name="total"),
            unused=popxl.variable([1.0], name="unused"),
            constant=popxl.constant([5.0]),
        )
        for _ in range(transfers):
            ops.add_(made.total, ops.host_load(made.source))
            ops.host_store(made.sink, made.total)
    return made


@pytest.fixture(scope="module")
def opened(backend: str) -> Any:
    made = program()
    made.session = popxl.Session(made.ir, backend)
    return made


def test_runs_keep_what_they_change(opened: Any) -> None:
    session = opened.session
    session.write_variable_data(opened.total, np.zeros((1, 3), np.float32))
    with session:
        for count in (1, 2, 3):
            found = session.run({opened.source: DATA})
            np.testing.assert_array_equal(found[opened.sink], DATA * count)
        found[opened.sink][...] = 0
        np.testing.assert_array_equal(session.get_tensor_data(opened.total), DATA * 3)
    np.testing.assert_array_equal(session.get_tensor_data(opened.total), DATA * 3)
    with session:
        np.testing.assert_array_equal(session.run({opened.source: DATA})[opened.sink], DATA * 4)


def test_weights_are_written_inside_and_outside(opened: Any) -> None:
    session = opened.session
    session.write_variable_data(opened.total, DATA)
    np.testing.assert_array_equal(session.get_tensor_data(opened.total), DATA)
    with session, session:
        assert session.is_attached
        assert (session.run({opened.source: DATA})[opened.sink] == DATA * 2).all()
        session.write_variables_data({opened.total: DATA * 10, opened.unused: [2.0]})
        assert (session.run({opened.source: DATA})[opened.sink] == DATA * 11).all()
    assert not session.is_attached
    found = session.get_tensors_data([opened.total, opened.unused, opened.constant])
    assert [each.tolist() for each in found.values()] == [[[11, 22, 33]], [2], [5]]
    found[opened.total][...] = 0
    assert (session.get_tensor_data(opened.total) == DATA * 11).all(), "it was a copy"


def test_weights_stay_on_the_host_after_an_exception_or_if_told(backend: str) -> None:
    for told in (True, False):
        made = program()
        session = popxl.Session(made.ir, backend, weights_to_host_on_exit=not told)
        try:
            with session:
                session.run({made.source: DATA})
                if not told:
                    raise KeyError
        except KeyError:
            pass
        assert not session.is_attached
        assert not session.get_tensor_data(made.total).any()
        with session:
            assert (session.run({made.source: DATA})[made.sink] == DATA).all()
            session.weights_to_host()
        assert (session.get_tensor_data(made.total) == DATA).all()


def test_several_transfers_take_slices_in_order(backend: str) -> None:
    made = program(transfers=3)
    data = np.arange(9, dtype=np.float32).reshape(3, 1, 3)
    with popxl.Session(made.ir, backend) as session:
        outputs = session.create_host_outputs()
        assert outputs[made.sink].shape == (3, 1, 3)
        session.run_with_outputs({made.source: data}, outputs)
        np.testing.assert_array_equal(outputs[made.sink], data.cumsum(0))
        assert session.expected_inputs() == [made.source]
        again = session.run({made.source: data})[made.sink]
        np.testing.assert_array_equal(again, data.cumsum(0) + data.sum(0))


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (np.ones((1, 4), np.float32), ValueError, r"must have the shape \(1, 3\)"),
        (np.ones(3, np.float32), ValueError, "must have the shape"),
        (np.ones((2, 1, 3), np.float32), ValueError, "must have the shape"),
        (np.ones((1, 3), np.int32), TypeError, "must have the dtype float32, not int32"),
        (np.ones((1, 3), np.float16), TypeError, "must have the dtype float32"),
        (np.ones((1, 3), bool), TypeError, "must have the dtype float32"),
        ("text", TypeError, "is not a number"),
        (None, TypeError, "is not a number"),
    ],
)
def test_inputs_that_do_not_fit(opened: Any, value: Any, kind: Any, message: str) -> None:
    with opened.session, pytest.raises(kind, match=message) as caught:
        opened.session.run({opened.source: value})
    assert isinstance(caught.value, weft.WeftError)


@pytest.mark.parametrize("value", [np.ones((1, 3)), [[1, 1, 1]], [[1.0, 1.0, 1.0]]])
def test_inputs_that_are_narrowed(opened: Any, value: Any) -> None:
    with opened.session as session:
        session.write_variable_data(opened.total, np.zeros((1, 3), np.float32))
        assert (session.run({opened.source: value})[opened.sink] == 1).all()
        if isinstance(value, np.ndarray):
            with pytest.raises(TypeError, match="must have the dtype"):
                session.run({opened.source: value}, downcast_inputs=False)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda h: h.session.run({h.source: DATA}), ValueError, "run needs an open session"),
        (lambda h: h.session.run_with_outputs({}, {}), ValueError, "needs an open session"),
        (lambda h: h.session.weights_from_host(), ValueError, "needs an open session"),
        (lambda h: h.session.weights_to_host(), ValueError, "needs an open session"),
        (lambda h: h.session.get_tensor_data(h.sink), TypeError, "only variables and constants"),
        (lambda h: h.session.write_variable_data(h.constant, 1), TypeError, "only variables"),
        (lambda h: h.session.write_variable_data(h.total, np.ones((1, 3))), TypeError, "dtype"),
        (lambda h: h.session.write_variable_data(h.total, [1, 2]), ValueError, "of shape"),
        (
            lambda h: h.session.get_tensor_data(program().total),
            ValueError,
            "not a variable of this",
        ),
    ],
)
def test_what_is_refused_outside(opened: Any, call: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        call(opened)
    assert isinstance(caught.value, weft.WeftError)


def test_unexpected_and_missing_streams(opened: Any) -> None:
    other = program()
    with opened.session as session:
        with pytest.raises(ValueError, match="Missing input"):
            session.run()
        with pytest.raises(ValueError, match="Unexpected input"):
            session.run({opened.source: DATA, other.source: DATA})
        with pytest.raises(ValueError, match="Missing output"):
            session.run_with_outputs({opened.source: DATA}, {})
        for wrong in (np.ones((3, 1), np.float32), np.ones((1, 3))):
            with pytest.raises((ValueError, TypeError), match="must"):
                session.run_with_outputs({opened.source: DATA}, {opened.sink: wrong})


def test_a_session_is_a_snapshot() -> None:
    made = program()
    session = popxl.Session(made.ir)
    with made.ir.main_graph, popxl.in_sequence():
        ops.add_(made.total, 100.0)
        late = popxl.variable(1.0)
    with session:
        assert (session.run({made.source: DATA})[made.sink] == DATA).all()
        assert (session.get_tensor_data(made.total) == DATA).all()
        with pytest.raises(ValueError, match="not a variable of this session"):
            session.get_tensor_data(late)
    with popxl.Session(made.ir) as another:
        assert (another.run({made.source: DATA})[made.sink] == DATA).all()
        assert (another.get_tensor_data(made.total) == DATA + 100).all()
        assert another.get_tensor_data(late) == 1


@pytest.mark.parametrize("device", ["cpu", "ipu_model", "ipu_hw", "numpy"])
def test_names_of_devices_are_backends(device: str) -> None:
    made = program()
    with popxl.Session(made.ir, device) as session:
        assert (session.run({made.source: DATA})[made.sink] == DATA).all()
    assert device in repr(session)


def test_an_unknown_device_and_other_programs_are_refused() -> None:
    with pytest.raises(ValueError, match="quantum"):
        popxl.Session(program().ir, "quantum")
    with pytest.raises(TypeError, match="a session runs an Ir"):
        popxl.Session(3)  # type: ignore[arg-type]


def test_a_program_without_streams_runs() -> None:
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        x = popxl.variable(1)
        x += 1
    with popxl.Session(ir) as session:
        assert session.run() == {}
        assert session.get_tensor_data(ir.main_graph.variables[0]) == 2
    assert session.get_tensor_data(ir.main_graph.variables[0]) == 2
