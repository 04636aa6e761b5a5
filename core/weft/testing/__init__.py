"""The conformance kit: what every backend must compute, as tests that a third party can run.

Run it with ``pytest --pyargs weft.testing --weft-backend=NAME``, or import its parts.
"""

from __future__ import annotations
