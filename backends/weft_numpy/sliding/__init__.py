"""Sliding windows: convolution and pooling in blocks of images."""
