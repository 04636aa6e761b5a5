"""Special functions, each a composite of elementwise ops; `weft.special` has their names."""
