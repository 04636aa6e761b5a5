"""Shapes, axes and new tensors."""
