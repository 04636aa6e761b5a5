"""Which communicator is used, and what wrong settings say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import plugins, settings
from weft.communicators import Collective, communicator, connected, default_name, local_rank
from weft.communicators.choice import LAUNCHERS, LOCAL_RANKS
from weft.communicators.local import Local
from weft.errors import ArgumentError, UnknownPluginError


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*LAUNCHERS, *LOCAL_RANKS, "WEFT_COMMUNICATOR", "WEFT_COLLECTIVE_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)


def test_the_context_is_before_the_environment_before_the_launcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert default_name() == "local"
    for name in LAUNCHERS:
        with monkeypatch.context() as patched:
            patched.setenv(name, "2")
            assert default_name() == "mpi"
    monkeypatch.setenv("WEFT_COMMUNICATOR", "carrier")
    assert default_name() == "carrier"
    with communicator("local") as found:
        assert default_name() == "local"
        assert found is connected() is connected("local")
    assert default_name() == "carrier"


@pytest.mark.parametrize("name", LOCAL_RANKS)
def test_the_launcher_numbers_the_ranks_of_a_machine(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert local_rank() == 0
    monkeypatch.setenv(name, "3")
    assert local_rank() == 3
    monkeypatch.setenv(name, "")
    assert local_rank() == 0


def test_an_unknown_name_lists_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownPluginError, match=r"named 'carrier'.*Installed: local, mpi"):
        connected("carrier")
    monkeypatch.setenv("WEFT_COMMUNICATOR", "locl")
    with pytest.raises(UnknownPluginError, match=r"WEFT_COMMUNICATOR=locl: .*mean 'local'"):
        weft.all_reduce(weft.placeholder(()))


def test_what_is_no_communicator_is_refused() -> None:
    class Plugin:
        @plugins.hookimpl
        def weft_register_communicators(self, register: Callable[..., Any]) -> None:  # type: ignore[no-untyped-def]
            register("list", list)

    with pytest.raises(plugins.registry.PluginError, match="not a subclass of Communicator"):
        plugins.register(Plugin())


@pytest.mark.parametrize("setting", ["soon", "0", "-1", "nan"])
def test_a_time_limit_is_a_number_of_seconds(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.COLLECTIVE_TIMEOUT.value == 300
    monkeypatch.setenv("WEFT_COLLECTIVE_TIMEOUT", "2.5")
    assert settings.COLLECTIVE_TIMEOUT.value == 2.5
    monkeypatch.setenv("WEFT_COLLECTIVE_TIMEOUT", setting)
    with pytest.raises(ArgumentError, match=f"WEFT_COLLECTIVE_TIMEOUT={setting} is not a positive"):
        _ = settings.COLLECTIVE_TIMEOUT.value


def test_one_rank_gathers_its_own_text() -> None:
    alone = Local("local")
    assert (alone.rank, alone.size) == (0, 1)
    assert alone.gather_text("größer", "a test") == ["größer"]
    alone.barrier()
    with pytest.raises(ArgumentError, match="at least one dimension"):
        alone.run(Collective("all_gather"), np.zeros(()))
    with pytest.raises(SystemExit, match="that is it"):
        alone.abort("that is it")
