"""The examples are scripts that import one another from their folder; some run under mpiexec."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples"))
sys.path.append(str(Path(__file__).parents[1] / "communicators"))
