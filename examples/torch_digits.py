"""Train a convolutional network of PyTorch through weft, and run it where there is no torch.

The network learns the handwritten digits of scikit-learn; `torch.compile` gives its forward pass
and gradients to weft. Then it is exported, and saved with its parameters as an artifact, which
another process loads and runs without torch::

    python examples/torch_digits.py --backend opencl --epochs 5
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

try:
    import torch
    from sklearn.datasets import load_digits
    from torch import Tensor, nn
except ImportError as missing:
    extras = "pip install 'weftc[torch,demo]'"
    raise SystemExit(f"This example needs {missing.name}: {extras}") from None

import weft_torch

BATCH = 64


class Block(nn.Module):
    """Two convolutions beside a shortcut, which halve the image."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        self.shortcut = nn.Conv2d(before, after, 1, stride=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of half the height and width."""
        y = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(y)) + self.shortcut(x))


def network() -> Any:
    """Return a network from images of 8 by 8 pixels to ten scores."""
    stem = [nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, 10)]
    return nn.Sequential(*stem, Block(16, 32), Block(32, 64), *head)


def data() -> tuple[Tensor, Tensor]:
    """Return images of pixels between 0 and 1, and their digits, shuffled."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    pixels = torch.from_numpy((images[order] / 16).astype("f4")).reshape(-1, 1, 8, 8)
    return pixels, torch.from_numpy(labels[order])


def train(model: Any, images: Tensor, labels: Tensor, backend: str, epochs: int) -> None:
    """Train a model through weft, with an optimizer of torch."""
    fast = torch.compile(model.train(), backend="weft", options={"backend": backend})
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for epoch in range(epochs):
        losses = []
        for first in range(0, len(labels) - BATCH + 1, BATCH):
            batch = slice(first, first + BATCH)
            loss = nn.functional.cross_entropy(fast(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        typer.echo(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}")


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # which makes an import of it an error
import numpy as np
import weft
folder, backend = sys.argv[1:]
images, labels = np.load(f"{folder}/images.npy"), np.load(f"{folder}/labels.npy")
(scores,) = weft.load(f"{folder}/model.weft", backend)(images)
right = (scores.argmax(1) == labels).mean()
print(f"without torch: {right:.1%} of {len(labels)} other digits are right")
"""


def main(
    backend: Annotated[str, typer.Option(help="The backend that computes.")] = "native",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the digits.")] = 5,
) -> None:
    """Train, export and run the network."""
    torch.manual_seed(0)
    images, labels = data()
    count = len(labels) * 3 // 4
    model = network()
    train(model, images[:count], labels[:count], backend, epochs)
    batch = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(model.eval(), (images[:2],), dynamic_shapes=batch)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        computation = weft_torch.from_exported(program, backend)
        computation.save(folder / "model.weft", states=True)
        np.save(folder / "images.npy", images[count:].numpy())
        np.save(folder / "labels.npy", labels[count:].numpy())
        subprocess.run([sys.executable, "-c", WITHOUT_TORCH, str(folder), backend], check=True)


if __name__ == "__main__":
    typer.run(main)
