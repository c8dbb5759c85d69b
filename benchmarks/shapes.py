"""The parameters of models, as shapes."""

from __future__ import annotations

Shape = tuple[int, ...]
_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # width, number of blocks
_EXPANSION = 4
_CLASSES = 1000


def _convolution(inputs: int, outputs: int, kernel: int) -> list[Shape]:
    """Return the shapes of a convolution without bias and of the batch normalisation that follows it."""
    return [(outputs, inputs, kernel, kernel), (outputs,), (outputs,)]


def resnet50() -> list[Shape]:
    """List 161 shapes, 97.5 MiB in fp32, in the order of the layers.

    backward() computes the gradients in the opposite order.
    """
    shapes = _convolution(3, 64, 7)
    channels = 64
    for width, blocks in _STAGES:
        for block in range(blocks):
            shapes += _convolution(channels, width, 1)
            shapes += _convolution(width, width, 3)
            shapes += _convolution(width, width * _EXPANSION, 1)
            if block == 0:
                shapes += _convolution(channels, width * _EXPANSION, 1)
            channels = width * _EXPANSION
    return [*shapes, (_CLASSES, channels), (_CLASSES,)]


def gpt2() -> list[Shape]:
    """List the shapes of GPT-2 small: 148 tensors, 475 MiB in fp32."""
    words, length, width, blocks = 50257, 1024, 768, 12
    norm: list[Shape] = [(width,), (width,)]
    attention: list[Shape] = [(width, 3 * width), (3 * width,), (width, width), (width,)]
    perceptron: list[Shape] = [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    block = [*norm, *attention, *norm, *perceptron]
    return [(words, width), (length, width), *block * blocks, *norm]


SHAPES = {"resnet50": resnet50, "gpt2": gpt2}
NAMES = {"resnet50": "ResNet-50", "gpt2": "GPT-2 small", "mlp": "MLP"}
