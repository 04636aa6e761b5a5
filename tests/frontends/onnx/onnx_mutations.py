"""Mutations of models: fields of messages changed, moved and removed, and bytes flipped."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor

INTEGERS = (
    *(sign * (value + by) for value in (0, 4, 31, 1 << 16, 1 << 31, 1 << 40, 10**12)
      for by in (-1, 0, 1) for sign in (1, -1)),
    (1 << 63) - 1, -(1 << 63),
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.5, 1e38, -1e-38, float("inf"), float("-inf"), float("nan"))
STRINGS = (
    "", "x", "y", "nothing", "\0", "a\0b", "../x", "/etc/passwd", "/dev/zero", "n" * 5000, "é\n\t",
    "\u202e", "Constant", "Loop", "If", "ai.onnx", "SAME_UPPER", "1" * 5000, "-1",
)  # fmt: skip

VALUES = (onnx.AttributeProto, onnx.TensorProto, onnx.SparseTensorProto, onnx.TensorShapeProto)
"""Messages that hold numbers; changes of others are refused more often, so these get more."""

_RANGES = {
    FieldDescriptor.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_UINT64: (0, (1 << 64) - 1),
}


def messages(message: Any) -> Iterator[Any]:
    """Yield a message and all that are inside."""
    yield message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for each in value if field.is_repeated else [value]:
                yield from messages(each)


def mutated(model: onnx.ModelProto, donor: onnx.ModelProto, seed: int) -> bytes:
    """Return the bytes of a model with up to three changes; a donor gives parts of its own."""
    choose = random.Random(seed)
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    if choose.random() < 0.15:
        return _flipped(changed.SerializeToString(), choose)
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        found = list(messages(changed))
        values = [each for each in found if isinstance(each, VALUES)]
        target = choose.choice(values if values and choose.random() < 0.6 else found)
        field = choose.choice(_fields(target, choose))
        _change(target, field, [*found, *messages(donor)], choose)
    return bytes(changed.SerializeToString())


def _flipped(data: bytes, choose: random.Random) -> bytes:
    """Return bytes with some changed, and sometimes a range removed or repeated."""
    found = bytearray(data)
    for _ in range(choose.randint(1, 5)):
        byte = choose.choice((0, 1, 127, 128, 255, choose.randrange(256)))
        found[choose.randrange(len(found))] = byte
    if choose.random() < 0.3:
        start = choose.randrange(len(found))
        end = min(start + choose.choice((1, 4, 100)), len(found))
        found[start:end] = found[start:end] * choose.choice((0, 2))
    return bytes(found)


def _fields(message: Any, choose: random.Random) -> Sequence[Any]:
    """Return fields that may change: mostly those that are set."""
    known = [field for field, _ in message.ListFields()]
    return known if known and choose.random() < 0.8 else message.DESCRIPTOR.fields


def _change(message: Any, field: Any, pool: Sequence[Any], choose: random.Random) -> None:
    if field.is_repeated:
        _change_repeated(getattr(message, field.name), field, pool, choose)
    elif choose.random() < 0.15:
        message.ClearField(field.name)
    elif field.type == field.TYPE_MESSAGE:
        like = _like(pool, field, choose)
        if like is not None:
            getattr(message, field.name).CopyFrom(like)
    else:
        setattr(message, field.name, _scalar(field, getattr(message, field.name), pool, choose))


def _change_repeated(several: Any, field: Any, pool: Sequence[Any], choose: random.Random) -> None:
    is_message = field.type == field.TYPE_MESSAGE
    place = choose.randrange(len(several)) if several else 0
    match choose.choice(("remove", "add", "replace", "replace", "swap", "clear")):
        case "remove" if several:
            del several[place]
        case "clear" if choose.random() < 0.3:
            del several[:]
        case "swap" if len(several) > 1 and not is_message:
            several[place], several[0] = several[0], several[place]
        case "replace" if several and not is_message:
            several[place] = _scalar(field, several[place], pool, choose)
        case _ if is_message:
            like = _like(pool, field, choose)
            if like is not None:
                is_new = not several or choose.random() < 0.5
                (several.add() if is_new else several[place]).CopyFrom(like)
        case _:
            several.append(_scalar(field, several[place] if several else None, pool, choose))


def _like(pool: Sequence[Any], field: Any, choose: random.Random) -> Any:
    """Return a copy of a message of the type of a field; None if there is none."""
    found = [each for each in pool if each.DESCRIPTOR.full_name == field.message_type.full_name]
    if not found:
        return None
    chosen = choose.choice(found)
    copy = type(chosen)()
    copy.CopyFrom(chosen)
    return copy


def _scalar(field: Any, before: Any, pool: Sequence[Any], choose: random.Random) -> Any:
    match field.type:
        case FieldDescriptor.TYPE_FLOAT | FieldDescriptor.TYPE_DOUBLE:
            return choose.choice(FLOATS)
        case FieldDescriptor.TYPE_STRING:
            if choose.random() < 0.5:
                return choose.choice(STRINGS)
            others = [each.name for each in pool if hasattr(each, "name")]
            return choose.choice(others or STRINGS)
        case FieldDescriptor.TYPE_BYTES:
            data = before or b""
            if data and choose.random() < 0.6:
                return choose.choice((data[:-1], data + data, _flipped(data, choose)))
            return choose.choice(STRINGS).encode()
        case FieldDescriptor.TYPE_ENUM:
            return choose.choice([each.number for each in field.enum_type.values])
        case FieldDescriptor.TYPE_BOOL:
            return choose.random() < 0.5
    low, high = _RANGES[field.type]
    near = [before + by for by in (-1, 1)] if before is not None else []
    return choose.choice([each for each in (*INTEGERS, *near, *near * 5) if low <= each <= high])
