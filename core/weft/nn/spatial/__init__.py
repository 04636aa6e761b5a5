"""Windows over axes of space: convolutions, pooling, resampling, regions."""
