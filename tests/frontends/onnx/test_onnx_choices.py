"""Attributes with a closed set of values: what is in the set is computed or refused by name, and
what is not is refused."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, defs, helper
from onnx_cases import IMAGE, X3, Case, below, numbers, whole
from onnx_choice_table import BY_VERSION, CASES, OPEN, RANDOM, WITHOUT_CASES
from onnx_judge import ML, expected, node_model, versions
from onnx_models import declared, made

import weft_onnx
from weft.errors import WeftError
from weft_onnx.choices import CHOICES, choices_of
from weft_onnx.errors import NodeError
from weft_onnx.nodes import lowering_of
from weft_onnx.schemas import has_body

Kind = defs.OpSchema.AttrType
SINGLE = (Kind.INT, Kind.STRING)
EVERY_SCHEMA = defs.get_all_schemas_with_history()


def schemas() -> Iterator[tuple[Any, int]]:
    """Yield each version of an op that weft may meet, and an opset that has it."""
    names = {(schema.domain, schema.name) for schema in EVERY_SCHEMA}
    for domain, op in sorted(names):
        for opset in versions(op, 1, 99, domain):
            yield defs.get_schema(op, opset, domain), opset


# What the table says, against the schemas.


def test_each_attribute_has_a_closed_set_or_is_known_to_have_none():
    unsettled = [
        (schema.domain, schema.name, schema.since_version, name)
        for schema in EVERY_SCHEMA
        for name in schema.attributes
        if (choices_of(schema.domain, schema.name, name, schema.since_version) is not None)
        == (name in OPEN or (schema.domain, schema.name, name) in OPEN)
    ]
    assert not unsettled


def test_the_table_names_attributes_that_exist():
    known = {(s.domain, s.name, name) for s in EVERY_SCHEMA for name in s.attributes}
    domains = {schema.domain for schema in EVERY_SCHEMA}
    assert {key for key in CHOICES if key[0] in domains} <= known


@cache
def closed_sets() -> list[tuple[Any, int, Any, Any]]:
    """Return schemas, an opset that has each, an attribute and its values."""
    return [
        (schema, opset, attribute, closed)
        for schema, opset in schemas()
        for name, attribute in schema.attributes.items()
        if (closed := choices_of(schema.domain, schema.name, name, opset)) is not None
    ]


def test_the_strings_of_a_set_stand_in_the_text_of_the_schema():
    for schema, opset, attribute, closed in closed_sets():
        text = (attribute.description + schema.doc).lower()
        missing = [each for each in closed if isinstance(each, str) and each.lower() not in text]
        assert not missing, (schema.name, opset, attribute.name)


def test_the_default_value_of_a_schema_is_in_the_set():
    for schema, opset, attribute, closed in closed_sets():
        if attribute.default_value.name:
            given = helper.get_attribute_value(attribute.default_value)
            several = given if isinstance(given, list) else [given]
            plain = {each.decode() if isinstance(each, bytes) else each for each in several}
            assert plain <= set(closed), (schema.name, opset, attribute.name)


# Values outside of a set.


def least_node(schema: Any, name: str, value: Any) -> Any:
    """Return the operands and attributes of a node that only the value makes invalid."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["a"], ["b"])], "g",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [1])],
    )  # fmt: skip
    some = {
        Kind.INT: 1, Kind.INTS: [1], Kind.FLOAT: 1.0, Kind.FLOATS: [1.0], Kind.STRING: "x",
        Kind.STRINGS: ["x"], Kind.GRAPH: graph,
        Kind.TENSOR: helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0]),
    }  # fmt: skip
    attributes = {n: some[a.type] for n, a in schema.attributes.items() if a.required}
    operands = [np.ones(1, np.float32)] * max(schema.min_input, 0)
    return operands, {**attributes, name: value}


@pytest.mark.parametrize("attribute", sorted({name for _, _, name in CHOICES}))
def test_a_value_outside_of_the_set_is_refused(attribute: str):
    for schema, opset, each, closed in closed_sets():
        if each.name == attribute:
            require_refusals(schema, opset, attribute, each.type, closed)


def require_refusals(schema: Any, opset: int, name: str, kind: Any, closed: Any) -> None:
    values = {
        Kind.INT: [-7, 99], Kind.INTS: [[0, 7]], Kind.STRING: ["quux", ""],
        Kind.STRINGS: [["quux"]],
        Kind.TENSOR: [helper.make_tensor("t", TensorProto.UINT8, [1], [99])],
    }[kind]  # fmt: skip
    for value in values:
        operands, attributes = least_node(schema, name, value)
        model, arrays = node_model(
            schema.name, opset, attributes, operands, max(schema.min_output, 1), schema.domain
        )
        if lowering_of(schema.domain, schema.name) is None and not has_body(schema):
            with pytest.raises(weft_onnx.UnsupportedNodes, match=schema.name):
                weft_onnx.load(model)
            continue
        with pytest.raises(NodeError, match=f"the {schema.name}.*attribute {name} is") as caught:
            weft_onnx.load(model).run(arrays, backend="numpy")
        assert all(str(each) in str(caught.value) for each in closed)


# Values inside of a set.


def variations(op: str, domain: str, opset: int, case: Case, most: int) -> list[dict[str, Any]]:
    """Return attributes: each value by itself, then some of all combinations."""
    schema, options = defs.get_schema(op, opset, domain), {}
    for name, attribute in schema.attributes.items():
        closed = choices_of(domain, op, name, opset)
        if name in case.fixed:
            continue
        if name in case.varied:
            options[name] = [
                each for each in case.varied[name]
                if each is None or closed is None or isinstance(each, list) or each in closed
            ]  # fmt: skip
        elif closed is not None and attribute.type in SINGLE:
            options[name] = [*([] if attribute.required else [None]), *closed]
    first = {name: values[0] for name, values in options.items()}
    found = [first]
    found += [{**first, name: each} for name, values in options.items() for each in values[1:]]
    draw = random.Random(f"{op} {opset}")
    names = list(options)
    if np.prod([len(each) for each in options.values()]) <= most:
        found += [dict(zip(names, each, strict=True))
                  for each in itertools.product(*options.values())]  # fmt: skip
    else:
        found += [{name: draw.choice(options[name]) for name in names} for _ in range(most)]
    unique = {repr(each): each for each in found}
    return [{**case.fixed, **each} for each in unique.values()]


def check(op: str, domain: str, opset: int, case: Case, attributes: dict[str, Any]) -> str:
    """Compare a node with its judge; returns why it was refused, if it was."""
    operands = list(case.operands(opset))
    given = {name: value for name, value in attributes.items() if value is not None}
    model, arrays = node_model(op, opset, given, operands, case.outputs, domain)
    try:
        found = list(weft_onnx.load(model).run(arrays, backend="numpy").values())
    except WeftError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        if not any(name in refusal for name in given):
            # The operands do not fit: the judge must say so too.
            with pytest.raises((ValueError, TypeError, IndexError)):
                expected(op, opset, given, operands, case.outputs, domain)
        return refusal
    wanted = expected(op, opset, given, operands, case.outputs, domain)
    assert len(found) == len(wanted)
    for result, want in zip(found, wanted, strict=True):
        compare(result, want, tolerance(case, given))
    return ""


COARSE = {TensorProto.FLOAT16: 4e-3, TensorProto.BFLOAT16: 5e-2}
"""What results may differ by that are computed in a type."""


def tolerance(case: Case, given: dict[str, Any]) -> float:
    types = [given.get(name) for name in ("softmax_precision", "stash_type")]
    return max([case.tolerance, *(COARSE.get(number, 0) for number in types)])


def compare(found: Any, want: Any, limit: float) -> None:
    if isinstance(want, list):
        assert isinstance(found, list)
        assert len(found) == len(want)
        for result, each in zip(found, want, strict=True):
            compare(result, each, limit)
        return
    found, want = np.asarray(found), np.asarray(want)
    assert found.shape == want.shape
    if want.dtype.kind in "OSU":
        assert list(map(str, found.reshape(-1))) == list(map(str, want.reshape(-1)))
        return
    assert found.dtype == want.dtype
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(found, want)
    else:
        own = {"float16": 2e-3, "bfloat16": 1e-2}.get(want.dtype.name, 0)
        near = max(limit, own) if want.dtype.itemsize > 1 else 0
        np.testing.assert_allclose(
            found.astype(np.float64), want.astype(np.float64), near, near, equal_nan=True
        )


ALL_CASES = {key: [*CASES.get(key, []), *BY_VERSION.get(key, [])] for key in CASES | BY_VERSION}
EVERY_OP = [
    pytest.param(domain, op, id=f"{domain}{'.' if domain else ''}{op}") for domain, op in ALL_CASES
]


@pytest.mark.parametrize(("domain", "op"), EVERY_OP)
@pytest.mark.filterwarnings("ignore")
def test_each_value_is_computed_as_its_definition_says(domain: str, op: str):
    cases = ALL_CASES[domain, op]
    opset = max(each for case in cases for each in versions(op, case.since, case.until, domain))
    case = next(each for each in cases if opset in versions(op, each.since, each.until, domain))
    several = variations(op, domain, opset, case, 0)
    refusals = [check(op, domain, opset, case, each) for each in several]
    assert not all(refusals)


@pytest.mark.long
@pytest.mark.parametrize(("domain", "op"), EVERY_OP)
@pytest.mark.filterwarnings("ignore")
def test_values_in_all_versions_and_combinations(domain: Any, op: Any):
    for case in ALL_CASES[domain, op]:
        for opset in versions(op, case.since, case.until, domain):
            for attributes in variations(op, domain, opset, case, 60):
                check(op, domain, opset, case, attributes)


def test_each_op_with_a_closed_set_and_a_lowering_has_a_case():
    wanted = {(domain, op) for domain, op, _ in CHOICES
              if domain in ("", ML) and lowering_of(domain, op) is not None}  # fmt: skip
    assert wanted - set(CASES) == set(WITHOUT_CASES) & wanted
    assert set(CASES) <= wanted | {(domain, op) for domain, op, _ in CHOICES}


UNFIT: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("Conv", [IMAGE, numbers(2, 4, 3, 3)], {"kernel_shape": [5, 5]}, "contradicts filters"),
    ("Conv", [IMAGE, numbers(2, 4, 3, 3)], {"pads": [1, 1]}, "pads has 2 numbers, of 4"),
    ("Conv", [IMAGE, numbers(2, 4, 3, 3)], {"strides": [1]}, "strides has 1 numbers, of 2"),
    ("ConvTranspose", [IMAGE, numbers(4, 4, 3, 3)], {"output_shape": [-5, 3]}, "lengths below 1"),
    ("Flatten", [X3], {"axis": -4}, "axis -4"),
    ("Flatten", [X3], {"axis": 4}, "axis 4"),
    ("GlobalLpPool", [IMAGE], {"p": 0}, "p is 0"),
    ("Split", [X3, whole(7, -3)], {"axis": 2}, "parts of"),
    ("ReverseSequence", [numbers(4, 4), whole(1, 1, 1, 1)], {"batch_axis": 0}, "both 0"),
    ("GatherElements", [X3, below(2, 2, 5, 4)], {"axis": 0}, "indices of the shape"),
    ("ScatterElements", [X3, below(2, 2, 3, 4), numbers(2, 3, 1)], {}, "updates of the shape"),
    ("DFT", [numbers(2, 6, 1), None, np.int64(1)], {"inverse": 1, "onesided": 1}, "onesided 1"),
    ("DFT", [numbers(2, 6, 2), None, np.int64(1)], {"onesided": 1}, "real numbers only"),
    ("RNN", [numbers(2, 1, 3), numbers(2, 5, 3), numbers(2, 5, 5)],
     {"direction": "bidirectional", "hidden_size": 5, "activations": ["Tanh"]}, "1 activations"),
    ("Resize", [IMAGE, None, np.float32([1, 1, 2, 2])],
     {"coordinate_transformation_mode": "tf_crop_and_resize"}, "roi"),
    ("Resize", [IMAGE, None, np.float32([1, 1, 2, 2])], {"exclude_outside": 1}, "exclude_outside"),
    ("RoiAlign", [IMAGE, numbers(1, 4), whole(0)], {"sampling_ratio": -1}, "sampling_ratio"),
]  # fmt: skip
"""Op, operands, attributes that do not fit them or one another, and what the error says."""


@pytest.mark.parametrize(("op", "operands", "attributes", "message"), UNFIT)
def test_attributes_that_do_not_fit_are_refused(
    op: str, operands: list[Any], attributes: dict[str, Any], message: str
):
    model, arrays = node_model(op, 22, attributes, operands)
    with pytest.raises(NodeError, match=f"the {op}.*{message}"):
        weft_onnx.load(model).run(arrays, backend="numpy")


def scan_model(opset: int, **attributes: Any) -> Any:
    """Return a model that adds up the rows of two matrices, and gives the sums on the way."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Mul", ["c", "s"], ["d"]),
            helper.make_node("Add", ["s", "c"], ["t"]), helper.make_node("Identity", ["t"], ["u"]),
        ],
        "body", [declared(name, [3]) for name in "sab"], [declared(n, [3]) for n in "tud"],
    )  # fmt: skip
    node = helper.make_node(
        "Scan", ["i", "x", "y"], ["o", "p", "q"], body=body, num_scan_inputs=2, **attributes
    )
    shapes = {"i": [3], "x": [4, 3], "y": [4, 3]}
    return made([node], [declared(n, shape) for n, shape in shapes.items()], "opq", opset=opset)


@pytest.mark.parametrize("opset", versions("Scan", 9, 99))
def test_directions_of_scans(opset: int):
    i, x, y = numbers(3), numbers(4, 3, seed=1), numbers(4, 3, seed=2)
    for inputs, outputs in itertools.product(itertools.product((0, 1), repeat=2), repeat=2):
        model = scan_model(opset, scan_input_directions=inputs, scan_output_directions=outputs)
        found = weft_onnx.load(model).run({"i": i, "x": x, "y": y}, backend="numpy")
        state, results = i, ([], [])
        for a, b in zip(*(e[::-1] if back else e for e, back in zip((x, y), inputs, strict=True)),
                        strict=True):  # fmt: skip
            results[1].append((a + b) * state)
            state = state + a + b
            results[0].append(state)
        stacked = [e[::-1] if back else e for e, back in zip(results, outputs, strict=True)]
        for result, want in zip(found.values(), (state, *map(np.array, stacked)), strict=True):
            np.testing.assert_allclose(result, want, 1e-5, 1e-5)


@pytest.mark.parametrize("new_axis", [0, 1])
def test_sequences_are_joined_along_an_axis_or_a_new_one(new_axis: int):
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "y"], ["s"]),
        helper.make_node("ConcatFromSequence", ["s"], ["z"], axis=-1, new_axis=new_axis),
    ]
    model = made(nodes, [declared("x", [2, 3]), declared("y", [2, 3])], ["z"])
    x, y = numbers(2, 3), numbers(2, 3, seed=1)
    want = np.stack([x, y], -1) if new_axis else np.concatenate([x, y], -1)
    np.testing.assert_array_equal(weft_onnx.load(model).run({"x": x, "y": y})["z"], want)


@pytest.mark.parametrize("op", [op for _, op in RANDOM])
def test_random_numbers_have_the_dtype_that_is_asked_for(op: str):
    for opset in versions(op, 6, 99):
        fixed = {"shape": [2, 3]} if not op.endswith(("Like", "ial", "lli")) else {}
        operands = [] if fixed else [np.full((2, 3), 0.5, np.float32)]
        for number in choices_of("", op, "dtype", opset):
            model, arrays = node_model(op, opset, {**fixed, "dtype": number}, operands)
            (found,) = weft_onnx.load(model).run(arrays, backend="numpy").values()
            assert found.dtype == helper.tensor_dtype_to_np_dtype(number)
