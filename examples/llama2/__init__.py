"""A decoder of the LLaMA-2 kind in weft: its files, its graph, its training and its sampling."""
