"""Rules for sorting, and for running sums, products and extrema."""

from __future__ import annotations
