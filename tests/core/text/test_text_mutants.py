"""Texts of graphs that were changed at random: each is a graph that runs, or is refused."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.errors import WeftError

GOLDEN = Path(__file__).parents[2] / "passes" / "golden"
NUMBERS = (
    "0", "-1", "1", "2147483648", "9223372036854775808", "1e400", "3.5", "None", "True", "''",
    "[]", "()", "{}", "'x'", "1" * 5000,
)  # fmt: skip
WORDS = (
    "", "\0", "é", "\u202e", "\n", "(", ")", "[", "]", ",", ":", "=", "'", "\\", "None", "inf",
    "float32", "int64", "bool", "object", "v0", "v1", "*", "..", "x" * 5000,
)  # fmt: skip
EACH, CHUNKS = 500, 10


@cache
def texts() -> tuple[str, ...]:
    """Return the graphs of the golden tests of passes that can be read without states."""
    found = []
    for path in sorted(GOLDEN.glob("*.txt")):
        for part in re.split(r"^# .*$", path.read_text(), flags=re.MULTILINE):
            try:
                weft.parse(part)
            except WeftError:
                continue
            found.append(part)
    return tuple(found)


def mutated(text: str, choose: random.Random) -> str:
    """Return a text with up to three changes: of numbers, words, and lines."""
    for _ in range(choose.choice((1, 1, 2, 3))):
        words = [each.span() for each in re.finditer(r"\w+|[^\w\s]", text)] or [(0, 0)]
        numbers = [each.span() for each in re.finditer(r"-?\b\d+(\.\d+)?", text)] or words
        lines = text.split("\n")
        match choose.choice(("number", "number", "word", "moved word", "line", "no line")):
            case "number":
                start, end = choose.choice(numbers)
                text = text[:start] + choose.choice(NUMBERS) + text[end:]
            case "word":
                start, end = choose.choice(words)
                text = text[:start] + choose.choice(WORDS) + text[end:]
            case "moved word":
                (start, end), (first, last) = choose.choice(words), choose.choice(words)
                text = text[:start] + text[first:last] + text[end:]
            case "line":
                lines[choose.randrange(len(lines))] = choose.choice(lines)
                text = "\n".join(lines)
            case "no line":
                del lines[choose.randrange(len(lines))]
                text = "\n".join(lines)
    return text


def run(text: str) -> None:
    graph = weft.parse(text)
    if graph.symbols or sum(op.axes.size for op in graph.ops if op.is_tensor) > 10**7:
        return
    with weft.make_transformer("numpy", cache=False) as transformer:
        computation = transformer.computation(graph)
        inputs = computation.graph.inputs
        computation(*[np.ones(each.axes.shape, each.dtype) for each in inputs])


def tried(first: int, last: int) -> None:
    for seed in range(first, last):
        choose = random.Random(seed)
        text = mutated(choose.choice(texts()), choose)
        try:
            run(text)
        except WeftError:
            pass
        except Exception as error:
            raise AssertionError(f"seed {seed}: {text}") from error


@pytest.mark.filterwarnings("ignore")
def test_some_mutants_run_or_are_refused() -> None:
    tried(0, 200)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_mutants_run_or_are_refused(chunk: int) -> None:
    tried(EACH * (chunk + 1), EACH * (chunk + 2))
