"""What nets of words share: a table with a vector for each word."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from pipeline.data.dataset import DataSet
from pipeline.nets.net import Net, Shape

VECTORS = "vectors"
"""The name of the table, a parameter where it is learned."""
SKIPPED = 2
"""Ids below it are no words: padding, and words that the vocabulary lacks."""


class WordNet(Net, ABC):
    """A net of words, to be given their vectors once it is built.

    classes: of a row; None: as many as the head has outputs. Parts of a row may have more, and those of the row are the
    first.
    """

    classes: int | None = None

    @abstractmethod
    def embed(self, vectors_VD: Tensor) -> None:
        """Takes a copy of the vectors, one for each id of the vocabulary."""

    def answers(self, features_ND: Tensor) -> Tensor:
        return super().answers(features_ND)[:, : self.classes]


def net_of(shape: Shape, data: DataSet) -> Net:
    """The net for a data set's rows, drawn from torch's generator, with the vectors of its words."""
    card, vectors = data.card, data.vectors
    if vectors is None:
        return shape.build(data.arrays["val"][0].shape[-1], len(card["classes"]))
    net = shape.build(vectors.shape[1], len(card["input"].get("node_classes", card["classes"])))
    assert isinstance(net, WordNet)
    net.classes = len(card["classes"])
    net.embed(torch.from_numpy(vectors))
    return net
