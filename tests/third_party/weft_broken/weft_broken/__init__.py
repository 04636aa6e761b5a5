"""Each module fails in a way of its own."""
