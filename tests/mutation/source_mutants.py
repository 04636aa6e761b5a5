"""Mutants of Python modules: functions with one expression that is another one.

All mutants of a tree are written into it at once. Each changed expression becomes a choice between
itself and the change, so that a process decides at run time which mutant it is, and takes note of
the changed expressions that its tests evaluate.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "//",
    ast.Pow: "*", ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<",
}  # fmt: skip

KINDS = (
    "comparison", "operator", "logic", "condition", "sign", "constant", "operands", "call",
)  # fmt: skip
"""A comparison, an operator, `and` or `or`, a condition, a minus or `not`, a number or bool, the
first two operands of a call, or a call that is a statement."""


@dataclass(frozen=True)
class Mutant:
    """One change of one expression.

    Attributes
    ----------
    path
        The module, relative to the tree.
    line
        The line on which the expression begins.
    start, end
        Where it is in the text of the module, as offsets in UTF-8.
    before, after
        The expression and what stands for it.
    kind
        What is changed: one of `KINDS`.
    """

    path: str
    line: int
    start: int
    end: int
    before: str
    after: str
    kind: str


def mutants_of(path: str, text: str) -> list[Mutant]:
    """Return all mutants of the functions of a module."""
    data = text.encode()
    begins = [0]
    for line in data.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))

    def source(node: ast.expr) -> str:
        return data[place(node)[0] : place(node)[1]].decode()

    def place(node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = begins[node.lineno - 1] + node.col_offset
        return start, begins[node.end_lineno - 1] + node.end_col_offset

    return [
        Mutant(path, node.lineno, *place(node), source(node), after, kind)
        for node in _expressions(ast.parse(text))
        for kind, after in _changes(node, source)
    ]


def _expressions(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions that functions evaluate, without those of errors and of annotations."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                yield from _within(statement)


def _within(node: ast.AST) -> Iterator[ast.expr]:
    skipped = (ast.Raise, ast.Assert, ast.JoinedStr, ast.FunctionDef, ast.ClassDef, ast.Import)
    if isinstance(node, skipped):
        return
    if isinstance(node, ast.expr):
        yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "targets", "target", "ctx"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                if isinstance(node, ast.Expr) and isinstance(child, ast.Call):
                    child.is_statement = True  # type: ignore[attr-defined]
                if name == "test" and isinstance(child, ast.expr):
                    child.is_test = True  # type: ignore[attr-defined]
                yield from _within(child)


def _changes(node: ast.expr, source: Callable[[ast.expr], str]) -> Iterator[tuple[str, str]]:
    """Yield the kinds of the mutants of an expression, and what stands for it."""
    if getattr(node, "is_test", False):
        yield "condition", f"not ({source(node)})"
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        (right,) = node.comparators
        sign = _COMPARISONS[type(node.ops[0])]
        yield "comparison", f"({source(node.left)}) {sign} ({source(right)})"
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        if not any(_is_text(each) for each in (node.left, node.right)):
            sign = _OPERATORS[type(node.op)]
            yield "operator", f"({source(node.left)}) {sign} ({source(node.right)})"
    elif isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield "logic", word.join(f"({source(each)})" for each in node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield "sign", f"({source(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "constant", str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield "constant", repr(node.value + 1)
    elif isinstance(node, ast.Call):
        if getattr(node, "is_statement", False):
            yield "call", "None"
        plain = [each for each in node.args if not isinstance(each, ast.Starred)]
        if len(plain) == len(node.args) >= 2:
            first, second, *others = map(source, node.args)
            rest = [*others, *map(_keyword(source), node.keywords)]
            yield "operands", f"{source(node.func)}({', '.join([second, first, *rest])})"


def _keyword(source: Callable[[ast.expr], str]) -> Callable[[ast.keyword], str]:
    return lambda each: (
        f"{each.arg}={source(each.value)}" if each.arg else f"**{source(each.value)}"
    )


def _is_text(node: ast.expr) -> bool:
    is_constant = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_constant or isinstance(node, ast.JoinedStr)


def choose(tree: Path, folders: Iterable[Sequence[str]], count: int, seed: int) -> list[Mutant]:
    """Return mutants at random, none within another, as many of each group of folders and kind."""
    groups = [*folders]
    draw = random.Random(seed)
    chosen: list[Mutant] = []
    for number, group in enumerate(groups):
        paths = sorted(path for folder in group for path in (tree / folder).rglob("*.py"))
        pool = [
            mutant
            for path in paths
            for mutant in mutants_of(path.relative_to(tree).as_posix(), path.read_text())
        ]
        draw.shuffle(pool)
        kinds = {kind: [each for each in pool if each.kind == kind] for kind in KINDS}
        wanted = count * (number + 1) // len(groups)
        while len(chosen) < wanted and any(kinds.values()):
            left = kinds[draw.choice(KINDS)]
            if left and not any(_overlap(left[-1], other) for other in chosen):
                chosen.append(left[-1])
            del left[-1:]
    return chosen


def _overlap(one: Mutant, other: Mutant) -> bool:
    return one.path == other.path and one.start < other.end and other.start < one.end


def write(tree: Path, mutants: Sequence[Mutant]) -> None:
    """Write all mutants into the modules of a tree; the numbers count from 1."""
    numbered = sorted(enumerate(mutants, 1), key=lambda each: -each[1].start)
    for number, mutant in numbered:
        path = tree / mutant.path
        data = path.read_bytes()
        choice = f'(({mutant.after}) if __import__("mutant_switch").is_on({number}) else '
        changed = [data[: mutant.start], choice.encode(), b"(", data[mutant.start : mutant.end]]
        path.write_bytes(b"".join([*changed, b"))", data[mutant.end :]]))
        compile(path.read_bytes(), str(path), "exec")
