"""Expression: the C expression of an elementwise op, for scalars and vectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.errors import PluginError
from weft.ir import dtypes
from weft.ir.op import Op
from weft_c.source.values import ROUNDED, ValueEmitter

ExpressionWriter = Callable[[Any, ValueEmitter, Sequence[str]], str]
"""Returns the expression of an op, given the emitter of values and the names of the operands."""

_FIELD = re.compile(r"\{(\w+|\d+\.\d*(?:e[+-]?\d+)?)\}")


@dataclass(frozen=True)
class Expression:
    """The C expression of an elementwise op: a rule that also lets the op be fused.

    >>> Expression("hypot({0}, {1})", vectors=["float32"])
    Expression(text='hypot({0}, {1})', helpers='', vectors=('float32',))

    Attributes
    ----------
    text
        The expression. In it ``{0}`` and ``{1}`` are the operands, names of variables of C;
        ``{type}`` is the type of the first operand in C, such as ``f32``; ``{slope}`` is the number
        in the op's field `slope`, and ``{0.5}`` that number, in this type;
        ``{select}(condition, x, y)`` chooses. Other braces are those of C. The result is rounded to
        the op's dtype. Floats of 16 bits are ``f32``, bools are ``i32``.

        Or a function of the op, a `ValueEmitter` and the names of the operands that returns the
        expression, rounded (`ValueEmitter.rounded`). Or a mapping to texts or functions from the
        names of the first operand's dtypes: ops of other dtypes are refused then. ``float32`` also
        stands for floats of 16 bits.
    helpers
        The functions in C that the expression calls. They begin with the word ``FUNCTION`` and may
        use the words of `Dialect`. ``{type}`` is as above, so there is one version for each type
        in use: ``FUNCTION {type} cube_{type}({type} x) { return x * x * x; }``.
    vectors
        The names of the dtypes whose vectors the text takes as well, of bool, int32, uint32,
        float32 and float64. A kernel computes vectors where that is so for all of its ops and their
        operands, with float64 beside bool alone, else one element after the other.
    """

    text: str | ExpressionWriter | Mapping[str, str | ExpressionWriter]
    helpers: str = ""
    vectors: Collection[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "vectors", tuple(self.vectors))
        if isinstance(self.text, Mapping):
            object.__setattr__(self, "text", dict(self.text))

    def takes(self, op: Op) -> bool:
        """Whether it computes an op of these dtypes; it does not for complex numbers."""
        is_real = all(value.dtype.kind != "c" for value in (op, *op.args))
        return is_real and self._written(op) is not None

    def takes_vectors(self, op: Op) -> bool:
        """Whether it takes vectors of an op's dtypes."""
        return all(value.dtype.name in self.vectors for value in (op, *op.args))

    def __call__(self, op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
        """Return the expression of an op's result, given the names of its operands."""
        written = self._written(op)
        assert written is not None, "it was asked whether it takes the op"
        if self.helpers:
            emitter.code.add_helpers(self._filled(self.helpers, op, emitter, ()))
        if not isinstance(written, str):
            return written(op, emitter, args)
        text = self._filled(written, op, emitter, args)
        return text if dtypes.is_bool(op.dtype) else emitter.rounded(op.dtype, text)

    def _written(self, op: Op) -> str | ExpressionWriter | None:
        if not isinstance(self.text, Mapping):
            return self.text
        name = op.args[0].dtype.name
        return self.text.get(name) or self.text.get("float32" if name in ROUNDED else name)

    def _filled(self, text: str, op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
        """Return a text with its fields filled in."""
        dtype = op.args[0].dtype

        def value(found: re.Match[str]) -> str:
            name = found[1]
            if name == "type":
                return emitter.type(dtype)
            if name == "select":
                return "SELECT" if emitter.is_vector else "CHOICE"
            if "." in name:
                return emitter.constant(float(name), dtype)
            if name.isdigit() and int(name) < len(args):
                return args[int(name)]
            number = getattr(op, name) if name in op.fields else None
            if isinstance(number, int | float):
                return emitter.constant(number, dtype)
            raise PluginError(op.explain(self._unknown(name, op)))

        return _FIELD.sub(value, text)

    def _unknown(self, name: str, op: Op) -> str:
        known = ["{type}", "{select}", *(f"{{{n}}}" for n in range(len(op.args)))]
        known += [f"{{{each}}}" for each in op.fields if isinstance(getattr(op, each), int | float)]
        return (
            f"its C expression has {{{name}}}, which is neither an operand nor a number among the "
            f"op's fields: it may have {', '.join(known)}"
        )
