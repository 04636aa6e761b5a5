"""The C dialect of kernels for the host: vectors of GCC and Clang, no work groups."""

from __future__ import annotations

from importlib.resources import files

from weft_c.dialect import Dialect


def host_dialect(lanes: int) -> Dialect:
    """Return the dialect with vectors of a number of lanes."""
    prelude = files("weft_native").joinpath("prelude.h").read_text(encoding="utf-8")
    return Dialect(
        name="C",
        prelude=f"#define LANES {lanes}\n{prelude}",
        head="static NOINLINE void {name}({parameters}, const i64 item, const i64 items)",
        aligned="__attribute__((aligned({bytes})))",
        has_vectors=True,
        has_doubles=True,
        has_dot4=True,
    )
