"""Text to nodes: what is not a script gives an error with line and column, quickly."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hamkaas_models import MNIST, floats
from hypothesis import given, settings
from hypothesis import strategies as st

import weft_hamkaas as hk
from weft_hamkaas import ScriptError, parse_script

X = "$1 = InputTensor(x, float32, [2, 3]);\n"
DONE = "result = $1;\n"

MALFORMED = {
    "nothing": ("", 1, 1, "Output node is not defined"),
    "no result": (X, 2, 1, "Output node is not defined"),
    "no result, and no such node": (X + "$2 = ReLUNode($3);", 2, 19, "Output node is not defined"),
    "result in a name": ("$1 = InputTensor(result=$1, float32, [2]);", 1, 1, "is not a name"),
    "unknown result": (X + "result = $2;", 2, 10, "references unknown node (node = 2)"),
    "forward reference": ("$2 = ReLUNode($1);\n" + X + DONE, 1, 15, "unknown node (node = 1)"),
    "itself": ("$1 = ReLUNode($1);" + DONE, 1, 15, "unknown node"),
    "defined twice": (X + X + DONE, 2, 1, "Node is defined twice (node = 1)"),
    "unknown kind": (X + "$2 = TanhNode($1);", 2, 6, "Unknown node type TanhNode"),
    "no semicolon": (X + "result = $1", 2, 12, "expected ';', but the script ends"),
    "two semicolons": (X + ";" + DONE, 2, 1, "expected a statement"),
    "text at the end": (X + DONE + "x", 3, 1, "expected a statement"),
    "sign": (X + "$-2 = ReLUNode($1);", 2, 1, "expected a statement"),
    "too few operands": (X + "$2 = SumNode($1);", 2, 16, "expected ',', not ')"),
    "too many operands": (X + "$2 = ReLUNode($1, $1);", 2, 17, "expected ')'"),
    "number for a node": (X + "$2 = ReLUNode(1);", 2, 15, "expected a node"),
    "node for a number": (X + "$2 = SliceNode($1, $1, 2);", 2, 20, "expected a number"),
    "float for a number": (X + "$2 = SliceNode($1, 0.5, 2);", 2, 21, "expected ','"),
    "negative number": (X + "$2 = SliceNode($1, -1, 2);", 2, 20, "expected a number"),
    "empty list": (X + "$2 = ReshapeNode($1, []);", 2, 1, "Unsupported tensor dimension: 0"),
    "list of lists": (X + "$2 = ReshapeNode($1, [[6]]);", 2, 22, "expected a list of numbers"),
    "long list": (X + "$2 = ReshapeNode($1, [1, 2, 3, 1]);", 2, 22, "tensor dimension: 4"),
    "long permutation": (X + "$2 = PermuteNode($1, [0, 1, 2, 3]);", 2, 22, "dimension: 4"),
    "open list": (X + "$2 = ReshapeNode($1, [6;", 2, 22, "expected a list of numbers"),
    "huge number": ("$" + "9" * 5000 + " = ReLUNode($1);", 1, 2, "5000 digits is too large"),
    "huge number after zeros": ("$000" + "9" * 19 + "=ReLUNode($1);", 1, 2, "19 digits is too"),
    "huge length": ("$1 = InputTensor(x, float32, [" + "9" * 30 + "]);", 1, 30, "too large"),
    "huge tensor": ("$1 = InputTensor(x, int64, [999999999999, 9999999999]);", 1, 1, "any memory"),
    "float64": ("$1 = InputTensor(x, float64, [2]);" + DONE, 1, 1, "tensor type: float64"),
    "no such type": ("$1 = InputTensor(x, y, [2]);", 1, 1, "Unsupported tensor type: y"),
    "code for a name": ("$1 = InputTensor(__import__('os', float32, [2]);", 1, 1, "is not a name"),
    "no name": ("$1 = InputTensor(, float32, [2]);", 1, 18, "expected a name"),
    "missing constant": ("$1 = ConstantTensor(w, float32, [2]);", 1, 1, "constant 'w' is missing"),
    "other constant": ("$1 = ConstantTensor(c, float32, [3]);", 1, 1, "'c' is float32 [2], but"),
    "one name twice": (
        X + "$2 = InputTensor(x, float32, [2, 3]);\n$3 = SumNode($1, $2); result = $3;", 3, 23,
        "Multiple input tensors with name x",
    ),
    "shapes": (X + "\n  $2 = MatMulNode($1, $1);", 3, 3, "Shapes do not match for multiplication"),
}  # fmt: skip


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "BOM"])
@pytest.mark.parametrize("name", MALFORMED)
def test_an_error_has_line_and_column(name: str, mark: str):
    script, line, column, words = MALFORMED[name]
    if "result" not in script and not words.startswith("Output node"):
        script += DONE
    script = mark + script
    with pytest.raises(ScriptError) as caught:
        parse_script(script, {"c": floats(2)}, "model.hk")
    assert words in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(f"model.hk:{line}:{column}: ")
    assert len(str(caught.value)) < 1000


ACCEPTED = {
    "spaces in words": "$ 1=In put\nTensor( x ,\tflo at32,[ 2 ,3 ] ) ;res ult=$ 1;",
    "every kind of space": "\t$1\v=\fInputTensor(\rx,float32,\n[2,\r\n3]);\fresult\v=$1;\t",
    "no space at all": "$1=InputTensor(x,float32,[2,3]);result=$1;",
    "result first": "result = $1;" + X,
    "the last result counts": X + "$2 = ReshapeNode($1, [6]); result = $2; result = $1;",
    "any numbers": "$0041 = InputTensor(x, float32, [2, 3]); result = $41;",
    "many zeros": f"${'0' * 5000}1 = InputTensor(x, float32, [{'0' * 30}2, 3]);" + DONE,
    "a mark of the order of bytes": "\ufeff" + X + DONE,
    "dead statements": X + "$7 = BufferTensor(float32, [5]); $8 = ReLUNode($7);" + DONE,
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_grammar_allows_is_read(name: str):
    assert parse_script(ACCEPTED[name]).get_shape() == [2, 3]
    assert parse_script(ACCEPTED[name].encode()).get_shape() == [2, 3]


def test_a_dead_statement_is_not_part_of_the_model():
    node = parse_script(ACCEPTED["dead statements"])
    assert hk.traverse_node(node).script == X + DONE


def test_bytes_that_are_no_text_are_refused_where_they_are():
    with pytest.raises(ScriptError, match=r"model\.hk:2:3: byte 0xff is not text"):
        parse_script(X.encode() + b"  \xff\x00", filename="model.hk")
    with pytest.raises(ScriptError, match=r"model\.hk:1:2: byte 0xff is not text"):
        parse_script(b"\xef\xbb\xbf$\xff", filename="model.hk")


MEGABYTES = 10
LARGE = {
    "nesting": "$1 = ReLUNode(" * (MEGABYTES * 70_000),
    "brackets": "[" * (MEGABYTES << 20),
    "parentheses": "$1=SumNode(" + "(" * (MEGABYTES << 20),
    "digits": "$" + "1" * (MEGABYTES << 20),
    "open list": "$1=InputTensor(x,float32,[" + "1," * (MEGABYTES << 19),
    "list": "$1=InputTensor(x,float32,[" + "1," * (MEGABYTES << 19) + "1]);",
    "axes": X + "$2=PermuteNode($1,[" + "0," * (MEGABYTES << 19) + "1]);",
    "name": "$1=InputTensor(" + "x" * (MEGABYTES << 20) + " ü,float32,[1]);",
    "type": "$1=InputTensor(x," + "float" * (MEGABYTES << 18) + ",[1]);",
    "kind": "$1=" + "x" * (MEGABYTES << 20) + "(",
    "lines": "\n" * (MEGABYTES << 20),
    "spaces in between": "$ " * (MEGABYTES << 19),
    "dead buffers": "".join(f"${n}=BufferTensor(float32,[9]);" for n in range(30_000)),
}


@pytest.mark.share(6)
@pytest.mark.parametrize("end", ["", ";" + DONE], ids=["without a result", "with a result"])
@pytest.mark.parametrize("name", LARGE)
def test_ten_megabytes_of_anything_are_refused_quickly(name: str, end: str):
    script = LARGE[name] + end
    began = time.thread_time()
    with pytest.raises(ScriptError) as caught:
        parse_script(script)
    assert time.thread_time() - began < 5
    assert len(str(caught.value)) < 1000


def test_a_chain_without_a_result_is_refused_before_a_node_is_built():
    chain = "".join(f"${n}=ReLUNode(${n - 1});\n" for n in range(2, MEGABYTES * 42_000))
    began = time.thread_time()
    with pytest.raises(ScriptError, match=r"^<script>:420000:1: Output node is not defined"):
        parse_script("$1=InputTensor(x,float32,[2]);\n" + chain)
    assert time.thread_time() - began < 2.5


@settings(deadline=None)
@given(
    st.text(st.sampled_from("$=();,[] \n019resultReLUNodeInputTensorfloat32x") | st.characters())
)
def test_any_text_is_read_or_refused(text: str):
    refused_or_read(text)


@settings(deadline=None)
@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes):
    refused_or_read(data)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_script_with_a_mistake_is_read_or_refused(data: st.DataObject):
    script = list(data.draw(st.sampled_from([MNIST, X + DONE, ACCEPTED["spaces in words"]])))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(script)))
        end = data.draw(st.integers(at, min(at + 3, len(script))))
        script[at:end] = data.draw(st.text(max_size=3))
    refused_or_read("".join(script))


def refused_or_read(script: bytes | str):
    node, error = parsed(script)
    if error is None:
        written = hk.traverse_node(node).script
        assert hk.traverse_node(parse_script(written)).script == written
    else:
        text = script if isinstance(script, str) else script.decode(errors="replace")
        lines = text.split("\n")
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 1


def parsed(script: bytes | str):
    try:
        return parse_script(script), None
    except ScriptError as error:
        return None, error


def test_a_constant_may_be_of_any_kind_that_fits():
    script = "$1 = ConstantTensor(c, int64, [1]); result = $1;"
    assert parse_script(script, {"c": np.array([7])}).get_tensor().tolist() == [7]
    with pytest.raises(ScriptError, match="is int32"):
        parse_script(script, {"c": np.array([7], np.int32)})
    with pytest.raises(ScriptError, match="is missing"):
        parse_script(script, {"c": 7})


def test_two_buffers_of_one_name_are_refused_where_the_script_says_so():
    script = (
        "$1 = BufferTensor(b, float32, [2]);\n$2 = BufferTensor(b, float32, [2]);\n"
        "$3 = SumNode($1, $2);\nresult = $3;\n"
    )
    with pytest.raises(ValueError, match=r"4:.*Multiple buffer tensors with name b"):
        hk.parse_script(script)
