"""Checkpoints and tokenizers in the format of llama2.c: read as written, or refused by name."""

from __future__ import annotations

import struct
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama2.checkpoint import Config, read_checkpoint, rotation, write_checkpoint
from llama2.files import FormatError, require_writable, write
from llama2.tokenizer import (
    BEGIN,
    SPECIAL,
    UNKNOWN,
    Piece,
    Tokenizer,
    characters,
    read_tokenizer,
    write_tokenizer,
)
from llama2.training import TEXT

pytestmark = pytest.mark.slow

SMALL = Config(8, 12, 2, 2, 1, 5, 6)


def weights_for(config: Config) -> dict[str, np.ndarray]:
    """Return an array for each name: all numbers of a checkpoint are different."""
    weights, start = {}, 0
    for name, shape in config.shapes().items():
        numbers = np.arange(start, start + prod(shape), dtype=np.float32)
        weights[name], start = numbers.reshape(shape), start + prod(shape)
    return weights


def content(config: Config = SMALL, header: dict[int, int] | None = None) -> bytes:
    """Return a checkpoint, with numbers of its header replaced."""
    numbers = [*config[:5], config.vocabulary * (1 if config.shared else -1), config.longest]
    for place, value in (header or {}).items():
        numbers[place] = value
    arrays = weights_for(config).values()
    return struct.pack("<7i", *numbers) + b"".join(array.tobytes() for array in arrays)


@st.composite
def configs(draw: st.DrawFn) -> Config:
    kv_heads, shares, half = (draw(st.integers(1, 3)) for _ in range(3))
    heads = kv_heads * shares
    hidden, layers, vocabulary, longest = (draw(st.integers(1, 4)) for _ in range(4))
    shared = draw(st.booleans())
    return Config(2 * half * heads, hidden, layers, heads, kv_heads, vocabulary, longest, shared)


@given(configs())
def test_a_checkpoint_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, config: Config
) -> None:
    path = tmp_path_factory.mktemp("checkpoint") / "model.bin"
    write_checkpoint(path, config, weights_for(config))
    assert path.read_bytes() == content(config)
    found, weights = read_checkpoint(path)
    assert found == config
    for name, array in weights_for(config).items():
        np.testing.assert_array_equal(weights[name], array)
    assert [file.name for file in path.parent.iterdir()] == ["model.bin"]


def test_the_arrays_lie_in_the_order_of_llama2_c(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    config = SMALL._replace(shared=False)
    path.write_bytes(content(config))
    _, weights = read_checkpoint(path)
    assert list(weights) == [
        "embedding", "attention_norm", "wq", "wk", "wv", "wo", "dense_norm", "w1", "w2", "w3",
        "final_norm", "cos", "sin", "classifier",
    ]  # fmt: skip
    assert weights["wk"].shape == (2, 4, 8)
    assert weights["w2"].shape == (2, 8, 12)
    assert weights["classifier"][-1, -1] == path.stat().st_size // 4 - 8


TOTAL = len(content())
REFUSED = {
    "empty": (b"", ["header of 28 bytes", "28 bytes are missing"]),
    "half a header": (content()[:27], ["header of 28 bytes", "1 byte is missing"]),
    "only a header": (content()[:28], [f"{TOTAL - 28} bytes are missing", "from embedding on"]),
    "last byte": (content()[:-1], [f"expected {TOTAL} bytes", "1 byte is missing", "from sin on"]),
    "last number": (content()[:-4], ["4 bytes are missing"]),
    "half": (content()[: TOTAL // 2], [f"{TOTAL - TOTAL // 2} bytes are missing"]),
    "too long": (content() + b"\0", [f"{TOTAL + 1} bytes, 1 more"]),
    "no layers": (content(header={2: 0}), ["layers is 0"]),
    "negative dim": (content(header={0: -8}), ["dim is -8"]),
    "no vocabulary": (content(header={5: 0}), ["vocabulary is 0"]),
    "uneven heads": (content(header={3: 3}), ["dim 8", "3 heads"]),
    "odd depth": (content(header={3: 8}), ["heads of even depth"]),
    "uneven sharing": (content(header={4: 3}), ["2 heads", "3 heads of keys"]),
    "huge": (content(header={0: 2**31 - 4}), ["bytes are missing", "from embedding on"]),
    "another classifier": (content(header={5: -5}), ["160 bytes are missing", "from classifier"]),
    "later version": (b"ak42"[::-1] + content()[4:], ["version 12", "only 0"]),
    "text": (b"Once upon a time there was a loom." * 9, ["is not a checkpoint of llama2.c"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_damaged_checkpoint_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(REFUSED[name][0])
    with pytest.raises(FormatError) as caught:
        read_checkpoint(path)
    for words in [str(path), *REFUSED[name][1]]:
        assert words in str(caught.value)


@st.composite
def mutated(draw: st.DrawFn, whole: bytes, head: int) -> bytes:
    """Return bytes with a few changes, most of them near the beginning."""
    found = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, head) | st.integers(0, len(found)))
        end = draw(st.integers(at, at + 8))
        number = st.sampled_from([0, 1, -1, 2, 4, 8, 2**31 - 1, -(2**31)])
        found[at:end] = draw(st.binary(max_size=8) | st.builds(struct.Struct("<i").pack, number))
    return bytes(found)


@given(mutated(content(), 28))
def test_a_mutated_checkpoint_is_read_whole_or_refused(
    tmp_path_factory: pytest.TempPathFactory, found: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "mutated.bin"
    path.write_bytes(found)
    try:
        config, weights = read_checkpoint(path)
    except FormatError as error:
        problem = str(error)
    else:
        assert {name: array.shape for name, array in weights.items()} == config.shapes()
        assert b"".join(array.tobytes() for array in weights.values()) == found[28:]
        return
    assert str(path) in problem


def test_a_sparse_checkpoint_takes_no_memory_before_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sparse.bin"
    with path.open("wb") as file:
        file.write(content()[:28])
        file.truncate(2 * 10**12)
    with pytest.raises(FormatError, match=r"sparse\.bin has 2000000000000 bytes"):
        read_checkpoint(path)
    with pytest.raises(FormatError, match=r"sparse\.bin has more bytes than 5 pieces"):
        read_tokenizer(path, 5)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_checkpoint_or_refused(
    tmp_path_factory: pytest.TempPathFactory, given_bytes: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.bin"
    path.write_bytes(given_bytes)
    with pytest.raises(FormatError, match=r"any\.bin"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"wq": np.zeros((2, 3))}, ["wq is (2, 3)", "expected (2, 8, 8)"]),
        ({"wz": np.zeros(1)}, ["wz is (1,)", "expected None"]),
        ({"sin": None}, ["sin is None", "expected (6, 2)"]),
    ],
)
def test_other_weights_are_not_written(
    change: dict[str, np.ndarray | None], words: list[str], tmp_path: Path
) -> None:
    weights = {**weights_for(SMALL), **change}
    kept = {name: array for name, array in weights.items() if array is not None}
    with pytest.raises(FormatError) as caught:
        write_checkpoint(tmp_path / "model.bin", SMALL, kept)
    assert all(word in str(caught.value) for word in words)
    assert list(tmp_path.iterdir()) == []


def test_absurd_sizes_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="layers is 0"):
        write_checkpoint(tmp_path / "model.bin", SMALL._replace(layers=0), {})


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.bin"
    write(path, b"old")

    def refuse(self: Path, content: bytes) -> None:
        self.touch()
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(OSError, match="no space left"):
        write(path, b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["model.bin"]
    assert path.read_bytes() == b"old"


BLOCKED = {
    "there is a folder of that name": lambda path: path.mkdir(parents=True),
    "is not a folder": lambda path: path.parent.write_bytes(b""),
    "not a directory": lambda path: path.parent.parent.write_bytes(b""),
    "file name too long": lambda path: None,
}


@pytest.mark.parametrize("words", BLOCKED)
def test_a_file_that_cannot_be_written_is_known_before(words: str, tmp_path: Path) -> None:
    name = "x" * 300 if "long" in words else "model.bin"
    path = tmp_path / "new" / "folder" / name
    (tmp_path / "new").parent.mkdir(exist_ok=True)
    if "directory" not in words:
        path.parent.parent.mkdir()
    BLOCKED[words](path)
    with pytest.raises(OSError, match=words) as caught:
        require_writable(path)
    assert str(caught.value).startswith(f"{path} cannot be written (")
    assert str(caught.value).endswith("): choose another folder")
    assert f".{name}." not in str(caught.value)


def test_a_file_that_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "model.bin"
    require_writable(path)
    assert list(path.parent.iterdir()) == []
    path.write_bytes(b"old")
    require_writable(path)
    assert [file.name for file in path.parent.iterdir()] == ["model.bin"]
    assert path.read_bytes() == b"old"


def test_a_rotation_begins_at_0_and_turns_slower_from_pair_to_pair() -> None:
    cos, sin = rotation(4, 6)
    np.testing.assert_array_equal(cos[0], [1, 1, 1])
    rates = 10000 ** (-np.array([0, 2, 4]) / 6)
    np.testing.assert_allclose(cos[3] + 1j * sin[3], np.exp(3j * rates), rtol=1e-6)


WORDS = ["a", "b", " ", "c", "ab", "bc", "abc", " a", "aa", "aaa", "é", "ca"]
texts = st.text("abc é", max_size=12) | st.text(max_size=12)


@st.composite
def tokenizers(draw: st.DrawFn) -> Tokenizer:
    words = draw(st.lists(st.sampled_from(WORDS), unique=True))
    scores = draw(st.lists(st.integers(-4, 4), min_size=len(words), max_size=len(words)))
    pieces = [Piece(special, 0.0) for special in SPECIAL]
    added = zip(words, scores, strict=True)
    return Tokenizer(pieces + [Piece(word.encode(), float(score)) for word, score in added])


@given(tokenizers(), texts)
def test_texts_come_back(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.encode(text)
    assert tokens[0] == BEGIN
    assert tokenizer.decode(tokens) == text


def merged_one_by_one(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the tokens as llama2.c finds them: it looks at all pairs for each merge."""
    plain = Tokenizer([p for p in tokenizer.pieces if len(p.text.decode()) < 2 or p[0] in SPECIAL])
    names = [plain.pieces[token].text for token in plain.encode(text)]
    tokens = [tokenizer.pieces.index(next(p for p in tokenizer.pieces if p[0] == n)) for n in names]
    while True:
        best = None
        for place in range(1, len(tokens) - 1):
            pair = b"".join(tokenizer.pieces[t].text for t in tokens[place : place + 2])
            number = tokenizer.numbers.get(pair)
            if number is not None and (best is None or tokenizer.pieces[number].score > best[0]):
                best = tokenizer.pieces[number].score, place, number
        if best is None:
            return tokens
        tokens[best[1] : best[1] + 2] = [best[2]]


@given(tokenizers(), texts)
def test_pairs_are_merged_by_the_best_score(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.encode(text) == merged_one_by_one(tokenizer, text)


@given(tokenizers())
def test_a_tokenizer_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer
) -> None:
    path = tmp_path_factory.getbasetemp() / "tokenizer.bin"
    write_tokenizer(path, tokenizer)
    assert read_tokenizer(path, len(tokenizer.pieces)).pieces == tokenizer.pieces


def test_each_character_of_the_shipped_text_is_a_piece() -> None:
    text = TEXT.read_text(encoding="utf-8")
    tokens = characters(text).encode(text)
    assert len(tokens) == len(text) + 2
    assert min(tokens[1:]) >= len(SPECIAL)


@given(st.binary(max_size=20))
def test_bytes_that_are_no_text_are_these_bytes(content: bytes) -> None:
    """The shell gives them as an argument, which Python reads so."""
    tokenizer = characters("aé")
    tokens = tokenizer.encode(content.decode(errors="surrogateescape"))
    made = b"".join(map(tokenizer.bytes_of, tokens, [-1, *tokens]))
    assert made == content


def test_control_pieces_are_never_made_of_text() -> None:
    pieces = [Piece(special, 0.0) for special in SPECIAL]
    pieces += [Piece(text, 1.0) for text in (b"<", b"s", b">", b"<s", b"\n", b"\n<s", b"\n<s>")]
    tokens = Tokenizer(pieces).encode("\n<s>\n")
    assert tokens[1:].count(BEGIN) == 0


def test_a_tokenizer_without_bytes_has_unknown_characters() -> None:
    tokenizer = Tokenizer([Piece(text, 0.0) for text in (b"?", b"", b"", b" ", b"a")])
    assert tokenizer.encode("ax") == [BEGIN, 3, 4, UNKNOWN]


def test_bytes_that_are_no_text_are_replaced() -> None:
    tokenizer = characters("a")
    assert tokenizer.decode([BEGIN, 3 + 0xFF, tokenizer.numbers[b"a"]]) == "\ufffda"


def tokenizer_content(*entries: tuple[float, int, bytes], longest: int = 9) -> bytes:
    parts = (struct.pack("<fi", score, length) + text for score, length, text in entries)
    return struct.pack("<i", longest) + b"".join(parts)


ENTRIES = [(0.0, 1, b"a"), (1.0, 2, b"bc")]
REFUSED_TOKENIZERS = {
    "empty": (b"", ["4 bytes", "4 bytes are missing"]),
    "half a number": (b"\1\0", ["2 bytes are missing"]),
    "cut before a length": (tokenizer_content(*ENTRIES)[:-3], ["piece 1 of 2", "1 byte is"]),
    "cut in a text": (tokenizer_content(*ENTRIES)[:-1], ["2 bytes of piece 1", "1 byte is"]),
    "too few": (tokenizer_content(*ENTRIES[:1]), ["has 1 pieces", "expected 2"]),
    "too many": (tokenizer_content(*ENTRIES, *ENTRIES), ["has 4 pieces", "expected 2"]),
    "negative length": (tokenizer_content((0.0, -1, b"")), ["piece 0", "-1 bytes"]),
    "longer than the longest": (tokenizer_content((0.0, 10, b"a" * 10)), ["10 bytes", "0 to 9"]),
    "no score": (tokenizer_content((float("nan"), 1, b"a")), ["piece 0", "nan"]),
}


@given(st.integers(0, 3), mutated(tokenizer_content(*ENTRIES), 12))
def test_a_mutated_tokenizer_is_read_whole_or_refused(
    tmp_path_factory: pytest.TempPathFactory, vocabulary: int, found: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "mutated.bin"
    path.write_bytes(found)
    try:
        pieces = read_tokenizer(path, vocabulary).pieces
    except FormatError as error:
        problem = str(error)
    else:
        assert len(pieces) == vocabulary
        assert sum(8 + len(piece.text) for piece in pieces) == len(found) - 4
        return
    assert str(path) in problem


@pytest.mark.parametrize("name", REFUSED_TOKENIZERS)
def test_a_damaged_tokenizer_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(REFUSED_TOKENIZERS[name][0])
    with pytest.raises(FormatError) as caught:
        read_tokenizer(path, 2)
    for words in [str(path), *REFUSED_TOKENIZERS[name][1]]:
        assert words in str(caught.value)
