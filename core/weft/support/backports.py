"""What other versions of Python, or other systems, have in the standard library."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["after_fork", "override"]

if TYPE_CHECKING:
    from typing_extensions import override
elif sys.version_info >= (3, 12):
    from typing import override
else:
    Method = TypeVar("Method", bound=Callable[..., Any])

    def override(method: Method) -> Method:
        """Mark a method that overrides one of a base class, whose docstring holds for it too."""
        method.__override__ = True
        return method


def after_fork(function: Callable[[], object]) -> None:
    """Call a function in each forked process, on systems that fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
