"""Rules for linear systems, which NumPy's linear algebra solves."""

from __future__ import annotations
