from __future__ import annotations

import pytest
from installation import Installation

# These are packages: their tests run where they are installed.
collect_ignore_glob = ["weft_*"]


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(tmp_path_factory.mktemp("third_party"))
