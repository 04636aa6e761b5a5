"""Serialization of generated code as JSON, for the compile cache."""

from __future__ import annotations

from typing import Any

from weft.cache.serialization import Deserializer, Serializer
from weft_numpy.blocks import BlockCall, CallerLine, ProgramCode, SourceBlock


def serialize(code: ProgramCode, serializer: Serializer) -> Any:
    """Return code as JSON."""
    return {
        "signature": code.signature,
        "blocks": [[block.lines, block.arrays] for block in code.blocks],
        "lines": [
            [line.text, line.depth, line.call and _serialize_call(line.call, serializer)]
            for line in code.lines
        ],
    }


def _serialize_call(call: BlockCall, serializer: Serializer) -> Any:
    return [
        call.block,
        [serializer.tensor(tensor) for tensor in call.tensors],
        serializer.values(call.values),
        call.callers,
        [serializer.origin(origin) for origin in call.origins],
    ]


def deserialize(deserializer: Deserializer) -> ProgramCode:
    """Return the code that `packed` returned as JSON."""
    fields = deserializer.code
    blocks = [SourceBlock(tuple(lines), tuple(arrays)) for lines, arrays in fields["blocks"]]
    code = ProgramCode(fields["signature"], blocks)
    for text, depth, call in fields["lines"]:
        code.lines.append(CallerLine(text, depth=depth))
        if call is None:
            continue
        block, numbers, values, callers, origins = call
        tensors = [deserializer.tensor(number) for number in numbers]
        block_call = BlockCall(block, tensors, deserializer.values(values), callers, origins)
        code.lines[-1].call = block_call
        for origin in set(origins):
            location = deserializer.location(origin)
            if location is not None:
                code.locations[origin] = location
    return code
