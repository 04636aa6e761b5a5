"""Processes that any of Python's methods starts compute, share the cache and feed a training."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing import get_all_start_methods
from pathlib import Path

import pytest

from weft import plugins

pytestmark = pytest.mark.slow

# A process that has computed has threads, with which a fork is deprecated.
SCRIPT = """
import multiprocessing, sys, warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
import numpy as np
import weft, weft.distributed

backend, method, folder = sys.argv[1:]
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
context = multiprocessing.get_context(method)

def regression():
    x, y = weft.placeholder((256, 8)), weft.placeholder((256,))
    w = weft.variable((8,), initial_value=0)
    loss = weft.mean(weft.square(weft.tanh(x @ w) - y))
    with weft.saved_user_deps():
        step = weft.doall([weft.sgd(loss, learning_rate=0.5)])
    return loss, step, x, y

def batch(number):
    x = np.random.default_rng(number).normal(size=(256, 8)).astype("f4")
    return x, np.tanh(x[:, 0])

def trained(number):
    loss, step, x, y = regression()
    with weft.make_transformer(backend, cache=folder) as made:
        run = made.computation([loss, step], x, y)
        return [float(run(*batch(number + each))[0]) for each in range(5)]

def main():
    multiprocessing.set_forkserver_preload(["weft", "weft_numpy", "weft_native"])
    expected = [trained(number) for number in range(4)]
    names = sorted(Path(folder).iterdir())
    with context.Pool(2) as pool:
        assert pool.map(trained, range(4)) == expected
        print("a pool computes the same")
        assert sorted(Path(folder).iterdir()) == names != []
        print("and compiles nothing anew")

        loss, step, x, y = regression()
        with weft.make_transformer(backend, cache=folder) as made:
            run = made.computation([loss, step], x, y)
            losses = [float(run(*each)[0]) for each in pool.imap(batch, range(5))]
        assert losses == expected[0]
        print("it loads the data of a training")

    x = weft.placeholder((weft.symbol("n"),))
    root = weft.make_transformer(backend, cache=folder).computation(weft.sqrt(x), x)
    with ProcessPoolExecutor(2, context) as executor:
        found = weft.distributed.map(root, [np.full(2, n, "f4") for n in (4, 9)], executor)
        assert [each.tolist() for each in found] == [[2, 2], [3, 3]]
    print("and batches are mapped")

if __name__ == "__main__":
    main()
"""


@pytest.mark.share(3)
@pytest.mark.parametrize("method", get_all_start_methods())
@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_processes_compute_load_and_map(backend: str, method: str, tmp_path: Path) -> None:
    if not plugins.backend_status(backend).usable:
        pytest.skip(f"{backend} is not usable")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-W", "error", str(script), backend, method, str(tmp_path / "cache")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr
    assert not found.stderr
    assert len(found.stdout.splitlines()) == 4
