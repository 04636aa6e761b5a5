"""The backend on the objects of a browser, which are imitated here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from needs import skip_without

import weft
from weft.errors import BackendError

ONES = np.ones(4, np.float32)


@pytest.fixture
def ffi(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module `pyodide.ffi` of a browser with WebGPU, in which this process runs."""
    skip_without("webgpu")
    import imitated_browser

    from weft_webgpu import browser, device, devices, package

    js, found = imitated_browser.modules()
    monkeypatch.setattr(browser, "_js", lambda: js)
    monkeypatch.setattr(browser, "_ffi", lambda: found)
    for module in (package, devices, device):
        monkeypatch.setattr(module, "wgpu", lambda: browser)
    monkeypatch.setattr(devices, "_opened", {})
    devices.adapters.cache_clear()
    yield found
    devices.adapters.cache_clear()


@pytest.fixture
def transformer(ffi: Any) -> Iterator[Any]:
    with weft.make_transformer("webgpu", cache=False) as made:
        yield made


def test_a_training_step_and_a_product(transformer: Any) -> None:
    assert transformer.device.name == "an imitation (browser)"
    x = weft.placeholder((4, 4), name="x")
    w = weft.variable((4, 4), initial_value=np.eye(4), name="w")
    loss = weft.mean(weft.square(x @ w - 1))
    with weft.saved_user_deps():
        update = weft.assign(w, w - weft.deriv(loss, w))
    step = transformer.computation([loss, update], x)
    values = np.arange(16, dtype=np.float32).reshape(4, 4) / 16
    first, second = (float(step(values)[0]) for _ in range(2))
    assert first == pytest.approx(np.mean((values - 1) ** 2))
    assert second < first


def test_a_state_is_read_and_written(transformer: Any) -> None:
    state = weft.variable((3,), dtype="int8", initial_value=[1, 2, 3])
    transformer.computation(state + 1)()
    assert transformer.get_value(state).tolist() == [1, 2, 3]
    transformer.set_value(state, np.array([4, 5, 6], np.int8))
    assert transformer.computation(state + 1)().tolist() == [5, 6, 7]


def test_positions_have_32_bits(transformer: Any) -> None:
    assert not transformer.has_int64
    x = weft.placeholder((4,), name="x")
    found = transformer.computation([weft.argmax(x, 0), weft.argsort(x)], x)([2, 9, 4, 1])
    assert [each.tolist() for each in found] == [1, [3, 0, 2, 1]]
    assert found[0].dtype == np.int64


REFUSALS = {
    "createShaderModule": ("1:2 no such word", "refuses the shader", BackendError),
    "createComputePipeline": ("too large", "refuses the shader", BackendError),
    "createBuffer": ("out of memory", "has no memory left", MemoryError),
    "createBindGroup": ("the layout differs", "failed, computing", BackendError),
}


@pytest.mark.parametrize("method", REFUSALS)
def test_what_a_browser_refuses_is_an_error(transformer: Any, method: str) -> None:
    message, said, error = REFUSALS[method]
    x = weft.placeholder((4,), name="x")
    computation = transformer.computation(x + 1, x)
    refuses = transformer.device.handle.js.refuses
    refuses[method] = message
    with pytest.raises(error, match=said):
        computation(ONES)
    refuses.clear()
    assert transformer.computation(x + 2, x)(ONES).tolist() == [3] * 4


def test_a_lost_device_is_an_error(transformer: Any) -> None:
    x = weft.placeholder((4,), name="x")
    computation = transformer.computation(x + 1, x)
    computation(ONES)
    js = transformer.device.handle.js
    js.on_lost(type("Info", (), {"message": "it was unplugged"}))
    with pytest.raises(BackendError, match=r"does not answer any more \(.*it was unplugged"):
        computation(ONES)


def test_where_it_cannot_wait_it_says_what_to_do(ffi: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffi, "can_run_sync", lambda: False)
    with pytest.raises(BackendError, match="run Python by runPythonAsync"):
        weft.make_transformer("webgpu")


def test_a_call_between_a_call_and_its_results_is_refused(
    transformer: Any, ffi: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = weft.placeholder((4,), name="x")
    computation = transformer.computation(x + 1, x)
    computation(ONES)
    run_sync, said = ffi.run_sync, []

    def waiting(promise: Any) -> Any:
        monkeypatch.setattr(ffi, "run_sync", run_sync)
        with pytest.raises(BackendError, match="has not ended: await it") as caught:
            computation(ONES)
        said.append(caught)
        return run_sync(promise)

    monkeypatch.setattr(ffi, "run_sync", waiting)
    assert computation(ONES).tolist() == [2] * 4
    assert said
