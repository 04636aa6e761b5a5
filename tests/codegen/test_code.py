"""Function bodies under construction: what is shared, and where it is in scope."""

from __future__ import annotations

from weft_c.loops.parallel import unravel_index
from weft_c.source.code import Code


def test_constants_are_shared_in_a_block_and_those_inside_and_not_after_it() -> None:
    code = Code()

    def index() -> tuple[str, ...]:
        return code.shared(((3, 4), "k"), lambda: unravel_index(code, (3, 4), "k", "i32"))

    with code.block("for (i32 k = 0; k < 12; k++)"):
        outer = index()
        with code.block():
            assert index() == outer
    assert str(code).count("k % 4") == 1
    with code.block("for (i32 k = 0; k < 12; k++)"):
        assert index() != outer
    assert str(code).count("k % 4") == 2
