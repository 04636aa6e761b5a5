"""PyTorch: models compiled by `torch.compile`, exported programs, and weft's functions in torch.

``torch.compile(model, backend="weft")`` needs no import of this package. Start reading at
`backend`, then `graphs`, which makes ops of the nodes of FX graphs by the table of `rules`;
`lowering` has the rules, one module for each family of ops.
"""
