"""Strings, which the host computes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from weft_onnx.nodes import Node, lowers


def _texts(x: Any) -> Any:
    return np.vectorize(lambda t: t.decode() if isinstance(t, bytes) else str(t), otypes=[object])(
        x
    )


@lowers("StringConcat")
def string_concat(node: Node) -> Any:
    """Join strings elementwise."""
    return node.host(lambda x, y: [np.asarray(_texts(x) + _texts(y), object)], *node.inputs)[0]


@lowers("StringSplit")
def string_split(node: Node) -> Any:
    """Split strings into parts, padded with empty ones."""
    delimiter, most = node.attr("delimiter"), node.attr("maxsplit")

    def parts(x: Any) -> list[Any]:
        several = [
            text.split(delimiter or None, -1 if most is None else most)
            for text in _texts(x).reshape(-1)
        ]
        longest = max(map(len, several), default=0)
        padded = [each + [""] * (longest - len(each)) for each in several]
        shape = (*x.shape, longest)
        counts = np.array(list(map(len, several)), np.int64).reshape(x.shape)
        return [np.array(padded, object).reshape(shape), counts]

    return tuple(node.host(parts, node.raw(0)))


@lowers("RegexFullMatch")
def regex_full_match(node: Node) -> Any:
    """Return whether whole strings match a pattern."""
    pattern = re.compile(node.required("pattern"))

    def matched(x: Any) -> list[Any]:
        found = [pattern.fullmatch(text) is not None for text in _texts(x).reshape(-1)]
        return [np.array(found, np.bool_).reshape(x.shape)]

    return node.host(matched, node.raw(0))[0]


@lowers("StringNormalizer")
def string_normalizer(node: Node) -> Any:
    """Change the case of strings, and leave out stop words."""
    change = node.choice(
        "case_change_action", {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    )
    stops = list(node.attr("stopwords") or [])
    is_sensitive = node.flag("is_case_sensitive")

    def kept(words: list[str]) -> list[str]:
        if not is_sensitive:
            low = {each.lower() for each in stops}
            words = [each for each in words if each.lower() not in low]
        else:
            words = [each for each in words if each not in stops]
        return [change(each) for each in words] or [""]

    def normalized(x: Any) -> list[Any]:
        texts = _texts(x)
        if x.ndim == 2:
            return [np.array([kept(list(row)) for row in texts], object)]
        return [np.array(kept(list(texts)), object)]

    return node.host(normalized, node.raw(0))[0]


@lowers("TfIdfVectorizer")
def tf_idf_vectorizer(node: Node) -> Any:
    """Count n-grams of a pool, with skips."""
    mode = node.choice("mode")
    shortest, longest = node.required("min_gram_length"), node.required("max_gram_length")
    skips = node.required("max_skip_count")
    starts, indexes = list(node.required("ngram_counts")), list(node.required("ngram_indexes"))
    pool = list(node.attr("pool_int64s") or node.attr("pool_strings") or [])
    weights = list(node.attr("weights") or [])
    grams: dict[tuple[Any, ...], int] = {}
    if sorted(starts) != starts or not all(0 <= each <= len(pool) for each in starts):
        raise node.error(f"ngram_counts {starts[:9]} are not places in a pool of {len(pool)}")
    node.require_room(max(indexes, default=0))
    for size, first in enumerate(starts, 1):
        last = starts[size] if size < len(starts) else len(pool)
        for at in range(first, last, size):
            grams[tuple(pool[at : at + size])] = len(grams)

    def counted(x: Any) -> list[Any]:
        rows = x.reshape(1, -1) if x.ndim == 1 else x
        result = np.zeros((len(rows), max(indexes) + 1), np.float32)
        for row, items in enumerate(rows):
            sequence = [str(each) if x.dtype == object else int(each) for each in items]
            for size in range(max(shortest, 1), min(longest, len(sequence)) + 1):
                for skip in range(min(skips + 1, len(sequence)) if size > 1 else 1):
                    for at in range(len(sequence) - (size - 1) * (skip + 1)):
                        gram = tuple(sequence[at + n * (skip + 1)] for n in range(size))
                        number = grams.get(gram)
                        if number is not None:
                            result[row, indexes[number]] += 1
        if mode != "TF":
            factor = np.ones(result.shape[1], np.float32)
            if weights:
                factor[indexes] = weights
            result = (result > 0) * factor if mode == "IDF" else result * factor
        return [(result[0] if x.ndim == 1 else result).astype(np.float32)]

    return node.host(counted, node.raw(0))[0]


@lowers("LabelEncoder", domain="ai.onnx.ml")
def label_encoder(node: Node) -> Any:
    """Replace keys by values."""
    kinds = {"strings": object, "int64s": np.int64, "floats": np.float32, "tensor": None}

    def listed(prefix: str) -> tuple[Any, Any]:
        for suffix, dtype in kinds.items():
            found = node.attr(f"{prefix}_{suffix}")
            if found is not None:
                return list(found), np.asarray(found).dtype if dtype is None else dtype
        raise node.error(f"it has no {prefix}")

    keys, _ = listed("keys")
    values, dtype = listed("values")
    defaults: dict[Any, Any] = {
        np.int64: node.attr("default_int64", -1),
        np.float32: node.attr("default_float", -0.0),
        object: node.attr("default_string", "_Unused"),
    }
    default = node.attr("default_tensor")
    default = np.asarray(default).reshape(-1)[0] if default is not None else defaults.get(dtype, 0)
    table = {_plain(key): value for key, value in zip(keys, values, strict=True)}

    def encoded(x: Any) -> list[Any]:
        found = [table.get(_plain(each), default) for each in x.reshape(-1)]
        return [np.array(found, dtype).reshape(x.shape)]

    return node.host(encoded, node.raw(0))[0]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float | np.floating):
        return "nan" if np.isnan(value) else float(value)
    return int(value) if isinstance(value, int | np.integer) else str(value)
