"""Work on windows that slide over images: convolution and pooling, in blocks."""
