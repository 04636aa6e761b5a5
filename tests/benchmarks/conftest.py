"""The benchmarks are scripts that import one another from their folder."""

import sys
from pathlib import Path

# At the end, since one of them is called as a package is that others import: build.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
