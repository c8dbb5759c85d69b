"""The models of benchmarks.train_step, with their inputs."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable

import torch
from torch import nn

# Inputs, and classes of shape (batch,) or (batch, length).
Batch = tuple[torch.Tensor, torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Task:
    """A model and a function that draws its batches."""

    model: nn.Module
    batch: Callable[[torch.Generator], Batch]


def task_loss(model: nn.Module, inputs: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """Compute the mean cross entropy of a batch, with the logits in the last dimension."""
    out = model(inputs)
    logits = getattr(out, "logits", out)
    return nn.functional.cross_entropy(logits.flatten(0, -2), classes.flatten())


def mlp() -> Task:
    """Build 48 layers of 256: many small gradients."""
    layers = [layer for _ in range(48) for layer in (nn.Linear(256, 256), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(256, 10))
    return Task(
        model,
        lambda g: (
            torch.randn(64, 256, generator=g, device=g.device),
            torch.randint(10, (64,), generator=g, device=g.device),
        ),
    )


class Transformer(nn.Module):
    """A language model: an embedding, layers of an encoder, a head."""

    def __init__(self, words: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of each token's successor."""
        logits: torch.Tensor = self.head(self.encoder(self.embedding(tokens)))
        return logits


def transformer() -> Task:
    """Build 4 layers of 256 with a vocabulary of 4096: two large gradients among small ones."""
    words, length, batch = 4096, 32, 4

    def make(generator: torch.Generator) -> Batch:
        tokens = torch.randint(words, (batch, length + 1), generator=generator, device=generator.device)
        return tokens[:, :-1], tokens[:, 1:].contiguous()

    return Task(Transformer(words, 256, 4), make)


def cnn() -> Task:
    """Build eight convolutions on 32x32 images: few parameters for much work."""
    layers: list[nn.Module] = []
    channels = 3
    for wide, stride in ((32, 1), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)):
        convolution = nn.Conv2d(channels, wide, 3, stride, 1, bias=False)
        layers += [convolution, nn.GroupNorm(8, wide), nn.ReLU()]
        channels = wide
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    return Task(
        model,
        lambda g: (
            torch.randn(8, 3, 32, 32, generator=g, device=g.device),
            torch.randint(10, (8,), generator=g, device=g.device),
        ),
    )


def resnet50() -> Task:
    """Build transformers' ResNet-50 with random weights."""
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig()
    config.num_labels = 1000
    model = ResNetForImageClassification(config)
    return Task(
        model,
        lambda g: (
            torch.randn(4, 3, 96, 96, generator=g, device=g.device),
            torch.randint(1000, (4,), generator=g, device=g.device),
        ),
    )


def gpt2() -> Task:
    """Build transformers' GPT-2 small with random weights, without dropout: all train the same."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    length = 64

    def make(generator: torch.Generator) -> Batch:
        tokens = torch.randint(
            config.vocab_size, (1, length + 1), generator=generator, device=generator.device
        )
        return tokens[:, :-1], tokens[:, 1:].contiguous()

    return Task(GPT2LMHeadModel(config), make)


MODELS: dict[str, Callable[[], Task]] = {
    "mlp": mlp,
    "transformer": transformer,
    "cnn": cnn,
    "resnet50": resnet50,
    "gpt2": gpt2,
}
_OF_TRANSFORMERS = ("resnet50", "gpt2")


def available() -> list[str]:
    """List the models that can be built here: some need the transformers package."""
    missing = importlib.util.find_spec("transformers") is None
    return [name for name in MODELS if not (missing and name in _OF_TRANSFORMERS)]
