"""Models whose shapes are known, so that a prediction needs no run: `roundelay plan --model`.

Each layer has the sizes of its gradients and its multiplications and additions for one sample. Sources: the
papers of the models; the totals are those of PyTorch's and Hugging Face's implementations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from roundelay.tuning.kernels.kinds import Convolution, ElementWise, Kernel, MatrixProduct, Normalisation


@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its name, the elements of its gradients, the flops of forward for one sample.

    rows: the first dimension of its first gradient, the weights. activations: the elements that forward reads
    and writes for one sample, weights not counted. kernels: those that the layer runs, and those of the
    element-wise operations that follow it.
    """

    name: str
    gradients: tuple[int, ...]
    flops: float
    rows: int = 1
    activations: float = 0.0
    kernels: tuple[Kernel, ...] = ()

    @property
    def elements(self) -> int:
        """The elements of all its gradients."""
        return sum(self.gradients)

    def then(self, *operations: tuple[str, int]) -> Layer:
        """Return the layer with operations that follow it, each with its number of elements."""
        own = tuple(ElementWise(name, elements) for name, elements in operations)
        return dataclasses.replace(self, kernels=(*self.kernels, *own))


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
    name: str, inputs: int, outputs: int, kernel: int, side: int, *, stride: int = 1, bias: bool = False
) -> Layer:
    """Describe a square convolution whose output has `side` by `side` places."""
    weights = inputs * outputs * kernel * kernel
    gradients = (weights, outputs) if bias else (weights,)
    places = side * side
    activations = float((inputs + outputs) * places)  # the input counts as large as the output
    kernels = (Convolution(inputs, outputs, kernel, side, stride),)
    return Layer(name, gradients, 2.0 * weights * places, outputs, activations, kernels)


def _norm(name: str, channels: int, places: int, *, by_place: bool = False) -> Layer:
    elements = float(channels * places)
    kernels = (Normalisation(channels, places, by_place),)
    return Layer(name, (channels, channels), 4.0 * elements, activations=2.0 * elements, kernels=kernels)


def _linear(name: str, inputs: int, outputs: int, *, rows: int = 1) -> Layer:
    activations = float((inputs + outputs) * rows)
    flops = 2.0 * inputs * outputs * rows
    kernels = (MatrixProduct(rows, inputs, outputs),)
    return Layer(name, (inputs * outputs, outputs), flops, outputs, activations, kernels)


def _pooled(layer: Layer, elements: int, window: int) -> Layer:
    return layer.then(("relu", elements), (f"max_pool{window}", elements))


def alexnet() -> Shape:
    """AlexNet in one tower (Krizhevsky 2014), 224 by 224 pixels, 1,000 classes."""
    return Shape(
        "alexnet",
        (
            _pooled(_convolution("conv1", 3, 64, 11, 55, stride=4, bias=True), 64 * 55 * 55, 3),
            _pooled(_convolution("conv2", 64, 192, 5, 27, bias=True), 192 * 27 * 27, 3),
            _convolution("conv3", 192, 384, 3, 13, bias=True).then(("relu", 384 * 13 * 13)),
            _convolution("conv4", 384, 256, 3, 13, bias=True).then(("relu", 256 * 13 * 13)),
            _pooled(_convolution("conv5", 256, 256, 3, 13, bias=True), 256 * 13 * 13, 3),
            _linear("fc6", 256 * 6 * 6, 4096).then(("relu", 4096)),
            _linear("fc7", 4096, 4096).then(("relu", 4096)),
            _linear("fc8", 4096, 1000),
        ),
    )


def vgg16() -> Shape:
    """VGG-16 (Simonyan and Zisserman 2014), 224 by 224 pixels, 1,000 classes."""
    layers = []
    inputs, side = 3, 224
    for block, (outputs, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for index in range(1, count + 1):
            layer = _convolution(f"conv{block}_{index}", inputs, outputs, 3, side, bias=True)
            elements = outputs * side * side
            layers.append(_pooled(layer, elements, 2) if index == count else layer.then(("relu", elements)))
            inputs = outputs
        side //= 2
    layers += [
        _linear("fc6", 512 * 7 * 7, 4096).then(("relu", 4096)),
        _linear("fc7", 4096, 4096).then(("relu", 4096)),
        _linear("fc8", 4096, 1000),
    ]
    return Shape("vgg16", tuple(layers))


def _resnet(name: str, blocks: tuple[int, int, int, int]) -> Shape:
    """Describe a ResNet of bottlenecks (He et al. 2015), the stride in the middle convolution."""

    def layers() -> Iterator[Layer]:
        yield _convolution("conv1", 3, 64, 7, 112, stride=2)
        yield _pooled(_norm("bn1", 64, 112 * 112), 64 * 112 * 112, 3)
        inputs, before = 64, 56
        for stage, (count, width, side) in enumerate(
            zip(blocks, (64, 128, 256, 512), (56, 28, 14, 7), strict=True), 1
        ):
            for block in range(count):
                prefix = f"layer{stage}.{block}"
                first = before if block == 0 else side
                stride, inner, outer = first // side, width * side * side, 4 * width * side * side
                yield _convolution(f"{prefix}.conv1", inputs, width, 1, first)
                yield _norm(f"{prefix}.bn1", width, first * first).then(("relu", width * first * first))
                yield _convolution(f"{prefix}.conv2", width, width, 3, side, stride=stride)
                yield _norm(f"{prefix}.bn2", width, side * side).then(("relu", inner))
                yield _convolution(f"{prefix}.conv3", width, 4 * width, 1, side)
                yield _norm(f"{prefix}.bn3", 4 * width, side * side).then(("add", outer), ("relu", outer))
                if block == 0:
                    yield _convolution(f"{prefix}.downsample", inputs, 4 * width, 1, side, stride=stride)
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


def _attention(name: str, width: int, tokens: int, heads: int) -> Layer:
    """Describe the scores of attention and the weighted sum of values: two products for each head."""
    part = width // heads
    products = (MatrixProduct(tokens, part, tokens, heads), MatrixProduct(tokens, tokens, part, heads))
    softmax = ElementWise("softmax", heads * tokens * tokens)
    flops, activations = 4.0 * tokens * tokens * width, 4.0 * tokens * width
    return Layer(name, (), flops, activations=activations, kernels=(*products, softmax))


def _transformer(
    name: str, blocks: int, width: int, tokens: int, embeddings: tuple[int, ...], heads: int
) -> Shape:
    """Describe blocks of attention and a network four times as wide, after embeddings of so many rows."""
    hidden, elements = 4 * width, tokens * width

    def layers() -> Iterator[Layer]:
        for index, rows in enumerate(embeddings):
            yield Layer(f"embedding{index}", (rows * width,), 0.0, rows).then(("add", elements))
        for block in range(blocks):
            prefix = f"block{block}"
            yield _norm(f"{prefix}.norm1", width, tokens, by_place=True)
            yield _linear(f"{prefix}.attention", width, 3 * width, rows=tokens)
            yield _attention(f"{prefix}.scores", width, tokens, heads)
            yield _linear(f"{prefix}.projection", width, width, rows=tokens).then(("add", elements))
            yield _norm(f"{prefix}.norm2", width, tokens, by_place=True)
            yield _linear(f"{prefix}.widen", width, hidden, rows=tokens).then(("gelu", hidden * tokens))
            yield _linear(f"{prefix}.narrow", hidden, width, rows=tokens).then(("add", elements))
        yield _norm("norm", width, tokens, by_place=True)
        # The head shares the embedding's weights.
        head = _linear("head", width, embeddings[0], rows=tokens).then(("softmax", embeddings[0] * tokens))
        yield dataclasses.replace(head, gradients=(), rows=1)

    return Shape(name, tuple(layers()))


def gpt2() -> Shape:
    """GPT-2 small (Radford et al. 2019), sequences of 1,024 tokens."""
    return _transformer("gpt2", 12, 768, 1024, (50257, 1024), heads=12)


KNOWN: dict[str, Callable[[], Shape]] = {
    "alexnet": alexnet,
    "vgg16": vgg16,
    "resnet50": resnet50,
    "resnet101": resnet101,
    "gpt2": gpt2,
}
