"""Raises an error when it is imported."""

raise RuntimeError("the firmware is upside down")
