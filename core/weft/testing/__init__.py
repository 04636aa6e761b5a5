"""The conformance kit: tests of the results that every backend must compute.

Third parties run it with ``pytest --pyargs weft.testing --weft-backend=NAME``, or import its parts.
"""

from __future__ import annotations
