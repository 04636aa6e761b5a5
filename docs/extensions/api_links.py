"""Links names of weft in running text to their entries in the reference.

The pages write ``weft.deriv`` in plain backticks, as they are read in the repository too. On the
site each such literal is a link where the reference has the name.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

NAME = re.compile(r"(weft\w*(?:\.\w+)+)(?:\(.*\))?")


class ApiLinks(SphinxPostTransform):
    """Wraps literals that are names of the reference into links."""

    default_priority = 200

    def run(self, **kwargs: Any) -> None:
        """Link the literals of one document."""
        domain = self.env.get_domain("py")
        assert isinstance(domain, PythonDomain)
        for literal in list(self.document.findall(nodes.literal)):
            match = NAME.fullmatch(literal.astext())
            if match is None or match[1] not in domain.objects or _is_link(literal):
                continue
            entry = domain.objects[match[1]]
            if entry.docname != self.env.docname:
                link = make_refnode(
                    self.app.builder,
                    self.env.docname,
                    entry.docname,
                    entry.node_id,
                    literal.deepcopy(),
                    match[1],
                )
                literal.replace_self(link)


def _is_link(node: nodes.Node) -> bool:
    """Whether a node is inside a link, a heading or a signature already."""
    inside = (nodes.reference, nodes.title, addnodes.desc_signature, addnodes.pending_xref)
    while node.parent is not None:
        node = node.parent
        if isinstance(node, inside):
            return True
    return False


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension."""
    app.add_post_transform(ApiLinks)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
