"""Where torch is not installed, these tests are not collected: `make test-torch` installs it."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") and find_spec("expecttest") else ["test_*.py"]
