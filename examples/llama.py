"""Train a small LLaMA on a few pages of text, and let it go on with a sentence, with weft.

From the root of the repository::

    python examples/llama.py --backend numpy --prompt "A loom is"
    python examples/llama.py --checkpoint out/llama.bin --tokenizer out/tokenizer.bin

Checkpoints and tokenizers are those of llama2.c, so models in its format run as well.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from llama2.checkpoint import Config, read_checkpoint, write_checkpoint
from llama2.decoder import Decoder
from llama2.files import FormatError, require_writable
from llama2.sampling import Sampling
from llama2.tokenizer import BEGIN, Tokenizer, characters, read_tokenizer, write_tokenizer
from llama2.training import TEXT, Plan, Trainer, paragraphs, train
from rich.progress import BarColumn, Progress, TextColumn

import weft

SMALL = Config(dim=128, hidden_dim=352, layers=2, heads=4, kv_heads=2, vocabulary=0, longest=256)
"""The sizes of the model that is trained; its vocabulary is that of the text."""

SEQUENCE = 256
"""The tokens of a sequence in training."""


def small_model(plan: Plan, out: Path, prompt: str, backend: str | None) -> tuple[Path, Path]:
    """Train a model on the text that comes with the example; return its files.

    Raises OSError if they cannot be written, and FormatError if the prompt will not fit, before
    anything is trained.
    """
    checkpoint, pieces = out / "llama.bin", out / "tokenizer.bin"
    for path in (checkpoint, pieces):
        require_writable(path)
    text = TEXT.read_text(encoding="utf-8")
    tokenizer = characters(text)
    config = SMALL._replace(vocabulary=len(tokenizer.pieces))
    fitting(tokenizer, prompt, config.longest)
    started = time.perf_counter()
    trainer = Trainer(config, plan, backend)
    loss = train(trainer, paragraphs(text, tokenizer))
    seconds = time.perf_counter() - started
    print(f"trained    {plan.steps} steps in {seconds:.1f} s, loss {loss:.3f} per character")

    write_checkpoint(checkpoint, config, trainer.weights())
    write_tokenizer(pieces, tokenizer)
    print(f"written    {checkpoint} and {pieces}")
    return checkpoint, pieces


def fitting(tokenizer: Tokenizer, prompt: str, positions: int) -> list[int]:
    """Return the tokens of a prompt; raises FormatError if they leave no position free."""
    tokens = tokenizer.encode(prompt)
    excess = len(tokens) - (positions - 1)
    if excess > 0:
        raise FormatError(
            f"the prompt has {_tokens(len(tokens))}, the one for the beginning included, and the "
            f"model has {positions} positions, of which one must stay free for what follows: "
            f"shorten the prompt by {_tokens(excess)}"
        )
    return tokens


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count} tokens"


def generate(
    decoder: Decoder, prompt: Sequence[int], count: int, sampling: Sampling, seed: int
) -> Iterator[int]:
    """Yield up to so many tokens that go on with a prompt, until one begins another text."""
    random = np.random.default_rng(seed)
    logits = decoder.read(prompt)
    end = min(len(prompt) + count, decoder.config.longest)
    for position in range(len(prompt), end):
        token = sampling.choose(logits, random)
        if token == BEGIN:
            return
        yield token
        if position + 1 < end:
            logits = decoder.decode(token, position)


def tell(
    decoder: Decoder, tokenizer: Tokenizer, prompt: str, count: int, sampling: Sampling, seed: int
) -> None:
    """Print a prompt and what the model makes of it, behind a progress bar, and how fast it is.

    Raises FormatError if the prompt has more tokens than the model has positions for.
    """
    tokens = fitting(tokenizer, prompt, decoder.config.longest)
    room = decoder.config.longest - len(tokens)
    started = time.perf_counter()
    decoder.decode(BEGIN, 0)
    decoder.read(tokens)
    print(f"compiled   in {time.perf_counter() - started:.2f} s")
    columns = (
        TextColumn("{task.completed:.0f} tokens"),
        BarColumn(),
        TextColumn("{task.fields[rate]:,.0f} tokens/s"),
    )
    made: list[int] = []
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task("", total=min(count, room), rate=0.0)
        started = time.perf_counter()
        for token in generate(decoder, tokens, count, sampling, seed):
            made.append(token)
            rate = len(made) / (time.perf_counter() - started)
            progress.update(task, advance=1, rate=rate)
    seconds = time.perf_counter() - started
    print(f"decoded    {len(made)} tokens, {len(made) / seconds:,.0f} tokens/s")
    print(tokenizer.decode([*tokens, *made]))


app = typer.Typer(add_completion=False)


@app.command()
def main(
    backend: Annotated[str | None, typer.Option(help="Backend; weft's default if none.")] = None,
    prompt: Annotated[str, typer.Option(help="What the text begins with.")] = "A graph is",
    tokens: Annotated[int, typer.Option(min=1, help="The most tokens to make.")] = 400,
    temperature: Annotated[float, typer.Option(min=0, help="0 takes the likeliest.")] = 0.7,
    top_p: Annotated[float, typer.Option(min=0, max=1, help="Share of chances to keep.")] = 0.9,
    seed: Annotated[int, typer.Option(min=0, help="Of weights, batches and choices.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Steps of training.")] = 900,
    learning_rate: Annotated[float, typer.Option(min=0)] = 5e-3,
    out: Annotated[Path, typer.Option(help="Folder for checkpoint and tokenizer.")] = Path("out"),
    checkpoint: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Do not train: decode with this file.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(dir_okay=False, help="The pieces of that checkpoint.")
    ] = None,
    bits: Annotated[int | None, typer.Option(help="2, 4 or 8: decode with such weights.")] = None,
) -> None:
    """Train a small LLaMA on a text about weaving, or take a checkpoint, and generate with it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the text is made before it is printed
    try:
        if (checkpoint is None) != (tokenizer is None):
            raise FormatError("--checkpoint and --tokenizer go together: give both or none")
        if checkpoint is None or tokenizer is None:
            plan = Plan(steps, sequence=SEQUENCE, rate=learning_rate, seed=seed)
            checkpoint, tokenizer = small_model(plan, out, prompt, backend)
        config, weights = read_checkpoint(checkpoint)
        pieces = read_tokenizer(tokenizer, config.vocabulary)
        decoder = Decoder(config, weights, backend, bits)
        tell(decoder, pieces, prompt, tokens, Sampling(temperature, top_p), seed)
    except (weft.WeftError, FormatError, FloatingPointError, OSError) as error:
        raise SystemExit(f"llama.py: {error}") from None


if __name__ == "__main__":
    app()
