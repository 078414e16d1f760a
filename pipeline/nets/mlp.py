"""A multilayer perceptron for vectors, as in the literature on tabular data (Gorishniy et al. 2021)."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from pipeline.nets.net import Net


class MLP(Net):
    """`depth` blocks Dropout(ReLU(Linear(x))) of `width` units, then a linear layer.

    References:
        Gorishniy et al. (2021), Revisiting deep learning models for tabular data.
    """

    def __init__(self, inside: int, classes: int, *, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise([inside, *[width] * depth]):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
        self.hidden = nn.Sequential(*layers)
        self.head = nn.Linear(width, classes)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the last hidden layer's outputs (N, width)."""
        outputs_ND: Tensor = self.hidden(inputs)
        return outputs_ND
