"""Classes of torchvision and transformers with random weights, in small configurations.

Nothing is downloaded. Dropout is off and what a model draws by itself is given to it, so that its
results are those of eager torch.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

VOCABULARY, STEPS = 60, 8


class Entry(NamedTuple):
    """A model and the arguments of a call, by position and by name."""

    model: nn.Module
    args: tuple[Tensor, ...]
    kwargs: dict[str, Any]


def vision(name: str, *args: Any, size: int = 32, **kwargs: Any) -> Entry:
    """Return a model of torchvision, for two images."""
    models = import_module("torchvision.models")
    module, _, kind = name.rpartition(".")
    made = getattr(import_module(f"torchvision.models.{module}") if module else models, kind)
    return Entry(made(*args, **kwargs), (torch.randn(2, 3, size, size),), {})


def efficientnet() -> Entry:
    """Return depthwise convolutions with squeezed channels."""
    config = import_module("torchvision.models.efficientnet").MBConvConfig
    settings = [config(1, 3, 1, 8, 8, 1, 1.0, 1.0), config(4, 5, 2, 8, 16, 2, 1.0, 1.0)]
    return vision("EfficientNet", settings, dropout=0.0, stochastic_depth_prob=0.0, num_classes=5)


def convnext() -> Entry:
    """Return convolutions with large filters and layer normalization."""
    config = import_module("torchvision.models.convnext").CNBlockConfig
    return vision("ConvNeXt", [config(8, 16, 1), config(16, None, 2)], num_classes=5)


def swin() -> Entry:
    """Return attention in shifted windows."""
    return vision(
        "SwinTransformer", [2, 2], 12, [2, 2], [2, 4], [4, 4],
        stochastic_depth_prob=0.0, num_classes=5,
    )  # fmt: skip


def vit() -> Entry:
    """Return attention among patches of an image."""
    found = vision("VisionTransformer", 32, 8, 2, 2, 16, 32, num_classes=5)
    nn.init.normal_(found.model.heads.head.weight)
    return found


def resnet18() -> Entry:
    """Return the residual network of eighteen layers.

    In float64: in float32 it is chance on which side of zero a few of its numbers are.
    """
    model, (image,), _ = vision("resnet18", num_classes=5, size=64)
    return Entry(model.double(), (image.double(),), {})


def tokens(steps: int = STEPS) -> Tensor:
    """Return a batch of two texts."""
    return torch.randint(2, VOCABULARY, (2, steps))


def transformer(name: str, *, inputs: dict[str, Tensor], **config: Any) -> Entry:
    """Return a model of transformers, named by its module and its class.

    Its configuration has the name of the class up to `For` or `Model`.
    """
    module, _, kind = name.partition(".")
    models = import_module(f"transformers.models.{module}.modeling_{module}")
    stem = kind.split("For")[0].split("Model")[0].split("LMHead")[0].split("Encoder")[0]
    configs = import_module(f"transformers.models.{module}.configuration_{module}")
    without = {
        each: 0.0
        for each in vars(getattr(configs, f"{stem}Config")())
        if "drop" in each or "mask_time_prob" in each
    }
    given = getattr(configs, f"{stem}Config")(**without | config)
    return Entry(getattr(models, kind)(given), (), inputs)


SMALL = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 32,
}  # fmt: skip


def bert() -> Entry:
    """Return an encoder with a mask."""
    mask = (torch.arange(STEPS) < torch.tensor([[STEPS], [5]])).long()
    inputs = {"input_ids": tokens(), "attention_mask": mask}
    return transformer("bert.BertForSequenceClassification", inputs=inputs, **SMALL)


def distilbert() -> Entry:
    """Return an encoder that was distilled."""
    inputs = {"input_ids": tokens(), "attention_mask": torch.ones(2, STEPS, dtype=torch.long)}
    return transformer(
        "distilbert.DistilBertForSequenceClassification", inputs=inputs,
        vocab_size=VOCABULARY, dim=16, n_layers=2, n_heads=2, hidden_dim=32,
    )  # fmt: skip


def gpt2() -> Entry:
    """Return a decoder with learned positions."""
    return transformer(
        "gpt2.GPT2LMHeadModel", inputs={"input_ids": tokens()}, use_cache=False,
        vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=32,
    )  # fmt: skip


def decoder(name: str, **config: Any) -> Entry:
    """Return a decoder with rotary positions."""
    return transformer(
        name, inputs={"input_ids": tokens()}, **SMALL | {"use_cache": False} | config
    )


def llama() -> Entry:
    """Return a decoder whose queries share keys."""
    return decoder("llama.LlamaForCausalLM", num_key_value_heads=1)


def mistral() -> Entry:
    """Return a decoder with a window."""
    return decoder("mistral.MistralForCausalLM", num_key_value_heads=1, sliding_window=4)


def phi() -> Entry:
    """Return a decoder with partly rotated heads."""
    return decoder("phi.PhiForCausalLM")


def mamba() -> Entry:
    """Return a decoder with selective states in place of attention."""
    return transformer(
        "mamba.MambaForCausalLM", inputs={"input_ids": tokens()}, use_cache=False,
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, state_size=4,
    )  # fmt: skip


def t5() -> Entry:
    """Return an encoder and a decoder."""
    return transformer(
        "t5.T5ForConditionalGeneration", use_cache=False,
        inputs={"input_ids": tokens(), "decoder_input_ids": tokens(4)},
        vocab_size=VOCABULARY, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2,
    )  # fmt: skip


def whisper() -> Entry:
    """Return an encoder of sound."""
    return transformer(
        "whisper.WhisperEncoder", inputs={"input_features": torch.randn(2, 10, 24)},
        d_model=16, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=32,
        num_mel_bins=10, max_source_positions=12,
    )  # fmt: skip


def wav2vec2() -> Entry:
    """Return an encoder of samples of sound."""
    return transformer(
        "wav2vec2.Wav2Vec2Model", inputs={"input_values": torch.randn(2, 400)},
        **SMALL, conv_dim=[8, 8], conv_kernel=[10, 3], conv_stride=[5, 2],
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
    )  # fmt: skip


def clip() -> Entry:
    """Return an encoder of texts and one of images."""
    text = SMALL | {"projection_dim": 8, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    image = SMALL | {"image_size": 16, "patch_size": 8, "projection_dim": 8}
    del image["vocab_size"]
    inputs = {"input_ids": tokens(), "pixel_values": torch.randn(2, 3, 16, 16)}
    inputs["attention_mask"] = torch.ones(2, STEPS, dtype=torch.long)
    return transformer(
        "clip.CLIPModel", inputs=inputs, text_config=text, vision_config=image, projection_dim=8
    )


def vit_mae() -> Entry:
    """Return patches of which most are hidden and to be found."""
    config = {name: n for name, n in SMALL.items() if name != "vocab_size"}
    return transformer(
        "vit_mae.ViTMAEForPreTraining", **config, image_size=16, patch_size=4,
        inputs={"pixel_values": torch.randn(2, 3, 16, 16), "noise": torch.rand(2, 16)},
        decoder_hidden_size=16, decoder_num_hidden_layers=1, decoder_num_attention_heads=2,
        decoder_intermediate_size=32,
    )  # fmt: skip


ZOO: dict[str, Callable[[], Entry]] = {
    each.__name__: each
    for each in (
        resnet18, vit, efficientnet, convnext, swin, bert, distilbert, gpt2, llama, mistral, phi,
        mamba, t5, whisper, wav2vec2, clip, vit_mae,
    )
}  # fmt: skip
