"""Nine models of PyTorch compiled by weft, beside inductor and eager PyTorch.

Each is run for its results and for a training step, which ends with the gradients of all
parameters. All engines run the same model with the same number of threads: their results are
compared, then they take turns in one process. On one thread the clock is that of the thread, which
stands still while other programs run. First calls are those of fresh processes with empty
caches; memory is what steps add to the peak of a fresh process that reads what was compiled from
the caches. ``--write`` puts the tables into RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from environment import FOLDER, cores, run_fresh
from measure import interleaved
from peak_memory import peak_of_this_process

ENGINES = ("weft", "inductor", "eager")
COMPILERS = ENGINES[:2]
WORK = ("forward", "step")
STEPS = 3
TOLERANCE = {"forward": 1e-3, "step": 1e-2}
"""The largest difference from eager results and gradients, over the largest of these.

It is chance on which side of zero a few values before a ReLU are, and each changes gradients.
"""

RESULTS = FOLDER / "RESULTS.md"
OPENING, CLOSING = "<!-- generated torch: begin -->", "<!-- generated torch: end -->"


class Model(NamedTuple):
    """A model, and the arguments of a call by position and by name."""

    module: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}

    def forward(self, function: Any) -> Any:
        """Return the result of a compiled or eager form of the model."""
        found = function(*self.args, **self.kwargs)
        names = ("logits", "last_hidden_state")
        return next((getattr(found, name) for name in names if hasattr(found, name)), found)

    def step(self, function: Any) -> None:
        """Compute the gradients of the mean of squared results."""
        self.module.zero_grad(set_to_none=True)
        (self.forward(function) ** 2).mean().backward()


def mlp() -> Model:
    """Return three dense layers for a batch of 128."""
    import torch
    from torch import nn

    layers = [nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10)]
    return Model(nn.Sequential(*layers), (torch.randn(128, 256),))


def cnn() -> Model:
    """Return two convolutions with pooling for 32 images."""
    import torch
    from torch import nn

    layers = [
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2048, 10),
    ]  # fmt: skip
    return Model(nn.Sequential(*layers), (torch.randn(32, 3, 32, 32),))


def resnet18() -> Model:
    """Return the residual network of torchvision for four images."""
    import torch

    module = import_module("torchvision.models").resnet18(num_classes=10)
    return Model(module, (torch.randn(4, 3, 96, 96),))


def vit() -> Model:
    """Return a vision transformer of torchvision for eight images of 64 patches."""
    import torch

    module = import_module("torchvision.models").VisionTransformer(
        image_size=64, patch_size=8, num_layers=2, num_heads=4, hidden_dim=128, mlp_dim=256,
        num_classes=10,
    )  # fmt: skip
    torch.nn.init.normal_(module.heads.head.weight, std=0.05)
    return Model(module, (torch.randn(8, 3, 64, 64),))


def transformer(kind: str, config: str, inputs: Mapping[str, Any], **given: Any) -> Model:
    """Return a model of transformers, without dropout."""
    library = import_module("transformers")
    make = getattr(library, config)
    dropped = dict.fromkeys((name for name in vars(make()) if "drop" in name), 0.0)
    module, _, name = kind.rpartition(".")
    holder = import_module(f"transformers.models.{module}") if module else library
    return Model(getattr(holder, name)(make(**dropped | given)), (), inputs)


def tokens(steps: int = 64) -> Any:
    """Return four texts."""
    import torch

    return torch.randint(0, 1000, (4, steps))


def bert() -> Model:
    """Return an encoder of two layers for texts of 64 tokens with a mask."""
    inputs = {"input_ids": tokens(), "attention_mask": tokens() * 0 + 1}
    return transformer(
        "BertForSequenceClassification", "BertConfig", inputs, vocab_size=1000, hidden_size=128,
        num_hidden_layers=2, num_attention_heads=4, intermediate_size=512,
    )  # fmt: skip


def gpt2() -> Model:
    """Return a decoder of two layers with learned positions."""
    return transformer(
        "GPT2LMHeadModel", "GPT2Config", {"input_ids": tokens()}, vocab_size=1000, n_embd=128,
        n_layer=2, n_head=4, n_positions=128, use_cache=False,
    )  # fmt: skip


def llama() -> Model:
    """Return a decoder of two layers with rotary positions, whose queries share keys."""
    return transformer(
        "LlamaForCausalLM", "LlamaConfig", {"input_ids": tokens()}, vocab_size=1000,
        hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=384, use_cache=False,
    )  # fmt: skip


def t5() -> Model:
    """Return an encoder and a decoder of two layers each, which writes 16 tokens."""
    inputs = {"input_ids": tokens(), "decoder_input_ids": tokens(16)}
    return transformer(
        "T5ForConditionalGeneration", "T5Config", inputs, vocab_size=1000, d_model=128, d_kv=32,
        d_ff=256, num_layers=2, num_heads=4, use_cache=False,
    )  # fmt: skip


def whisper() -> Model:
    """Return an encoder of sound of two layers."""
    import torch

    inputs = {"input_features": torch.randn(2, 40, 300)}
    return transformer(
        "whisper.modeling_whisper.WhisperEncoder", "WhisperConfig", inputs, d_model=128,
        encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=256, num_mel_bins=40,
        max_source_positions=150,
    )  # fmt: skip


MODELS: dict[str, Callable[[], Model]] = {
    each.__name__: each for each in (mlp, cnn, resnet18, vit, bert, gpt2, llama, t5, whisper)
}


def threads() -> int:
    """Return the number of threads of every engine in this process."""
    return int(os.environ["WEFT_NUM_THREADS"])


def made(name: str) -> Model:
    """Return a model with the same weights and inputs in every process."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(threads())
    torch.manual_seed(0)
    return MODELS[name]()


def engine_of(module: Any, engine: str) -> Any:
    """Return a form of a model."""
    import torch

    if engine == "eager":
        return module
    if engine == "inductor":
        return torch.compile(module)
    return torch.compile(module, backend="weft", options={"backend": "native", "strict": True})


def runs(model: Model, engine: str) -> dict[str, Callable[[], Any]]:
    """Return the work of an engine, each kind in the mode that it is for."""
    import torch

    function = engine_of(model.module, engine)

    def forward() -> Any:
        with torch.no_grad():
            return model.forward(function)

    return {"forward": forward, "step": lambda: model.step(function)}


def first_calls(name: str, engine: str) -> list[float]:
    """Return the seconds of the first forward call and of the first step of this process."""
    model = made(name)
    seconds = []
    for work, run in runs(model, engine).items():
        model.module.train(work == "step")
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds


def added_by_steps(name: str, engine: str) -> int:
    """Return the bytes that steps add to the peak of this process, with the model and engines."""
    for module in ("torch._inductor.compile_fx", "weft_torch.backend"):
        import_module(module)
    model = made(name)
    before = peak_of_this_process()
    step = runs(model, engine)["step"]
    for _ in range(STEPS):
        step()
    return peak_of_this_process() - before


def times(name: str, rounds: int) -> dict[str, dict[str, float]]:
    """Return the best seconds of each work by engine; raises AssertionError for wrong results."""
    model = made(name)
    clock = time.thread_time if threads() == 1 else time.perf_counter
    compiled = {engine: runs(model, engine) for engine in ENGINES}
    found = {}
    for work in WORK:
        model.module.train(work == "step")
        require_equal(name, work, model, compiled)
        candidates = {engine: each[work] for engine, each in compiled.items()}
        samples = interleaved(candidates, rounds, clock=clock)
        found[work] = {engine: samples.best(engine) for engine in ENGINES}
    return found


def require_equal(
    name: str, work: str, model: Model, compiled: Mapping[str, Mapping[str, Callable[[], Any]]]
) -> None:
    """Raise AssertionError if results, or gradients of a step, are not those of eager PyTorch."""
    state = {key: value.clone() for key, value in model.module.state_dict().items()}
    by_engine = {}
    for engine, run in compiled.items():
        model.module.load_state_dict(state)
        result = run[work]()
        gradients = [each.grad for each in model.module.parameters() if each.grad is not None]
        by_engine[engine] = [result] if work == "forward" else gradients
    expected = by_engine["eager"]
    largest = max(float(each.abs().max()) for each in expected)
    for engine in COMPILERS:
        pairs = zip(by_engine[engine], expected, strict=True)
        error = max(float((one - other).abs().max()) for one, other in pairs) / largest
        if not error < TOLERANCE[work]:
            raise AssertionError(f"{work} of {name} by {engine}: wrong by {error:.1e}")


@dataclass(frozen=True)
class Outcome:
    """What was measured of a model.

    Attributes
    ----------
    seconds
        The best times, by work and engine.
    first
        The seconds of first calls, by engine, in the order of `WORK`.
    added
        The bytes that steps add to a process, by engine.
    """

    name: str
    seconds: Mapping[str, Mapping[str, float]]
    first: Mapping[str, Sequence[float]]
    added: Mapping[str, int]

    def ratio(self, work: str) -> float:
        """Return the time of weft over that of inductor."""
        return self.seconds[work]["weft"] / self.seconds[work]["inductor"]

    @property
    def first_ratio(self) -> float:
        """The time of both first calls over that of inductor."""
        return sum(self.first["weft"]) / sum(self.first["inductor"])

    def times(self) -> list[str]:
        """Return the row of the table of times."""
        cells = [self.name]
        for work in WORK:
            cells += [f"{self.seconds[work][engine] * 1e3:.2f}" for engine in ENGINES]
            cells.append(f"{self.ratio(work):.2f}")
        return cells

    def costs(self) -> list[str]:
        """Return the row of the table of first calls and memory."""
        pairs = zip(self.first["weft"], self.first["inductor"], strict=True)
        first = [f"{each:.1f}" for pair in pairs for each in pair]
        added = [f"{self.added[engine] / 1e6:.0f}" for engine in ENGINES]
        return [self.name, *first, f"{self.first_ratio:.2f}", *added]


TIMES = ("model", *(f"{e}, {w}, ms" if e else f"{w}, over inductor's"
                    for w in WORK for e in (*ENGINES, "")))  # fmt: skip
COSTS = (
    "model", *(f"{engine}, first {work}, s" for work in WORK for engine in COMPILERS),
    "over inductor's", *(f"step of {engine}, MB" for engine in ENGINES),
)  # fmt: skip


def measured(name: str, threads: int, rounds: int) -> Outcome:
    """Return the outcome of a model, of fresh processes whose caches begin empty."""
    with TemporaryDirectory() as scratch:
        variables = {
            "WEFT_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads),
            "WEFT_CACHE": "1", "WEFT_CACHE_DIR": f"{scratch}/weft",
            "TORCHINDUCTOR_CACHE_DIR": f"{scratch}/inductor",
        }  # fmt: skip

        def child(*arguments: str) -> Any:
            command = [__file__, "--child", *arguments]
            lines = run_fresh(command, str(bytecode()), **variables).splitlines()
            return json.loads(lines[-1])

        first = {engine: child("first", name, engine) for engine in COMPILERS}
        added = {engine: child("added", name, engine) for engine in ENGINES}
        return Outcome(name, child("times", name, str(rounds)), first, added)


def bytecode() -> Path:
    """Return the folder of bytecode that children share: what they import is compiled once."""
    return Path(os.environ["BENCHMARK_BYTECODE"])


def answered(kind: str, name: str, argument: str) -> Any:
    """Return what a child was asked for."""
    if kind == "first":
        return first_calls(name, argument)
    if kind == "added":
        return added_by_steps(name, argument)
    return times(name, int(argument))


def mean(ratios: Sequence[float]) -> str:
    """Return the geometric mean."""
    return f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}"


def tables(found: Sequence[Outcome]) -> Iterator[str]:
    """Write both tables, line by line."""

    def row(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    means = [mean([each.ratio(work) for each in found]) for work in WORK]
    blank = [""] * len(ENGINES)
    yield row(TIMES)
    yield "|---" * len(TIMES) + "|"
    yield from (row(each.times()) for each in found)
    yield row(["geometric mean", *blank, means[0], *blank, means[1]])
    yield ""
    yield row(COSTS)
    yield "|---" * len(COSTS) + "|"
    yield from (row(each.costs()) for each in found)
    firsts = [""] * len(COMPILERS) * len(WORK)
    yield row(["geometric mean", *firsts, mean([each.first_ratio for each in found]), *blank])


def write(found: Sequence[Outcome], threads: int) -> None:
    """Replace the tables in the page of results."""
    import torch

    head = f"Measured on {datetime.now(UTC).date()} on {cores()} cores, {threads} threads, "
    head += f"torch {torch.__version__}; load after {os.getloadavg()[0]:.2g}.\n\n"
    before, rest = RESULTS.read_text(encoding="utf-8").split(OPENING)
    _, after = rest.split(CLOSING)
    text = f"{before}{OPENING}\n{head}" + "\n".join(tables(found)) + f"\n{CLOSING}{after}"
    RESULTS.write_text(text, encoding="utf-8")


def main() -> None:
    """Run what the command line asks for, and print or write the tables."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(answered(*sys.argv[2:])))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=MODELS)
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    found = []
    with TemporaryDirectory() as folder:
        os.environ["BENCHMARK_BYTECODE"] = folder
        for name in given.only or MODELS:
            found.append(measured(name, given.threads, given.rounds))
            print(json.dumps(asdict(found[-1])), flush=True)
    print("\n".join(tables(found)))
    if given.write:
        write(found, given.threads)


if __name__ == "__main__":
    main()
