"""Encoders of categories, as numbers or strings."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.ir.dtypes import Array
from weft_onnx.nodes import ML, Node, cast, lowers
from weft_onnx.values import dtype_of


@lowers("OneHotEncoder", domain=ML)
def one_hot_encoder(node: Node) -> Any:
    """Return for each category 1 where an element is that, and 0 elsewhere.

    An element that is not a category has zeros, or is an error if the node says so; such elements
    and strings are looked at on the host.
    """
    names, whole = node.attr("cats_strings"), node.attr("cats_int64s")
    if bool(names) == bool(whole):
        raise node.error("it needs either cats_strings or cats_int64s")
    categories = np.array(list(names or whole), object if names else np.int64)
    takes_text = dtype_of(node.raw(0)).kind in "OUS"
    if takes_text != bool(names):
        raise node.error("its categories are not of the type of its operand")
    if not takes_text and node.flag("zeros", True):
        x = weft.unsqueeze(cast(node[0], "int64"), node.rank())
        return cast(weft.equal(x, weft.constant(categories)), "float32")

    def encoded(x: Array) -> list[Array]:
        given = x if takes_text else x.astype(np.int64)
        found = given[..., None] == categories
        if not node.flag("zeros", True) and not found.any(-1).all():
            unknown = given[~found.any(-1)].tolist()[0]
            raise node.error(f"an element is {unknown!r}, which is not one of its categories")
        return [found.astype(np.float32)]

    return node.host(encoded, node.raw(0))[0]


@lowers("CategoryMapper", domain=ML)
def category_mapper(node: Node) -> Any:
    """Replace strings by integers, or integers by strings, on the host."""
    names, numbers = node.required("cats_strings"), node.required("cats_int64s")
    if len(names) != len(numbers):
        raise node.error(f"it has {len(names)} cats_strings for {len(numbers)} cats_int64s")
    if dtype_of(node.raw(0)).kind in "OUS":
        table: dict[Any, Any] = dict(zip(names, numbers, strict=True))
        default, dtype = node.attr("default_int64", -1), "int64"
    else:
        table = dict(zip(numbers, names, strict=True))
        default, dtype = node.attr("default_string", "_Unused"), "object"

    def mapped(x: Array) -> list[Array]:
        found = [table.get(each, default) for each in x.reshape(-1).tolist()]
        return [np.array(found, dtype).reshape(x.shape)]

    return node.host(mapped, node.raw(0))[0]
