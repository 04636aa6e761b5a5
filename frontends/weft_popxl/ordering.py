"""A check that in-place changes and other accesses of a storage are ordered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.support import source
from weft_popxl.errors import popart_exception
from weft_popxl.program import Record
from weft_popxl.storage import Storage


def check_order(records: Sequence[Record]) -> None:
    """Raise popart_exception if the order of an in-place change and another access is undefined.

    Two accesses of a storage are ordered by operands or by `in_sequence`, also transitively. If one
    of them changes the storage, the result depends on their order.
    """
    written = {storage for record in records for storage in record.writes}
    if not written:
        return
    accesses: dict[Storage, list[int]] = {storage: [] for storage in written}
    for number, record in enumerate(records):
        for storage in dict.fromkeys((*record.reads, *record.writes)):
            if storage in written:
                accesses[storage].append(number)
    marked = sorted({number for found in accesses.values() for number in found})
    bit_of = {number: 1 << place for place, number in enumerate(marked)}
    before = _ancestors(records, bit_of)
    for storage, found in accesses.items():
        seen = changing = 0
        for number in found:
            writes = storage in records[number].writes
            unordered = (seen if writes else changing) & ~before[number]
            if unordered:
                first = marked[unordered.bit_length() - 1]
                _refuse(records[first], records[number])
            seen |= bit_of[number]
            changing |= bit_of[number] if writes else 0


def _ancestors(records: Sequence[Record], bit_of: Mapping[int, int]) -> list[int]:
    """Return for each record a bit set of the marked records that always precede it."""
    number_of = {record: number for number, record in enumerate(records)}
    before: list[int] = []
    last = None
    for record in records:
        firsts = {number_of[t.record] for t in record.inputs if t.record in number_of}
        if record.in_sequence:
            firsts |= {last} if last is not None else set()
            last = len(before)
        bits = 0
        for first in firsts:
            bits |= before[first] | bit_of.get(first, 0)
        before.append(bits)
    return before


def _refuse(one: Record, other: Record) -> None:
    where = "\n".join(
        f"  {record.kind}({', '.join(tensor.id for tensor in record.inputs)}), "
        f"{source.file_info(record.location)}"
        for record in (one, other)
    )
    raise popart_exception(
        "Inplacing ambiguity detected. These access the same memory, one changes it, and nothing "
        f"says which is first: build them inside `with popxl.in_sequence():`\n{where}"
    )
