"""Small models of torch, one for each architecture, with inputs for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._dynamo import list_backends, register_backend
from torch.nn import functional

from weft_torch.backend import compile_graph

# A clone that is not installed has no entry points.
if "weft" not in list_backends():
    register_backend(compile_graph, "weft")


def compiled(function: Any, backend: str = "numpy", **options: Any) -> Any:
    """Return a model compiled by weft: one graph, or an error."""
    more = {name: options.pop(name) for name in ("dynamic", "fullgraph") if name in options}
    options = {"backend": backend, "strict": True} | options
    return torch.compile(function, backend="weft", options=options, **{"fullgraph": True} | more)


class Example(NamedTuple):
    """A model and arguments for it."""

    model: nn.Module
    args: tuple[Tensor, ...]


def perceptron() -> Example:
    """Dense layers."""
    layers = [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4)]
    return Example(nn.Sequential(*layers), (torch.randn(5, 8),))


def convolutional() -> Example:
    """Convolutions with batch normalization and pooling."""
    layers = [
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, groups=2), nn.SiLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 4),
    ]  # fmt: skip
    return Example(nn.Sequential(*layers), (torch.randn(2, 3, 12, 12),))


class Residual(nn.Module):
    """A block of a residual network that halves the image."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.last = nn.BatchNorm2d(after)
        self.short = nn.Conv2d(before, after, 1, stride=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm(self.first(x)), inplace=True)
        y = self.last(self.second(y))
        y += self.short(x)
        return functional.softplus(y)


def residual() -> Example:
    """A residual network."""
    layers = [Residual(3, 8), Residual(8, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return Example(nn.Sequential(*layers, nn.Linear(8, 5)), (torch.randn(3, 3, 12, 12),))


def mobile() -> Example:
    """Depthwise convolutions, with hard activations."""
    layers = [
        nn.Conv2d(3, 12, 1), nn.BatchNorm2d(12), nn.Hardswish(),
        nn.Conv2d(12, 12, 3, padding=1, groups=12), nn.ReLU6(), nn.Conv2d(12, 6, 1),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 3), nn.Hardsigmoid(),
    ]  # fmt: skip
    return Example(nn.Sequential(*layers), (torch.randn(2, 3, 8, 8),))


class UNet(nn.Module):
    """One level down and up."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Conv2d(2, 4, 3, padding=1)
        self.down = nn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        high = functional.leaky_relu(self.into(x))
        low = functional.elu(self.norm(self.down(high)))
        resized = functional.interpolate(x, scale_factor=0.5, mode="bilinear")
        grown = self.up(low) + resized.mean()
        return self.out(torch.cat([high, grown], 1))


class Attention(nn.Module):
    """Causal attention of some heads, with rotary positions if they are wanted."""

    def __init__(self, width: int, heads: int, rotary: bool = False) -> None:
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, steps, width = x.shape
        parts = self.project(x).view(batch, steps, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        if self.rotary:
            q, k = self.turned(q), self.turned(k)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, steps, width))

    def turned(self, x: Tensor) -> Tensor:
        steps, width = x.shape[-2:]
        rates = 10000.0 ** (-torch.arange(0, width, 2) / width)
        angles = torch.arange(steps)[:, None] * rates
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
        one, other = x.chunk(2, -1)
        return x * cos + torch.cat([-other, one], -1) * sin


class Decoder(nn.Module):
    """A language model."""

    def __init__(self, rotary: bool) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 16), nn.Embedding(32, 16)
        self.first = nn.RMSNorm(16) if rotary else nn.LayerNorm(16)
        self.attention = Attention(16, 4, rotary)
        self.second = nn.LayerNorm(16)
        self.into, self.gate, self.out = nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(32, 16)
        self.rotary = rotary

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        if not self.rotary:
            x = x + self.places(torch.arange(tokens.shape[1]))
        x = x + self.attention(self.first(x))
        y = self.second(x)
        x = x + self.out(functional.silu(self.gate(y)) * self.into(y))
        return x @ self.tokens.weight.T / math.sqrt(16)


def tokens() -> Tensor:
    """Return a batch of tokens."""
    return torch.randint(0, 50, (2, 9))


def gpt() -> Example:
    """A decoder with learned positions."""
    return Example(Decoder(rotary=False), (tokens(),))


def llama() -> Example:
    """A decoder with rotary positions and gates."""
    return Example(Decoder(rotary=True), (tokens(),))


def unet() -> Example:
    """A network for images with a way around its middle."""
    return Example(UNet(), (torch.randn(2, 2, 8, 8),))


class Encoder(nn.Module):
    """torch's own encoder layers, with a mask of what is padding."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor, is_padding: Tensor) -> Tensor:
        return self.head(self.layers(x, src_key_padding_mask=is_padding).mean(1))


def bert() -> Example:
    """An encoder of two layers."""
    is_padding = torch.arange(7) >= torch.tensor([[7], [5]])
    return Example(Encoder(), (torch.randn(2, 7, 16), is_padding))


class Patches(nn.Module):
    """A vision transformer of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.first = nn.Parameter(torch.zeros(1, 1, 16))
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(image), -1, -1), x], 1)
        return self.head(self.attention(x, x, x, need_weights=False)[0][:, 0])


def vit() -> Example:
    """Attention among patches of an image."""
    return Example(Patches(), (torch.randn(2, 3, 8, 8),))


class Recurrence(nn.Module):
    """A recurrent network in a loop of Python."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(6, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), 8)
        for step in x.unbind(1):
            state = self.cell(step, state)
        return functional.log_softmax(self.head(state), -1)


def recurrent() -> Example:
    """Cells one after the other."""
    return Example(Recurrence(), (torch.randn(3, 4, 6),))


class Biased(nn.Module):
    """Attention without scale to the states of another text, with a bias for each distance."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.distances = nn.Embedding(8, heads)

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor, states: Tensor) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(states)), self.split(self.v(states))
        here, there = torch.arange(x.shape[1])[:, None], torch.arange(states.shape[1])
        bias = self.distances((here - there).abs().clamp(max=7)).permute(2, 0, 1)
        if self.causal:
            bias = bias.masked_fill(there > here, torch.finfo(x.dtype).min)
        weights = functional.softmax((q @ k.transpose(2, 3) + bias).float(), -1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class EncoderDecoder(nn.Module):
    """Reads one text and writes another, one layer each."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, 16)
        self.read, self.write, self.cross = (Biased(16, 4, each) for each in (False, True, False))
        self.norms = nn.ModuleList(nn.RMSNorm(16) for _ in range(4))
        self.dense = nn.Sequential(nn.Linear(16, 32, bias=False), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, text: Tensor, written: Tensor) -> Tensor:
        first, second, third, last = self.norms
        x, y = self.tokens(text), self.tokens(written)
        states = x + self.read(first(x), first(x))
        y = y + self.write(second(y), second(y))
        y = y + self.cross(third(y), states)
        return last(y + self.dense(y)) @ self.tokens.weight.T


def t5() -> Example:
    """An encoder and a decoder."""
    return Example(EncoderDecoder(), (tokens(), tokens()[:, :4]))


class Listener(nn.Module):
    """An encoder of sound: convolutions, fixed positions, and a layer of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(6, 16, 3, padding=1)
        self.second = nn.Conv1d(16, 16, 3, stride=2, padding=1)
        angles = torch.arange(10)[:, None] * 10000.0 ** (-torch.arange(8) / 8)
        self.register_buffer("places", torch.cat([angles.sin(), angles.cos()], 1))
        self.layer = nn.TransformerEncoderLayer(
            16, 4, 32, 0.0, functional.gelu, batch_first=True, norm_first=True
        )
        self.norm = nn.LayerNorm(16)

    def forward(self, sound: Tensor) -> Tensor:
        x = functional.gelu(self.second(functional.gelu(self.first(sound))))
        return self.norm(self.layer(x.transpose(1, 2) + self.places))


def whisper() -> Example:
    """An encoder of sound."""
    return Example(Listener(), (torch.randn(2, 6, 20),))


MODELS: dict[str, Callable[[], Example]] = {
    each.__name__: each
    for each in (
        perceptron, convolutional, residual, mobile, unet, gpt, llama, t5, bert, vit, whisper,
        recurrent,
    )
}  # fmt: skip


def made(name: str) -> Example:
    """Return a model with the same weights and inputs every time."""
    torch.manual_seed(7)
    return MODELS[name]()
