"""The global pooling CNN of the focal paper (Mukhoti et al. 2020) for 20 Newsgroups, as in its public code.

It has three convolutions of five words over fixed word vectors, with maxima of five between them. The maximum over the
whole text goes to a hidden layer with 30% dropout, and then to a linear layer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.nets.text import SKIPPED, WordNet

KERNEL = 5
SEEN = 5 * (KERNEL - 1) + 1
"""Words that an output of the last convolution depends on: three convolutions and two maxima of KERNEL each."""
TOGETHER = 16
TOKENS = 1000
"""Number of words of a text that count, the last ones. Shorter texts are padded in front, as in the code."""


class GPCNN(WordNet):
    """Word ids int64 N x L -> logits N x C; the word vectors (V x D, `embed`) do not learn.

    Ids that are not words (`SKIPPED`) are left out at any position. So padding on any side and of any length gives the
    same logits: those of the text's last TOKENS words with zeros before them up to TOKENS.
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
        """Copy the word vectors, with 0 for ids that are not words."""
        vectors = vectors_VD.to(self.vectors).clone()
        vectors[:SKIPPED] = 0
        self.vectors = vectors

    def features(self, inputs: Tensor) -> Tensor:
        """Return the hidden layer's outputs (N, D)."""
        ids_NL = _words_last(inputs)
        # Only the CPU knows lengths: on a GPU each group would wait for it, and a compiled graph would end there.
        by_length = inputs.device.type == "cpu" and not torch.compiler.is_compiling()
        pooled_ND = self._max_pool_by_length(ids_NL) if by_length else self._max_pool(ids_NL)
        outputs_ND: Tensor = self.dropout(F.relu(self.hidden(pooled_ND)))
        return outputs_ND

    def _max_pool_by_length(self, ids_NL: Tensor) -> Tensor:
        """Return the same as `_max_pool`, for TOGETHER texts of similar length at a time, with less padding."""
        length_N = (ids_NL > 0).sum(1)
        order_N = torch.argsort(length_N, stable=True)
        parts = []
        for rows in torch.split(order_N, TOGETHER):
            longest = int(length_N[rows[-1]])
            parts.append(self._max_pool(ids_NL[rows, ids_NL.shape[1] - longest :]))
        return torch.cat(parts)[torch.argsort(order_N)]

    def _max_pool(self, ids_NL: Tensor) -> Tensor:
        """Return the maximum over each text of the last convolution's outputs (N, width)."""
        ids_NL = F.pad(ids_NL, (SEEN, 0))
        x_NDL = F.embedding(ids_NL, self.vectors).transpose(1, 2)
        x_NDL = _maxima(F.relu(self.conv1(x_NDL)))
        x_NDL = _maxima(F.relu(self.conv2(x_NDL)))
        x_NDL = F.relu(self.conv3(x_NDL))
        # SEEN zeros in front have the same effect as more zeros. But if fewer are left within TOKENS, the first
        # windows here do not exist in the code. After the ReLU no maximum is below 0.
        kept_L = torch.arange(x_NDL.shape[2], device=x_NDL.device) >= ids_NL.shape[1] - TOKENS
        return torch.where(kept_L, x_NDL, 0.0).max(dim=2).values


def _maxima(x_NDL: Tensor) -> Tensor:
    """Return maxima of KERNEL neighbours with step 1.

    It uses two dimensions, because torch.export accepts max_pool1d for texts of one length only.
    """
    return F.max_pool2d(x_NDL.unsqueeze(3), (KERNEL, 1), 1).squeeze(3)


def _words_last(ids_NL: Tensor) -> Tensor:
    """Move the words of each row to its end, in order, with zeros before them."""
    place_L = torch.arange(ids_NL.shape[1], device=ids_NL.device)
    is_word_NL = (ids_NL >= SKIPPED).long()
    order_NL = torch.argsort(place_L + is_word_NL * ids_NL.shape[1], dim=1)
    return torch.gather(ids_NL * is_word_NL, 1, order_NL)
