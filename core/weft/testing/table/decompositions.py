"""Rows of the op table: decompositions."""

from __future__ import annotations

from weft.testing.table.rows import Refusal, Row

ROWS: tuple[Row, ...] = ()

REFUSALS: tuple[Refusal, ...] = ()
