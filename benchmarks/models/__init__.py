"""Models to measure: each as a graph of weft, and in eager NumPy as a good user writes it.

A module offers `data` (the arguments of a call), `parameters` (fresh ones, the same each time) and
`program` (the graph, for given parameters).
"""
