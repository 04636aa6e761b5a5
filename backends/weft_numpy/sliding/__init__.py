"""Sliding windows over images: convolution and pooling, in blocks."""
