"""Rules for elements taken and put by index."""

from __future__ import annotations
