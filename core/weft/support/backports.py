"""What later versions of Python have in their standard library."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["override"]

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
