"""A folder with a script, and arrays for its inputs and constants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hamkaas_command import SCRIPT
from hamkaas_models import floats


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.hk").write_text(SCRIPT)
    (tmp_path / "folder.npy").mkdir()
    np.save(tmp_path / "x.npy", floats(2, 3))
    np.savez(tmp_path / "weights.npz", **{"layer.weight": floats(3, 4)})
    return tmp_path
