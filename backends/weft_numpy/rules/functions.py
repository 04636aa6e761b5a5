"""Rules for functions of one number and activations that need fewer passes over memory whole."""

from __future__ import annotations
