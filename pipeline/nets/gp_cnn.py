"""The global pooling CNN of the focal paper (Mukhoti et al. 2020) for 20 Newsgroups, as its public code has it.

Three convolutions of five words over fixed vectors, maxima of five between them, the maximum over the whole text, a
hidden layer of which training drops 30%, and a linear layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.data.raw import Kind
from pipeline.nets.net import Shape
from pipeline.nets.text import SKIPPED, WordNet

KERNEL = 5
SEEN = 5 * (KERNEL - 1) + 1
"""Words that an output of the last convolution sees: three convolutions and two maxima of KERNEL each."""
TOGETHER = 16
TOKENS = 1000
"""Words of a text that count, the last ones; shorter texts are padded in front, as the code has it."""


@dataclass(frozen=True)
class GPCNNShape(Shape):
    """Channels of the convolutions and units of the hidden layer, and the share of these that training drops."""

    width: int
    dropout: float
    kind: ClassVar[Kind] = "text"

    def build(self, inside: int, classes: int) -> GPCNN:
        return GPCNN(inside, classes, width=self.width, dropout=self.dropout)


class GPCNN(WordNet):
    """Word ids int64 N x L -> logits N x C; the vectors of the words (V x D, `embed`) are not learned.

    Ids that are no words (`SKIPPED`) are left out wherever they stand, so padding on any side and of any length gives
    the same logits: those of the text's last TOKENS words with zeros before them up to TOKENS.
    """

    vectors: Tensor

    def __init__(self, inside: int, classes: int, *, width: int, dropout: float) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(SKIPPED, inside))
        self.conv1 = nn.Conv1d(inside, width, KERNEL)
        self.conv2 = nn.Conv1d(width, width, KERNEL)
        self.conv3 = nn.Conv1d(width, width, KERNEL)
        self.hidden = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, classes)

    def embed(self, vectors_VD: Tensor) -> None:
        vectors = vectors_VD.to(self.vectors).clone()
        vectors[:SKIPPED] = 0
        self.vectors = vectors

    def features(self, inputs: Tensor) -> Tensor:
        ids_NL = _words_last(inputs)
        # Lengths are known to the CPU alone: on a GPU each group would wait for it, and a compiled graph end there.
        by_length = inputs.device.type == "cpu" and not torch.compiler.is_compiling()
        pooled_ND = self._pooled_by_length(ids_NL) if by_length else self._pooled(ids_NL)
        outputs_ND: Tensor = self.dropout(F.relu(self.hidden(pooled_ND)))
        return outputs_ND

    def _pooled_by_length(self, ids_NL: Tensor) -> Tensor:
        """The same, of TOGETHER texts of like length at a time, so that short ones are not padded to the longest."""
        length_N = (ids_NL > 0).sum(1)
        order_N = torch.argsort(length_N, stable=True)
        parts = []
        for rows in torch.split(order_N, TOGETHER):
            longest = int(length_N[rows[-1]])
            parts.append(self._pooled(ids_NL[rows, ids_NL.shape[1] - longest :]))
        return torch.cat(parts)[torch.argsort(order_N)]

    def _pooled(self, ids_NL: Tensor) -> Tensor:
        """(N, width): the maximum over each text of the last convolution's outputs."""
        ids_NL = F.pad(ids_NL, (SEEN, 0))
        x_NDL = F.embedding(ids_NL, self.vectors).transpose(1, 2)
        x_NDL = _maxima(F.relu(self.conv1(x_NDL)))
        x_NDL = _maxima(F.relu(self.conv2(x_NDL)))
        x_NDL = F.relu(self.conv3(x_NDL))
        # SEEN zeros in front are as good as any more; but where fewer are left within TOKENS, the first windows here
        # are none of the code's. After the ReLU no maximum is below 0.
        kept_L = torch.arange(x_NDL.shape[2], device=x_NDL.device) >= ids_NL.shape[1] - TOKENS
        return torch.where(kept_L, x_NDL, 0.0).max(dim=2).values


def _maxima(x_NDL: Tensor) -> Tensor:
    """Of KERNEL neighbours, step 1. In two dimensions: torch.export takes max_pool1d for texts of one length alone."""
    return F.max_pool2d(x_NDL.unsqueeze(3), (KERNEL, 1), 1).squeeze(3)


def _words_last(ids_NL: Tensor) -> Tensor:
    """The words of each row in order, pushed to its end, zeros before them."""
    place_L = torch.arange(ids_NL.shape[1], device=ids_NL.device)
    is_word_NL = (ids_NL >= SKIPPED).long()
    order_NL = torch.argsort(place_L + is_word_NL * ids_NL.shape[1], dim=1)
    return torch.gather(ids_NL * is_word_NL, 1, order_NL)


SHAPES = (GPCNNShape("gp_cnn", width=128, dropout=0.3),)
