"""Effects, states, calls of graphs and their order."""
