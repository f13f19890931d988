"""The trainable tensors of well-known models, for plans and benchmarks.

Shapes in the order of the models' variables, made from their architectures; no
TensorFlow is needed.
"""

from __future__ import annotations

from collections.abc import Callable

Shapes = list[tuple[int, ...]]


def vgg16() -> Shapes:
    """VGG-16 with 1000 classes (Simonyan and Zisserman, 2015)."""
    shapes: Shapes = []
    channels = 3
    for filters, layers in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(layers):
            shapes += [(3, 3, channels, filters), (filters,)]
            channels = filters
    inputs = 7 * 7 * channels
    for units in (4096, 4096, 1000):
        shapes += [(inputs, units), (units,)]
        inputs = units
    return shapes


def resnet50() -> Shapes:
    """ResNet-50 with 1000 classes, as `keras.applications` has it."""

    def convolution(size: int, inputs: int, filters: int) -> Shapes:
        # Kernel and bias; scale and offset of the batch normalization behind it.
        return [(size, size, inputs, filters), *[(filters,)] * 3]

    shapes = convolution(7, 3, 64)
    channels = 64
    for filters, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            shapes += convolution(1, channels, filters)
            shapes += convolution(3, filters, filters)
            last = convolution(1, filters, 4 * filters)
            if block == 0:  # two layers side by side, by their depth
                shortcut = convolution(1, channels, 4 * filters)
                last = shortcut[:2] + last[:2] + shortcut[2:] + last[2:]
            shapes += last
            channels = 4 * filters
    return [*shapes, (channels, 1000), (1000,)]


def _bert(layers: int, width: int) -> Shapes:
    """BERT without a head (Devlin et al., 2019), English vocabulary."""

    def dense(inputs: int, units: int) -> Shapes:
        return [(inputs, units), (units,)]

    norm: Shapes = [(width,), (width,)]
    shapes: Shapes = [(30522, width), (512, width), (2, width), *norm]
    for _ in range(layers):
        shapes += 4 * dense(width, width) + norm
        shapes += dense(width, 4 * width) + dense(4 * width, width) + norm
    return shapes + dense(width, width)


def bert_base() -> Shapes:
    """BERT-base, uncased."""
    return _bert(12, 768)


def bert_large() -> Shapes:
    """BERT-large, uncased."""
    return _bert(24, 1024)


MODELS: dict[str, Callable[[], Shapes]] = {
    "vgg16": vgg16,
    "resnet50": resnet50,
    "bert-base": bert_base,
    "bert-large": bert_large,
}
