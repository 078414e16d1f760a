"""Seeded batches of a split, which is one tensor, on the device where it has room; small images are augmented."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from pipeline.data import mapped
from pipeline.data.dataset import HELD_OUT, DataSet
from pipeline.data.raw import LABEL, WORD
from trueodds.errors import ConfigError

if TYPE_CHECKING:
    from pipeline.data.raw import Kind
    from pipeline.methods.method import Views
    from pipeline.training.recipe import Recipe


@dataclass(frozen=True)
class Normaliser:
    """The rows of a data set as a net takes them, by the moments of the training rows."""

    mean_C: Tensor
    std_C: Tensor

    @classmethod
    def of(cls, moments: dict[str, list[float]], device: torch.device) -> Self:
        return cls(*(torch.tensor(moments[key], dtype=torch.float32, device=device) for key in ("mean", "std")))

    @abstractmethod
    def __call__(self, rows: Tensor) -> Tensor: ...

    @staticmethod
    def lengths(rows: Tensor) -> Tensor | None:
        """How many numbers of each row count, where rows are padded; else None."""
        return None


class ImageNormaliser(Normaliser):
    """uint8 N x H x W x C -> float32 N x C x H x W, (x / 255 - mean) / std, in channels_last memory order."""

    def __call__(self, images_NHWC: Tensor) -> Tensor:
        scaled = images_NHWC.float().mul_(1 / (255 * self.std_C)).sub_(self.mean_C / self.std_C)
        return scaled.permute(0, 3, 1, 2)  # a view: NHWC memory is what channels_last means


class VectorNormaliser(Normaliser):
    """float32 N x D -> (x - mean) / std; a missing value (NaN) is taken to be the mean of the training rows."""

    def __call__(self, vectors_ND: Tensor) -> Tensor:
        standardised_ND = (vectors_ND - self.mean_C) / self.std_C
        return torch.where(torch.isnan(standardised_ND), 0.0, standardised_ND)


class TokenIds(Normaliser):
    """Texts as `trueodds.inputs.TextInput` has them, int32 N x (1 + L) -> ids int64 N x L."""

    def __call__(self, rows: Tensor) -> Tensor:
        return rows[:, 1:].long()

    @staticmethod
    def lengths(rows: Tensor) -> Tensor:
        return rows[:, 0].clip(1, rows.shape[1] - 1)


class Unchanged(Normaliser):
    """Nodes of trees, by their numbers."""

    def __call__(self, rows: Tensor) -> Tensor:
        return rows


def normalised(data: DataSet, settings: Mapping[str, Any]) -> DataSet:
    """The data set with the moments of the weights that its training began with, where they brought some."""
    if "normalise" not in settings:
        return data
    return replace(data, card={**data.card, "normalise": settings["normalise"]})


ORDERED_VALUES = 500 * 92 * 92 * 3
"""Of the rows that are passed through a net at once, in order: what it makes of them takes many times their memory."""
FREE_SHARE = 0.5
"""Of the device's free memory: a split that takes less lives there."""
NORMALISERS: dict[Kind, type[Normaliser]] = {
    "image": ImageNormaliser, "vector": VectorNormaliser, "text": TokenIds, "tree": Unchanged,
}  # fmt: skip


Share = Callable[[Tensor], Tensor]
"""The rows of a batch that one process makes, such as `Processes.share`."""


def whole(rows: Tensor) -> Tensor:
    """The share of one process alone."""
    return rows


@dataclass(frozen=True)
class Augmentation:
    """Random crop after zero padding by `padding` pixels, and random horizontal flip. Zero and False: none.

    crop_scale, randaugment: what larger images get after these (`pipeline.data.vision`, `pipeline.methods.operations`).
    views: what a method makes of the uint8 images after all that; it may give several views of each.
    """

    padding: int = 0
    flip: bool = False
    crop_scale: float = 0.0
    randaugment: int = 0
    views: Views | None = None

    def __call__(
        self, images_NHWC: Tensor, generator: torch.Generator, moves_N3: Tensor | None = None, *, of: int | None = None,
        share: Share = whole,
    ) -> Tensor:  # fmt: skip
        """Each image its own; drawn on the CPU, so that every device sees the same.

        moves_N3: what `moves` drew for the batch; None: it is drawn now. share: of a batch `of` so many images those
        that are here; None: all.
        """
        n = len(images_NHWC) if of is None else of
        if moves_N3 is None and (self.padding or self.flip):
            moves_N3 = self.moves(n, generator).to(images_NHWC.device)
        images_NHWC = images_NHWC if moves_N3 is None else self._moved(images_NHWC, share(moves_N3))
        images_NHWC = self._transformed(images_NHWC, generator, n, share)
        return images_NHWC if self.views is None else self.views(images_NHWC, generator)

    @property
    def is_moves_alone(self) -> bool:
        """Whether the moves are all that it draws, so that those of an epoch may be drawn before its first step."""
        return not self.crop_scale and not self.randaugment and self.views is None

    def moves(self, n: int, generator: torch.Generator) -> Tensor:
        """Of each image down, right and whether it is mirrored (N, 3): 3 bytes a row."""
        top_left_2N = torch.randint(0, 2 * self.padding + 1, (2, n, 1), generator=generator).squeeze(2)
        mirrored_N = torch.rand(n, 1, generator=generator).squeeze(1) < (0.5 if self.flip else 0.0)
        return torch.stack([*top_left_2N, mirrored_N], dim=1).to(torch.uint8)

    def _moved(self, images_NHWC: Tensor, moves_N3: Tensor) -> Tensor:
        n, height, width, _ = images_NHWC.shape
        pad, device = self.padding, images_NHWC.device
        top_N1, left_N1, mirrored_N1 = moves_N3.long().unsqueeze(2).unbind(1)
        across_W = torch.arange(width, device=device)
        rows_NH = top_N1 + torch.arange(height, device=device)
        columns_NW = left_N1 + torch.where(mirrored_N1 > 0, across_W.flip(0), across_W)
        padded = torch.nn.functional.pad(images_NHWC, (0, 0, pad, pad, pad, pad))
        image_N11 = torch.arange(n, device=device).view(n, 1, 1)  # one gather does crop and flip
        return padded[image_N11, rows_NH.unsqueeze(2), columns_NW.unsqueeze(1)]

    def _transformed(self, images_NHWC: Tensor, generator: torch.Generator, n: int, share: Share) -> Tensor:
        if not self.crop_scale and not self.randaugment:
            return images_NHWC
        _, height, width, _ = images_NHWC.shape
        size = height, width
        if self.crop_scale:
            from pipeline.data.vision import random_crop

            crop, images = random_crop(size, self.crop_scale), []
            # torchvision draws from torch's own generator, from which nothing else may take another number for it.
            seeds_N = share(torch.randint(1 << 62, (n,), generator=generator)).tolist()
            with torch.random.fork_rng(devices=[]):
                for seed, image_HWC in zip(seeds_N, images_NHWC, strict=True):
                    torch.default_generator.manual_seed(seed)
                    images.append(crop(image_HWC.permute(2, 0, 1)))
            images_NHWC = torch.stack(images).permute(0, 2, 3, 1)
        if self.randaugment:
            from pipeline.methods.operations import randaugment

            augmented = randaugment(self.randaugment, size)
            images_NHWC = augmented(images_NHWC.permute(0, 3, 1, 2), generator, n, share).permute(0, 2, 3, 1)
        return images_NHWC


@dataclass(frozen=True)
class Batches:
    """One split: rows as the data set has them. A batch is what the net takes, float32 but of words, and int64 labels.

    Only images are augmented; of other rows `augment` changes nothing. Trees are learned from node by node: `shuffled`
    gives the labels of all labelled nodes, tree by tree in post-order, `ordered` those of the roots.
    rows: on the device, but for those of a data set that is too large for it.
    labels_N: on the device, where batches are, too.
    pages: of `rows`, where they are mapped from a file.
    lengths_N: of texts, on the CPU: a batch is as wide as its longest, and nobody asks the device.
    draws_ahead: an epoch's moves are drawn before its first step and go to the device at once; only where nothing else
    draws from the generator between two steps.
    """

    rows: Tensor
    labels_N: Tensor
    normalise: Normaliser
    augment: Augmentation
    pages: mapped.Pages
    of_nodes: bool = False
    draws_ahead: bool = False
    lengths_N: Tensor | None = None

    @classmethod
    def of(cls, data: DataSet, split: str, device: torch.device, augment: Augmentation | None = None) -> Batches:
        """One split of a data set, normalised by the training split's moments."""
        array, labels = data.arrays[split]
        rows, pages = torch.from_numpy(array), mapped.Pages(array, mapped.AROUND)
        if device.type == "cuda" and array.nbytes < FREE_SHARE * torch.cuda.mem_get_info(device)[0]:
            rows = torch.empty_like(rows, device=device)
            begin = 0
            for block in mapped.blocks(array):
                rows[begin : begin + len(block)] = torch.from_numpy(block)
                begin += len(block)
        kind = data.card["input"]["kind"]
        normalise = NORMALISERS[kind].of(data.card["normalise"], device)
        labels_N = torch.from_numpy(labels).to(device)
        lengths_N = normalise.lengths(torch.from_numpy(array))
        augment = augment or Augmentation()
        return cls(rows, labels_N, normalise, augment, pages, kind == "tree", lengths_N=lengths_N)

    def joined(self, other: Batches) -> Batches:
        """These rows and then the other's, all treated like these."""
        rows, labels = (
            torch.cat([self.rows, other.rows.to(self.rows.device)]),
            torch.cat([self.labels_N, other.labels_N]),
        )
        lengths = None
        if self.lengths_N is not None and other.lengths_N is not None:
            lengths = torch.cat([self.lengths_N, other.lengths_N])
        return replace(self, rows=rows, labels_N=labels, lengths_N=lengths, pages=mapped.Pages())

    def __len__(self) -> int:
        return len(self.labels_N)

    def rows_of(self, inputs: Tensor) -> int | None:
        """How many rows a batch of `shuffled` has; None: one for each label."""
        return len(inputs) if self.of_nodes else None

    def weights(self, inputs: Tensor, below_root: float) -> Tensor | None:
        """Of the labels of such a batch (`node_weights`); None: all 1."""
        return node_weights(inputs, below_root) if self.of_nodes and below_root != 1 else None

    def steps(self, batch_size: int) -> int:
        """Batches in one shuffled epoch."""
        return -(-len(self) // batch_size)

    def shuffled(
        self, batch_size: int, generator: torch.Generator, *, done: int = 0, state: Tensor | None = None,
        share: Share = whole,
    ) -> Iterator[tuple[Tensor, Tensor]]:  # fmt: skip
        """Every row once, in the generator's order, augmented. Batches differ in size by at most one row.

        Equal sizes, because a last batch of one row would break batch normalisation and weigh that row 128 times.
        To go on in the middle give the generator as it was at the beginning, `done`, the batches there have been, and
        `state`, the generator's after them; without it they must have drawn nothing, or ahead.
        share: the rows of a batch that are made here; the draws are those of the whole, and the labels all of them.
        """
        order = torch.randperm(len(self), generator=generator)
        on_host = order.tensor_split(self.steps(batch_size))
        parts = order.to(self.rows.device).tensor_split(len(on_host))
        ahead = self.draws_ahead and self.augment.is_moves_alone and bool(self.augment.padding or self.augment.flip)
        moves: list[Tensor | None] = [None] * len(parts)
        if ahead:  # drawn step by step, so that they are the same numbers as those of steps that draw their own
            drawn_N3 = torch.cat([self.augment.moves(len(part), generator) for part in parts])
            moves = list(drawn_N3.to(self.labels_N.device).tensor_split(len(parts)))
        elif state is not None:
            generator.set_state(state)
        for index, here, moves_N3 in list(zip(parts, on_host, moves, strict=True))[done:]:
            rows = self._cut(self._on_device(self.rows[share(index)]), here)
            labels = node_labels(rows) if self.of_nodes else self.labels_N[index.to(self.labels_N.device)]
            yield self.normalise(self.augment(rows, generator, moves_N3, of=len(index), share=share)), labels

    def endless(self, batch_size: int, generator: torch.Generator, *, done: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """`shuffled`, again and again; of rows that are not augmented, for then `done` batches need not be made."""
        passes, done = divmod(done, self.steps(batch_size))
        for _ in range(passes):
            torch.randperm(len(self), generator=generator)
        while True:
            yield from self.shuffled(batch_size, generator, done=done)
            done = 0

    def ordered(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Every row once, in order, as it is; in smaller batches of images with more than 92 x 92 pixels."""
        size = min(batch_size, max(1, ORDERED_VALUES // max(1, self.rows[0].numel())))
        for begin, (rows, labels) in zip(
            range(0, len(self), size),
            zip(torch.split(self.rows, size), torch.split(self.labels_N, size), strict=True),
            strict=True,
        ):
            yield self.normalise(self._cut(self._on_device(rows), slice(begin, begin + size))), labels

    def _cut(self, rows: Tensor, index: Tensor | slice) -> Tensor:
        """Texts without the padding that all of the batch have."""
        return rows if self.lengths_N is None else rows[:, : 1 + int(self.lengths_N[index].max())]

    def _on_device(self, rows: Tensor) -> Tensor:
        self.pages.touch(len(rows))
        return rows.to(self.labels_N.device)


def node_labels(nodes_NM5: Tensor) -> Tensor:
    """Of the nodes that have one, tree by tree in post-order."""
    labels_NM = nodes_NM5[..., LABEL]
    return labels_NM[labels_NM >= 0].long()


def node_weights(nodes_NM5: Tensor, below_root: float) -> Tensor:
    """Of the same nodes: 1 of a root, `below_root` of the others."""
    is_node_NM = nodes_NM5[..., WORD] >= 0
    root_N1 = is_node_NM.sum(1, keepdim=True) - 1
    weights_NM = torch.full(is_node_NM.shape, below_root, device=nodes_NM5.device).scatter(1, root_N1, 1.0)
    return weights_NM[nodes_NM5[..., LABEL] >= 0]


@dataclass(frozen=True)
class SplitBatches:
    """The splits that training reads, on one device: only the training rows are augmented."""

    train: Batches
    val: Batches
    test: Batches
    held_out: Batches | None
    joined: bool = False
    """The held-out rows are among the training rows."""

    @classmethod
    def of(
        cls,
        data: DataSet,
        device: torch.device,
        recipe: Recipe,
        views: Views | None,
        *,
        held_out: bool,
        draws_ahead: bool = False,
    ) -> SplitBatches:
        """draws_ahead: of the training rows.

        Raises ConfigError if the recipe's batches would have a single row, or the held-out rows a single class."""
        augmentation = Augmentation(recipe.padding, recipe.flip, recipe.crop_scale, recipe.randaugment, views)
        train = replace(Batches.of(data, "train", device, augmentation), draws_ahead=draws_ahead)
        joined = recipe.held_out == "official" and not held_out and HELD_OUT in data.arrays
        if joined:
            train = train.joined(Batches.of(data, HELD_OUT, device))
        val, test = (Batches.of(data, split, device) for split in ("val", "test"))
        apart = Batches.of(data, HELD_OUT, device) if held_out else None
        for rows in filter(None, (train, apart)):
            if len(rows) // rows.steps(recipe.batch_size) < 2:
                raise ConfigError(
                    "batch normalisation and penalties need two rows in a batch: raise batch_size or the number of rows"
                    " to learn from"
                )
        if apart is not None and bool((apart.labels_N == apart.labels_N[0]).all()):
            raise ConfigError(
                f"all {len(apart)} held-out rows are of one class, from which calibration cannot be learned; raise"
                " data.held_out_size"
            )
        return cls(train, val, test, apart, joined)

    def notes(self) -> list[str]:
        """Notes for a reader of the model's card: which rows were learned from beside the training rows."""
        if self.joined:
            return ["The held-out rows were training rows (training.held_out: official)."]
        if self.held_out is None:
            return []
        return [f"Training learned from the {len(self.held_out):,} held-out rows, too."]

    def held_out_rows(self, batch_size: int, seed: int, *, done: int) -> Iterator[tuple[Tensor, Tensor]]:
        """As they are, in an order of the epoch's own: the training rows draw the same with and without them."""
        if self.held_out is None:
            return iter(())
        return self.held_out.endless(batch_size, torch.Generator().manual_seed(seed + (1 << 52)), done=done)
