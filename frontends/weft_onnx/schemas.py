"""What the schemas of onnx say of a node: its function, and which operands have one type."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper

from weft.ir.op import Op
from weft_onnx.nodes import Node
from weft_onnx.values import HostRef, Value, dtype_of, shape_of


def function_of(node: Node) -> onnx.FunctionProto | None:
    """Return the body of an op whose schema has one."""
    proto = node.proto
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    try:
        schema = defs.get_schema(proto.op_type, node.version, domain)
    except defs.SchemaError:
        return None
    if not has_body(schema):
        return None
    found: onnx.FunctionProto | None
    if schema.has_function:  # type: ignore[attr-defined]
        found = _body_for(schema, node.version)
    else:
        found = _body_in_context(schema, node)
    if found is None:
        return None
    named = onnx.FunctionProto()
    named.CopyFrom(found)
    if not named.opset_import:
        named.opset_import.append(helper.make_opsetid("", node.version))
    defaults = {
        name: each.default_value
        for name, each in schema.attributes.items()
        if each.default_value.name
    }
    named.attribute_proto.extend(defaults.values())
    return named


def check_types(node: Node) -> None:
    """Raise NodeError for operands whose types differ though the specification wants one type."""
    known: dict[str, tuple[int, np.dtype[Any]]] = {}
    for index, (name, value) in enumerate(zip(_operand_types(node), node.inputs, strict=False)):
        if name and isinstance(value, Op | np.ndarray | HostRef):
            dtype = dtype_of(value)
            first, wanted = known.setdefault(name, (index, dtype))
            if dtype != wanted:
                raise node.error(
                    f"operands {first} and {index} must have one type, not {wanted} and {dtype}"
                )


def _operand_types(node: Node) -> list[str]:
    """Return the name of the type of each operand; empty for types that may differ."""
    found = _types_of(node.proto.op_type, node.version, node.proto.domain)
    if found is None:
        return []
    names, is_homogeneous = found
    missing = len(node.inputs) - len(names)
    return names + [names[-1] if is_homogeneous else ""] * missing if names else []


@lru_cache(maxsize=4096)
def _types_of(name: str, version: int, domain: str) -> tuple[list[str], bool] | None:
    try:
        schema = defs.get_schema(name, version, "" if domain == "ai.onnx" else domain)
    except defs.SchemaError:
        return None
    given = schema.inputs
    several = defs.OpSchema.FormalParameterOption.Variadic
    names = [
        "" if each.option == several and not each.is_homogeneous else each.type_str
        for each in given
    ]
    is_homogeneous = bool(given) and given[-1].option == several and given[-1].is_homogeneous
    return names, is_homogeneous


def has_body(schema: Any) -> bool:
    """Whether an op is a function of other ops."""
    return bool(schema.has_function or schema.has_context_dependent_function)


def _body_for(schema: Any, version: int) -> onnx.FunctionProto | None:
    versions = [each for each in schema.function_opset_versions if each <= version]
    if not versions:
        return None
    found: onnx.FunctionProto = onnx.FunctionProto.FromString(
        schema.get_function_with_opset_version(versions[-1])
    )
    return found


def _body_in_context(schema: Any, node: Node) -> onnx.FunctionProto | None:
    versions = [e for e in schema.context_dependent_function_opset_versions if e <= node.version]
    if not versions:
        return None
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    types = [_type_of(each).SerializeToString() for each in node.inputs]
    found = schema.get_context_dependent_function_with_opset_version(
        versions[-1], proto.SerializeToString(), types
    )
    body: onnx.FunctionProto = onnx.FunctionProto.FromString(found)
    return body


def _type_of(value: Value) -> onnx.TypeProto:
    if value is None:
        return onnx.TypeProto()
    if isinstance(value, list):
        element = _type_of(value[0]) if value else onnx.TypeProto()
        return helper.make_sequence_type_proto(element)
    number = helper.np_dtype_to_tensor_dtype(dtype_of(value))
    return helper.make_tensor_type_proto(number, shape_of(value))
