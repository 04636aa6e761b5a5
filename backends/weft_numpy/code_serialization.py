"""Serialization of generated code as JSON, for the compile cache."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from weft.cache.serialization import Deserializer, Serializer
from weft_numpy.blocks import BlockCall, CallerLine, ProgramCode, SourceBlock


def serialize(code: ProgramCode, serializer: Serializer) -> Any:
    """Return code as JSON."""
    return {
        "signature": code.signature,
        "blocks": [[block.lines, block.arrays] for block in code.blocks],
        "atomic": code.is_atomic,
        "names": [[name, serializer.value(value)] for name, value in code.names.items()],
        "lines": [
            [line.text, line.depth, line.call and _serialize_call(line.call, serializer)]
            for line in code.lines
        ],
    }


def _serialize_call(call: BlockCall, serializer: Serializer) -> Any:
    origins = [serializer.origin(origin) for origin in call.origins]
    return [
        call.block,
        [serializer.tensor(tensor) for tensor in call.tensors],
        serializer.values(call.values),
        call.callers,
        [[origin, len(list(several))] for origin, several in groupby(origins)],
    ]


def deserialize(deserializer: Deserializer) -> ProgramCode:
    """Return the code that `packed` returned as JSON."""
    found = deserializer.code
    blocks = [SourceBlock(tuple(lines), tuple(arrays)) for lines, arrays in found["blocks"]]
    code = ProgramCode(found["signature"], blocks, is_atomic=found["atomic"])
    code.names = {name: deserializer.value(value) for name, value in found["names"]}
    for text, depth, call in found["lines"]:
        code.lines.append(CallerLine(text, depth=depth))
        if call is None:
            continue
        block, tensors, values, callers, runs = call
        places = [deserializer.tensor(number) for number in tensors]
        origins = [origin for origin, count in runs for _ in range(count)]
        made = BlockCall(block, places, deserializer.values(values), callers, origins)
        code.lines[-1].call = made
        for origin, _ in runs:
            location = deserializer.location(origin)
            if location is not None:
                code.locations[origin] = location
    return code
