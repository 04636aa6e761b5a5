"""Artifacts as files: a zip of named parts, none compressed, checked before it is read.

The parts are texts in UTF-8 and arrays in the safetensors format; nothing is pickled. A file may
come from anybody: it is an artifact, or an ArtifactError.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import ArtifactError, WeftError
from weft.files import replacing

if TYPE_CHECKING:
    import zipfile

FORMAT = 1
"""The version of the format, raised whenever older versions of weft cannot read it."""

DOCUMENT, GRAPH = "artifact.json", "graph.txt"
INITIAL, COMPUTED = "initial_constants.txt", "initial_computed.txt"
CONSTANTS, STATES = "constants.safetensors", "states.safetensors"
LONGEST_DOCUMENT = 2**24
"""The most bytes of the document that are read."""

_STAMP = (1980, 1, 1, 0, 0, 0)
"""The date of each part, so that equal artifacts are equal files."""


def write_parts(path: str | os.PathLike[str], parts: Mapping[str, bytes]) -> None:
    """Write an artifact, which is there in full or not at all."""
    import zipfile  # which a program that only computes does not need; so in other functions

    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name, _STAMP), content)


def read_parts(path: Path) -> dict[str, bytes]:
    """Return the parts of an artifact by name.

    Raises ArtifactError if the file cannot be read, is not a zip or damaged, or has a part that is
    compressed, encrypted, there twice or with a path of its own: weft writes none of these.
    """
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            size = path.stat().st_size
            names = [entry.filename for entry in entries]
            for entry in entries:
                _require_plain(path, entry)
            if len(set(names)) < len(names) or sum(entry.file_size for entry in entries) > size:
                raise ArtifactError(f"{path} has parts that share a name or their bytes")
            return {entry.filename: archive.read(entry) for entry in entries}
    except (WeftError, MemoryError):
        raise
    except Exception as error:  # of files, and of each way in which headers can be wrong
        reason = getattr(error, "strerror", None) or error
        raise ArtifactError(f"{path} cannot be read as an artifact: {reason}") from None


def has_document(path: Path) -> bool:
    """Return whether a file is a zip with the document of an artifact."""
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            return DOCUMENT in archive.namelist()
    except Exception:  # whatever is wrong with its headers
        return False


def _require_plain(path: Path, entry: zipfile.ZipInfo) -> None:
    is_packed = entry.compress_type != 0 or entry.file_size != entry.compress_size
    parts = entry.filename.split("/")
    if is_packed or not all(parts) or {".", ".."} & set(parts) or ":" in entry.filename:
        problem = "compressed or has no plain name, so weft did not write it"
        raise ArtifactError(f"{path}: the part {entry.filename!r:.100} is {problem}")


def document_of(path: Path, parts: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the document of an artifact; raises ArtifactError for another version of the format.

    The types of what is in it are not checked.
    """
    import json

    content = parts.get(DOCUMENT)
    if content is None or len(content) > LONGEST_DOCUMENT:
        raise ArtifactError(f"{path} is not an artifact: it has no {DOCUMENT} that can be read")
    try:
        document = json.loads(content)
        form = document["format"]
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise ArtifactError(f"{path}: {DOCUMENT} is malformed: {error!r:.200}") from None
    if form != FORMAT:
        raise ArtifactError(
            f"{path} has version {form!r:.20} of the format of artifacts, and this weft reads "
            f"version {FORMAT}: load it with the version of weft that saved it, "
            f"{document.get('weft')!r:.40}, or save it anew"
        )
    return document  # type: ignore[no-any-return]
