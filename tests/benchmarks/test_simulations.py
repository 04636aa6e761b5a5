"""The simulations that weft is timed with compute what NumPy does."""

from __future__ import annotations

import pytest
import simulations

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", sorted(simulations.SIMULATIONS))
def test_a_simulation_gives_what_numpy_does(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_BACKEND", backend)
    each = simulations.SIMULATIONS[name]
    wanted = simulations.by_numpy(each)()
    simulations.checked(simulations.by_weft(each)(), wanted, each.tolerance)


def test_a_wrong_result_is_refused() -> None:
    with pytest.raises(ValueError, match=r"wrong by 1\.0e\+00"):
        simulations.checked([0.0], [2.0], 1e-3)
