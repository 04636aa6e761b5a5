"""The tokenizer of llama2.c: pieces of text with scores, merged in pairs by the best score.

A file holds the length of the longest piece as int32, and then for each piece its score as
float32, its length as int32 and its bytes, all little-endian. Pieces 0, 1 and 2 are those for what
is unknown, for the beginning and for the end; the next 256 stand for single bytes, of which
characters without a piece of their own are made.
"""

from __future__ import annotations

import heapq
import math
import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from llama2.files import FormatError, truncated, write

UNKNOWN, BEGIN, END = range(3)
"""What has no piece; what is before every text, and so the end of the one before it; the end."""

FIRST_BYTE = 3
"""The piece for the byte 0."""

SPECIAL = (b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % byte for byte in range(256)))
BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
LONGEST = struct.Struct("<i")
ENTRY = struct.Struct("<fi")

MOST_BYTES = 1024
"""The most bytes of a piece; pieces of llama2.c are parts of words."""


class Piece(NamedTuple):
    """Bytes that are one token, and how gladly two others are merged to them."""

    text: bytes
    score: float


class Tokenizer:
    """Makes texts to tokens, which are numbers of pieces, and back."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = tuple(pieces)
        self.numbers: dict[bytes, int] = {}
        for number, piece in enumerate(pieces):
            if number not in (UNKNOWN, BEGIN, END) and not BYTE.fullmatch(piece.text):
                self.numbers.setdefault(piece.text, number)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, the one for the beginning first.

        As in llama2.c a text that is not empty gets a space in front. Bytes that are no UTF-8,
        which Python keeps in arguments of commands as lone surrogates, are these bytes again.
        """
        tokens: list[int] = []
        for character in f" {text}" if text else "":
            tokens += self._of_character(character.encode(errors="surrogateescape"))
        return [BEGIN, *self._merged(tokens)]

    def _of_character(self, code: bytes) -> list[int]:
        """Return the piece of a character, or else those of its bytes."""
        number = self.numbers.get(code)
        if number is not None:
            return [number]
        has_bytes = len(self.pieces) >= FIRST_BYTE + 256
        return [FIRST_BYTE + byte for byte in code] if has_bytes else [UNKNOWN]

    def _merged(self, tokens: list[int]) -> list[int]:
        """Merge neighbors, the best score first and of equal ones the leftmost, until none fit."""
        after = [*range(1, len(tokens)), -1]
        before = [*range(-1, len(tokens) - 1)]
        waiting: list[tuple[float, int, int, int, int]] = []

        def propose(left: int, right: int) -> None:
            if left < 0 or right < 0:
                return
            pair = tokens[left], tokens[right]
            merged = self.numbers.get(self.pieces[pair[0]].text + self.pieces[pair[1]].text)
            if merged is not None:
                heapq.heappush(waiting, (-self.pieces[merged].score, left, merged, *pair))

        for left in range(len(tokens) - 1):
            propose(left, left + 1)
        while waiting:
            _, left, merged, first, second = heapq.heappop(waiting)
            right = after[left]
            if tokens[left] != first or right < 0 or tokens[right] != second:
                continue  # one of both has been merged with another
            tokens[left], tokens[right] = merged, -1
            after[left] = after[right]
            if after[left] >= 0:
                before[after[left]] = left
            propose(before[left], left)
            propose(left, after[left])
        return [token for token in tokens if token >= 0]

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens; bytes that are no UTF-8 become replacement characters."""
        previous, parts = -1, []
        for token in tokens:
            parts.append(self.bytes_of(token, previous))
            previous = token
        return b"".join(parts).decode(errors="replace")

    def bytes_of(self, token: int, previous: int = -1) -> bytes:
        """Return what a token adds to a text: nothing for a beginning, no space right after."""
        if token == BEGIN:
            return b""
        text = self.pieces[token].text
        byte = BYTE.fullmatch(text)
        text = bytes([int(byte[1], 16)]) if byte else text
        return text.removeprefix(b" ") if previous == BEGIN else text


def characters(text: str) -> Tokenizer:
    """Return a tokenizer with a piece for each character of a text."""
    found = sorted({" ", *text})
    pieces = [Piece(special, 0.0) for special in SPECIAL]
    return Tokenizer(pieces + [Piece(c.encode(), -float(i)) for i, c in enumerate(found)])


def read_tokenizer(path: Path, vocabulary: int) -> Tokenizer:
    """Return the tokenizer in a file, which must have as many pieces as a model's vocabulary.

    Raises FormatError if the file ends too early, has a piece of an absurd length, or another
    number of pieces. A file that is too large for as many pieces is not read.
    """
    largest = LONGEST.size + vocabulary * (ENTRY.size + MOST_BYTES)
    with path.open("rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise FormatError(f"{path} has more bytes than {vocabulary} pieces take: {largest} at most")
    if len(content) < LONGEST.size:
        missing = LONGEST.size - len(content)
        raise truncated(path, f"the length of the longest piece, {LONGEST.size} bytes", missing)
    (longest,) = LONGEST.unpack_from(content)
    pieces: list[Piece] = []
    place = LONGEST.size
    while place < len(content):
        what = f"piece {len(pieces)} of {vocabulary}"
        if place + ENTRY.size > len(content):
            missing = place + ENTRY.size - len(content)
            raise truncated(path, f"{ENTRY.size} bytes before {what}", missing)
        score, length = ENTRY.unpack_from(content, place)
        place += ENTRY.size
        if not 0 <= length <= min(longest, MOST_BYTES):
            most = min(longest, MOST_BYTES)
            raise FormatError(f"{path} has {what} of {length} bytes, expected 0 to {most}")
        if not math.isfinite(score):
            raise FormatError(f"{path} has {what} with a score of {score}, expected a number")
        if place + length > len(content):
            raise truncated(path, f"{length} bytes of {what}", place + length - len(content))
        pieces.append(Piece(content[place : place + length], score))
        place += length
    if len(pieces) != vocabulary:
        raise FormatError(f"{path} has {len(pieces)} pieces, expected {vocabulary} as in the model")
    return Tokenizer(pieces)


def write_tokenizer(path: Path, tokenizer: Tokenizer) -> None:
    """Write a tokenizer, whole or not at all."""
    parts = [LONGEST.pack(max((len(piece.text) for piece in tokenizer.pieces), default=0))]
    for text, score in tokenizer.pieces:
        parts += [ENTRY.pack(score, len(text)), text]
    write(path, b"".join(parts))
