"""The examples are scripts that import one another from their folder."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples"))
