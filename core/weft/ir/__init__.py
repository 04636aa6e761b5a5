"""The graph: ops, the axes, dtypes and lengths of their values, states, and the graph they form.

Imports `weft.plugins` and what lies below. Start with `op`, then `tensor` and `graph`; `storage`
holds placeholders and variables, `scope` what an op takes from its surroundings, `rules` and
`target` what a backend says of itself.
"""
