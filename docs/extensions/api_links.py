"""Links names of weft in running text to their entries in the reference.

The pages write ``weft.deriv`` in plain backticks, as they are read in the repository too. On the
site each such literal is a link where the reference has the name. So are op classes without the
``weft.``, and functions without it on the pages that list them.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

NAME = re.compile(r"(weft\w*(?:\.\w+)+)(?:\(.*\))?")
CLASS = re.compile(r"(\w+Op)")
FUNCTION = re.compile(r"(\w+)(?:\(.*\))?")
LISTS = {"ops", "support"}
"""The pages whose literals are functions of weft."""


class PlainParameters(SphinxTransform):
    """Leaves names of parameters plain in a description, where a function has the same name."""

    default_priority = 500

    def apply(self, **kwargs: Any) -> None:
        """Take the links of one document off."""
        for description in self.document.findall(addnodes.desc):
            parameters = {
                parameter.next_node(addnodes.desc_sig_name).astext()
                for parameter in description.findall(addnodes.desc_parameter)
                if parameter.next_node(addnodes.desc_sig_name) is not None
            }
            for content in description.findall(addnodes.desc_content):
                for link in list(content.findall(addnodes.pending_xref)):
                    if link.get("reftype") == "obj" and link["reftarget"] in parameters:
                        link.replace_self(link.children)


class ApiLinks(SphinxPostTransform):
    """Wraps literals that are names of the reference into links."""

    default_priority = 200

    def run(self, **kwargs: Any) -> None:
        """Link the literals of one document."""
        domain = self.env.get_domain("py")
        assert isinstance(domain, PythonDomain)
        for literal in list(self.document.findall(nodes.literal)):
            name = self._name(literal.astext())
            entry = domain.objects.get(name)
            if entry is None or _is_link(literal):
                continue
            link = make_refnode(
                self.app.builder,
                self.env.docname,
                entry.docname,
                entry.node_id,
                literal.deepcopy(),
                name,
            )
            literal.replace_self(link)

    def _name(self, text: str) -> str:
        """Return the name that a literal may stand for."""
        if match := NAME.fullmatch(text):
            return match[1]
        pattern = FUNCTION if self.env.docname in LISTS else CLASS
        match = pattern.fullmatch(text)
        return f"weft.{match[1]}" if match else ""


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
    app.add_transform(PlainParameters)
    app.add_post_transform(ApiLinks)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
