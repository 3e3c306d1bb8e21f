"""Models by name, as the shapes of their parameters: for their gradients, and for what a transformer's ranks send.

Pure. ResNet-50 as in torchvision (He et al. 2015, table 1); the others are decoders as in GPT-2's published code, of
the sizes in Radford et al. 2019, table 2, and Brown et al. 2020, table 2.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Shape = tuple[int, ...]

_VOCABULARY = 50257


@dataclass(frozen=True)
class Transformer:
    """A decoder whose head is its embedding.

    Attributes:
        layers: Number of layers.
        hidden: Width.
        context: Tokens of a sequence.
    """

    layers: int
    hidden: int
    context: int

    @property
    def layer(self) -> list[Shape]:
        """Shapes of one layer's parameters: norm, attention, projection, norm, and the two of the perceptron."""
        h = self.hidden
        weights = ((3 * h, h), (h, h), (4 * h, h), (h, 4 * h))
        inside = [(weight, (weight[0],)) for weight in weights]
        norm: list[Shape] = [(h,), (h,)]
        return [*norm, *inside[0], *inside[1], *norm, *inside[2], *inside[3]]

    def shapes(self) -> list[Shape]:
        """Give the shapes of all parameters, in the order of their registration."""
        ends = [(_VOCABULARY, self.hidden), (self.context, self.hidden)]
        return [*ends, *self.layer * self.layers, (self.hidden,), (self.hidden,)]


def resnet50() -> list[Shape]:
    """Give the shapes of ResNet-50's parameters, in the order of their registration."""
    found = _convolution(64, 3, 7)
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            found += _convolution(width, inputs, 1) + _convolution(width, width, 3) + _convolution(4 * width, width, 1)
            found += _convolution(4 * width, inputs, 1) if block == 0 else []
            inputs = 4 * width
    return [*found, (1000, inputs), (1000,)]


def _convolution(outputs: int, inputs: int, side: int) -> list[Shape]:
    """Give a convolution and the scale and shift of the normalisation behind it."""
    return [(outputs, inputs, side, side), (outputs,), (outputs,)]


TRANSFORMERS = {
    "gpt2": Transformer(12, 768, 1024),
    "gpt2-xl": Transformer(48, 1600, 1024),
    "gpt3-1.3b": Transformer(24, 2048, 2048),
    "gpt3-6.7b": Transformer(32, 4096, 2048),
    "gpt3-13b": Transformer(40, 5120, 2048),
    "gpt3-175b": Transformer(96, 12288, 2048),
}

MODELS: dict[str, Callable[[], list[Shape]]] = {
    "resnet50": resnet50,
    **{name: one.shapes for name, one in TRANSFORMERS.items()},
}
"""The shapes of each model's parameters."""


def elements(shapes: Sequence[Shape]) -> int:
    """Count the elements of parameters.

    >>> elements(resnet50()), elements(TRANSFORMERS["gpt2"].shapes())
    (25557032, 124439808)
    """
    return sum(map(math.prod, shapes))
