"""Trees: arrays in nested tuples, lists, dicts, named tuples, dataclasses and None.

optree flattens and rebuilds them. A dataclass becomes a node when it is first seen; fields with
``metadata={"static": True}`` are part of the structure, and so are all fields of a class with a
true `is_structure`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from weft.errors import ArgumentError, MissingPackage

NAMESPACE = "weft"

Structure = Any
"""The structure of a tree, without its leaves: an `optree.PyTreeSpec`."""


@cache
def _optree() -> ModuleType:
    try:
        import optree  # in no program that has no functions
    except ImportError as error:
        problem = f"functions of trees, such as jit, need optree ({error}): pip install optree, or"
        raise MissingPackage(f"{problem} make computations of placeholders") from error
    return optree


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Return the leaves of a tree, and its structure."""
    leaves, structure = _optree().tree_flatten(tree, namespace=NAMESPACE)
    kinds = [kind for kind in {*map(type, leaves)} if hasattr(kind, "__dataclass_fields__")]
    if not kinds:
        return leaves, structure
    for kind in kinds:
        _register(kind)
    return flatten(tree)


def _register(kind: type[Any]) -> None:
    """Make a dataclass a node of trees."""
    fields = dataclasses.fields(kind)
    all_static = getattr(kind, "is_structure", False)
    static = [each.name for each in fields if all_static or each.metadata.get("static")]
    names = [each.name for each in fields if each.name not in static]

    def take_apart(value: Any) -> tuple[list[Any], tuple[Any, ...], tuple[str, ...]]:
        fixed = tuple(getattr(value, name) for name in static)
        return [getattr(value, name) for name in names], fixed, tuple(names)

    def put_together(fixed: tuple[Any, ...], children: Sequence[Any]) -> Any:
        # Fields may be set by __post_init__ or not taken by __init__ at all.
        value = object.__new__(kind)
        for name, each in zip((*names, *static), (*children, *fixed), strict=True):
            object.__setattr__(value, name, each)
        return value

    entry = _optree().GetAttrEntry
    _optree().register_pytree_node(
        kind, take_apart, put_together, path_entry_type=entry, namespace=NAMESPACE
    )


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Any:
    """Return the tree of a structure with these leaves."""
    return structure.unflatten(leaves)


def map_leaves(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return a tree of what a function returns for each leaf, and those of trees like it."""
    leaves, structure = flatten(tree)
    rest = [leaves_like(structure, other) for other in others]
    return unflatten(structure, [function(*each) for each in zip(leaves, *rest, strict=True)])


def leaves_like(
    structure: Structure, tree: Any, what: str = "the tree", root: str = "tree"
) -> list[Any]:
    """Return the leaves of a tree of a structure; raises ArgumentError where it is another."""
    leaves, own = flatten(tree)
    if own != structure:
        raise ArgumentError(f"{what} has {difference(own, structure, root)}")
    return leaves


def difference(structure: Structure, wanted: Structure, root: str) -> str:
    """Return how a structure differs from another one, with the first leaves that one lacks."""
    found = f"the structure {shown(structure)}, not {shown(wanted)}"
    if structure.is_leaf() or wanted.is_leaf():
        return found
    own, others = (paths(each, root) for each in (structure, wanted))
    missing = [f"{path} is missing" for path in others if path not in own]
    extra = [f"{path} is one too many" for path in own if path not in others]
    leaves = ", ".join(missing[:1] + extra[:1])
    return f"{found}: {leaves}" if leaves else found


def one_level(tree: Any) -> dict[Any, Any] | None:
    """Return the children of a node by their entries; None for a leaf."""
    if is_leaf(tree):
        return None
    children, _, entries, _ = _optree().tree_flatten_one_level(tree, namespace=NAMESPACE)
    return dict(zip(entries, children, strict=True))


def is_leaf(tree: Any) -> bool:
    """Whether a tree is a single leaf."""
    return bool(flatten(tree)[1].is_leaf())


def flatten_up_to(structure: Structure, tree: Any) -> list[Any]:
    """Return the trees in the places of the leaves of a structure."""
    return structure.flatten_up_to(tree)  # type: ignore[no-any-return]


def joined(*structures: Structure) -> Structure:
    """Return the structure of a tuple of trees of these structures."""
    return _optree().treespec_tuple(structures, namespace=NAMESPACE)


def children(structure: Structure) -> list[Structure]:
    """Return the structures of the trees in a tuple."""
    found: list[Structure] = structure.children()
    return found


def paths(structure: Structure, root: str = "") -> list[str]:
    """Return how each leaf is written, as in ``params['w'][0]`` for the root ``params``."""
    return [accessor.codify(root) for accessor in structure.accessors()]


def dotted_names(structure: Structure) -> list[str]:
    """Return the keys, numbers and fields that lead to each leaf, as in ``layers.0.weight``."""
    return [".".join(_keys(accessor)) for accessor in structure.accessors()]


def scopes(structure: Structure, root: str) -> list[str]:
    """Return the name of a scope for each leaf, as in ``params/w/0`` for the root ``params``."""
    return ["/".join([root, *_keys(accessor)]) for accessor in structure.accessors()]


def _keys(accessor: Iterable[Any]) -> list[str]:
    return [str(getattr(each, "field", each.entry)) for each in accessor]


def paths_of_call(structure: Structure) -> list[str]:
    """Return how each leaf of a pair of positional and keyword arguments is written."""
    return [
        each[1:].codify("args") if not each[0].entry else each[2:].codify(each[1].entry)
        for each in structure.accessors()
    ]


def shown(structure: Structure) -> str:
    """Return a structure as text, as in ``{'b': *, 'w': *}``."""
    text = str(structure).removeprefix("PyTreeSpec(").removesuffix(")")
    return text.removesuffix(f", namespace={NAMESPACE!r}")
