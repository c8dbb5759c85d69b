"""Models whose shapes are known, so that a prediction needs no run: `roundelay plan --model`.

Each layer has the sizes of its gradients and its multiplications and additions for one sample. Sources: the
papers of the models; the totals are those of PyTorch's and Hugging Face's implementations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator


@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its name, the elements of its gradients, the flops of forward for one sample.

    rows: the first dimension of its first gradient, the weights. activations: the elements that forward reads
    and writes for one sample, weights not counted.
    """

    name: str
    gradients: tuple[int, ...]
    flops: float
    rows: int = 1
    activations: float = 0.0

    @property
    def elements(self) -> int:
        """The elements of all its gradients."""
        return sum(self.gradients)


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """A model: its layers in forward order."""

    name: str
    layers: tuple[Layer, ...]

    @property
    def elements(self) -> int:
        """The number of its parameters."""
        return sum(layer.elements for layer in self.layers)

    @property
    def flops(self) -> float:
        """The operations of one sample's forward pass; a multiplication and an addition are two."""
        return sum(layer.flops for layer in self.layers)


def _convolution(
    name: str, inputs: int, outputs: int, kernel: int, side: int, *, bias: bool = False, groups: int = 1
) -> Layer:
    """Describe a square convolution whose output has `side` by `side` places."""
    weights = inputs // groups * outputs * kernel * kernel
    gradients = (weights, outputs) if bias else (weights,)
    places = side * side
    # The stride is not known here: the input counts as large as the output.
    return Layer(name, gradients, 2.0 * weights * places, outputs, float((inputs + outputs) * places))


def _norm(name: str, channels: int, places: int) -> Layer:
    return Layer(name, (channels, channels), 4.0 * channels * places, activations=2.0 * channels * places)


def _linear(name: str, inputs: int, outputs: int, *, rows: int = 1) -> Layer:
    activations = float((inputs + outputs) * rows)
    return Layer(name, (inputs * outputs, outputs), 2.0 * inputs * outputs * rows, outputs, activations)


def alexnet() -> Shape:
    """AlexNet in one tower (Krizhevsky 2014), 224 by 224 pixels, 1,000 classes."""
    return Shape(
        "alexnet",
        (
            _convolution("conv1", 3, 64, 11, 55, bias=True),
            _convolution("conv2", 64, 192, 5, 27, bias=True),
            _convolution("conv3", 192, 384, 3, 13, bias=True),
            _convolution("conv4", 384, 256, 3, 13, bias=True),
            _convolution("conv5", 256, 256, 3, 13, bias=True),
            _linear("fc6", 256 * 6 * 6, 4096),
            _linear("fc7", 4096, 4096),
            _linear("fc8", 4096, 1000),
        ),
    )


def vgg16() -> Shape:
    """VGG-16 (Simonyan and Zisserman 2014), 224 by 224 pixels, 1,000 classes."""
    layers = []
    inputs, side = 3, 224
    for block, (outputs, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for index in range(1, count + 1):
            layers.append(_convolution(f"conv{block}_{index}", inputs, outputs, 3, side, bias=True))
            inputs = outputs
        side //= 2
    layers += [_linear("fc6", 512 * 7 * 7, 4096), _linear("fc7", 4096, 4096), _linear("fc8", 4096, 1000)]
    return Shape("vgg16", tuple(layers))


def _resnet(name: str, blocks: tuple[int, int, int, int]) -> Shape:
    """Describe a ResNet of bottlenecks (He et al. 2015), the stride in the middle convolution."""

    def layers() -> Iterator[Layer]:
        yield _convolution("conv1", 3, 64, 7, 112)
        yield _norm("bn1", 64, 112 * 112)
        inputs, before = 64, 56
        for stage, (count, width, side) in enumerate(
            zip(blocks, (64, 128, 256, 512), (56, 28, 14, 7), strict=True), 1
        ):
            for block in range(count):
                prefix = f"layer{stage}.{block}"
                first = before if block == 0 else side
                yield _convolution(f"{prefix}.conv1", inputs, width, 1, first)
                yield _norm(f"{prefix}.bn1", width, first * first)
                yield _convolution(f"{prefix}.conv2", width, width, 3, side)
                yield _norm(f"{prefix}.bn2", width, side * side)
                yield _convolution(f"{prefix}.conv3", width, 4 * width, 1, side)
                yield _norm(f"{prefix}.bn3", 4 * width, side * side)
                if block == 0:
                    yield _convolution(f"{prefix}.downsample", inputs, 4 * width, 1, side)
                    yield _norm(f"{prefix}.downsample_bn", 4 * width, side * side)
                inputs = 4 * width
            before = side
        yield _linear("fc", 2048, 1000)

    return Shape(name, tuple(layers()))


def resnet50() -> Shape:
    """ResNet-50, 224 by 224 pixels, 1,000 classes."""
    return _resnet("resnet50", (3, 4, 6, 3))


def resnet101() -> Shape:
    """ResNet-101, 224 by 224 pixels, 1,000 classes."""
    return _resnet("resnet101", (3, 4, 23, 3))


def _transformer(name: str, blocks: int, width: int, tokens: int, embeddings: tuple[int, ...]) -> Shape:
    """Describe blocks of attention and a network four times as wide, after embeddings of so many rows."""

    def layers() -> Iterator[Layer]:
        for index, rows in enumerate(embeddings):
            yield Layer(f"embedding{index}", (rows * width,), 0.0, rows)
        for block in range(blocks):
            prefix = f"block{block}"
            yield _norm(f"{prefix}.norm1", width, tokens)
            yield _linear(f"{prefix}.attention", width, 3 * width, rows=tokens)
            scores = 4.0 * tokens * tokens * width
            yield Layer(f"{prefix}.scores", (), scores, activations=4.0 * tokens * width)
            yield _linear(f"{prefix}.projection", width, width, rows=tokens)
            yield _norm(f"{prefix}.norm2", width, tokens)
            yield _linear(f"{prefix}.widen", width, 4 * width, rows=tokens)
            yield _linear(f"{prefix}.narrow", 4 * width, width, rows=tokens)
        yield _norm("norm", width, tokens)
        # The head shares the embedding's weights.
        head = float((width + embeddings[0]) * tokens)
        yield Layer("head", (), 2.0 * embeddings[0] * width * tokens, activations=head)

    return Shape(name, tuple(layers()))


def gpt2() -> Shape:
    """GPT-2 small (Radford et al. 2019), sequences of 1,024 tokens."""
    return _transformer("gpt2", 12, 768, 1024, (50257, 1024))


KNOWN: dict[str, Callable[[], Shape]] = {
    "alexnet": alexnet,
    "vgg16": vgg16,
    "resnet50": resnet50,
    "resnet101": resnet101,
    "gpt2": gpt2,
}
