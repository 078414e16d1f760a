"""Seeded batches of a split. A split is one tensor, on the device if it has room; images are augmented."""

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
    """Conversion of a data set's rows to a net's inputs, with the moments of the training rows."""

    mean_C: Tensor
    std_C: Tensor

    @classmethod
    def of(cls, moments: dict[str, list[float]], device: torch.device) -> Self:
        """Build the normaliser from a card's moments."""
        return cls(*(torch.tensor(moments[key], dtype=torch.float32, device=device) for key in ("mean", "std")))

    @abstractmethod
    def __call__(self, rows: Tensor) -> Tensor:
        """Return the net's inputs for some rows."""

    @staticmethod
    def lengths(rows: Tensor) -> Tensor | None:
        """Return the number of words in each row if rows are padded, else None."""
        return None


class ImageNormaliser(Normaliser):
    """uint8 N x H x W x C -> float32 N x C x H x W, (x / 255 - mean) / std, in channels_last memory order."""

    def __call__(self, images_NHWC: Tensor) -> Tensor:
        """Return normalised images."""
        scaled = images_NHWC.float().mul_(1 / (255 * self.std_C)).sub_(self.mean_C / self.std_C)
        return scaled.permute(0, 3, 1, 2)  # a view: channels_last is NHWC in memory


class VectorNormaliser(Normaliser):
    """float32 N x D -> (x - mean) / std; a missing value (NaN) becomes the mean of the training rows."""

    def __call__(self, vectors_ND: Tensor) -> Tensor:
        """Return standardised vectors."""
        standardised_ND = (vectors_ND - self.mean_C) / self.std_C
        return torch.where(torch.isnan(standardised_ND), 0.0, standardised_ND)


class TokenIds(Normaliser):
    """Texts int32 N x (1 + L) as in `trueodds.inputs.TextInput` -> ids int64 N x L."""

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the word ids."""
        return rows[:, 1:].long()

    @staticmethod
    def lengths(rows: Tensor) -> Tensor:
        """Return the number of words in each row."""
        return rows[:, 0].clip(1, rows.shape[1] - 1)


class Unchanged(Normaliser):
    """Trees, whose nodes stay unchanged."""

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the rows unchanged."""
        return rows


def with_moments(data: DataSet, settings: Mapping[str, Any]) -> DataSet:
    """Return the data set with the moments that the initial weights were trained with, if the settings have some."""
    if "normalise" not in settings:
        return data
    return replace(data, card={**data.card, "normalise": settings["normalise"]})


VALUES_AT_ONCE = 500 * 92 * 92 * 3
"""Values of rows in a batch of `in_order`; a net's intermediate results take many times the memory of its rows."""
FREE_SHARE = 0.5
"""Share of the device's free memory below which a split is stored on the device."""
NORMALISERS: dict[Kind, type[Normaliser]] = {
    "image": ImageNormaliser, "vector": VectorNormaliser, "text": TokenIds, "tree": Unchanged,
}  # fmt: skip


Share = Callable[[Tensor], Tensor]
"""Function that selects the rows of a batch that one process computes, such as `Processes.share`."""


def whole(rows: Tensor) -> Tensor:
    """Return all rows: the share of a single process."""
    return rows


@dataclass(frozen=True)
class Augmentation:
    """Random augmentation of images: crop after zero padding, horizontal flip, and stronger changes.

    Attributes:
        padding: Pixels of zero padding before the random crop; 0 means none.
        flip: Whether to flip images horizontally with probability 1/2.
        crop_scale: Smallest share of the area in a random resized crop (`pipeline.data.vision`); 0 means none.
        randaugment: Number of RandAugment operations (`pipeline.methods.views.operations`); 0 means none.
        views: Augmentation of a method, applied last to the uint8 images; it may return several views of each.
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
        """Augment each image on its own; random numbers come from the CPU, so that every device gets the same.

        Args:
            images_NHWC: uint8 images.
            generator: Generator of the CPU.
            moves_N3: Moves that `moves` drew for the batch; None draws them now.
            of: Number of images in the whole batch; None means that all are here.
            share: Function that selects the images that are here.
        """
        n = len(images_NHWC) if of is None else of
        if moves_N3 is None and (self.padding or self.flip):
            moves_N3 = self.moves(n, generator).to(images_NHWC.device)
        images_NHWC = images_NHWC if moves_N3 is None else self._move(images_NHWC, share(moves_N3))
        images_NHWC = self._transform(images_NHWC, generator, n, share)
        return images_NHWC if self.views is None else self.views(images_NHWC, generator)

    @property
    def is_moves_alone(self) -> bool:
        """Whether it draws nothing but moves, so that an epoch's moves may be drawn before its first step."""
        return not self.crop_scale and not self.randaugment and self.views is None

    def moves(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw for each image the moves down and right and whether it is mirrored (N, 3), 3 bytes per row."""
        top_left_2N = torch.randint(0, 2 * self.padding + 1, (2, n, 1), generator=generator).squeeze(2)
        mirrored_N = torch.rand(n, 1, generator=generator).squeeze(1) < (0.5 if self.flip else 0.0)
        return torch.stack([*top_left_2N, mirrored_N], dim=1).to(torch.uint8)

    def _move(self, images_NHWC: Tensor, moves_N3: Tensor) -> Tensor:
        """Crop and flip images by their moves."""
        n, height, width, _ = images_NHWC.shape
        pad, device = self.padding, images_NHWC.device
        top_N1, left_N1, mirrored_N1 = moves_N3.long().unsqueeze(2).unbind(1)
        across_W = torch.arange(width, device=device)
        rows_NH = top_N1 + torch.arange(height, device=device)
        columns_NW = left_N1 + torch.where(mirrored_N1 > 0, across_W.flip(0), across_W)
        padded = torch.nn.functional.pad(images_NHWC, (0, 0, pad, pad, pad, pad))
        image_N11 = torch.arange(n, device=device).view(n, 1, 1)  # one gather does crop and flip
        return padded[image_N11, rows_NH.unsqueeze(2), columns_NW.unsqueeze(1)]

    def _transform(self, images_NHWC: Tensor, generator: torch.Generator, n: int, share: Share) -> Tensor:
        """Apply random resized crops and RandAugment."""
        if not self.crop_scale and not self.randaugment:
            return images_NHWC
        _, height, width, _ = images_NHWC.shape
        size = height, width
        if self.crop_scale:
            from pipeline.data.vision import random_crop

            crop, images = random_crop(size, self.crop_scale), []
            # torchvision draws from torch's own generator. fork_rng restores it, so that other draws do not change.
            seeds_N = share(torch.randint(1 << 62, (n,), generator=generator)).tolist()
            with torch.random.fork_rng(devices=[]):
                for seed, image_HWC in zip(seeds_N, images_NHWC, strict=True):
                    torch.default_generator.manual_seed(seed)
                    images.append(crop(image_HWC.permute(2, 0, 1)))
            images_NHWC = torch.stack(images).permute(0, 2, 3, 1)
        if self.randaugment:
            from pipeline.methods.views.operations import randaugment

            augmented = randaugment(self.randaugment, size)
            images_NHWC = augmented(images_NHWC.permute(0, 3, 1, 2), generator, n, share).permute(0, 2, 3, 1)
        return images_NHWC


@dataclass(frozen=True)
class Batches:
    """One split. A batch has the net's inputs (float32, or ids of words) and int64 labels.

    Only images are augmented; `augment` does not change other rows. Nets learn from trees node by node: `shuffle`
    yields the labels of all labelled nodes, tree by tree in post-order, and `in_order` yields those of the roots.

    Attributes:
        rows: The rows, on the device unless the split is too large for it.
        labels_N: The labels, on the device of the batches.
        normalise: Conversion to the net's inputs.
        augment: Augmentation of images.
        pages: Pages of `rows`, if they are memory-mapped.
        of_nodes: Whether labels are those of the nodes of trees.
        draws_ahead: Whether an epoch's moves are drawn before its first step and copied to the device at once. This
            needs a generator from which nothing else is drawn between two steps.
        lengths_N: Lengths of texts, on the CPU. A batch is as wide as its longest text, without a question to the
            device.
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
        """Return one split of a data set, normalised by the training split's moments."""
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

    def append(self, other: Batches) -> Batches:
        """Return these rows followed by those of `other`, which are treated the same."""
        rows, labels = (
            torch.cat([self.rows, other.rows.to(self.rows.device)]),
            torch.cat([self.labels_N, other.labels_N]),
        )
        lengths = None
        if self.lengths_N is not None and other.lengths_N is not None:
            lengths = torch.cat([self.lengths_N, other.lengths_N])
        return replace(self, rows=rows, labels_N=labels, lengths_N=lengths, pages=mapped.Pages())

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.labels_N)

    def rows_of(self, inputs: Tensor) -> int | None:
        """Return the number of rows in a batch of `shuffle`; None if there is one row per label."""
        return len(inputs) if self.of_nodes else None

    def weights(self, inputs: Tensor, below_root: float) -> Tensor | None:
        """Return the weights of such a batch's labels (`node_weights`); None if all are 1."""
        return node_weights(inputs, below_root) if self.of_nodes and below_root != 1 else None

    def steps(self, batch_size: int) -> int:
        """Return the number of batches in one shuffled epoch."""
        return -(-len(self) // batch_size)

    def shuffle(
        self, batch_size: int, generator: torch.Generator, *, skip: int = 0, state: Tensor | None = None,
        share: Share = whole,
    ) -> Iterator[tuple[Tensor, Tensor]]:  # fmt: skip
        """Yield every row once, in the generator's order, augmented. Batches differ in size by at most one row.

        Sizes are equal because a last batch of one row would break batch normalisation and give that row 128 times the
        weight. To continue in the middle of an epoch, pass the generator in its state at the beginning.

        Args:
            batch_size: Largest number of rows in a batch.
            generator: Generator of the CPU.
            skip: Number of batches to skip, because they have already been yielded.
            state: State of the generator after these. None is allowed if they drew nothing or drew ahead.
            share: Function that selects the rows of a batch that are made here. Random numbers are those of the whole
                batch, and the labels are all of its labels.
        """
        order = torch.randperm(len(self), generator=generator)
        on_host = order.tensor_split(self.steps(batch_size))
        parts = order.to(self.rows.device).tensor_split(len(on_host))
        ahead = self.draws_ahead and self.augment.is_moves_alone and bool(self.augment.padding or self.augment.flip)
        moves: list[Tensor | None] = [None] * len(parts)
        if ahead:  # drawn step by step, so that the numbers equal those of steps that draw their own
            drawn_N3 = torch.cat([self.augment.moves(len(part), generator) for part in parts])
            moves = list(drawn_N3.to(self.labels_N.device).tensor_split(len(parts)))
        elif state is not None:
            generator.set_state(state)
        for index, here, moves_N3 in list(zip(parts, on_host, moves, strict=True))[skip:]:
            rows = self._cut(self._on_device(self.rows[share(index)]), here)
            labels = node_labels(rows) if self.of_nodes else self.labels_N[index.to(self.labels_N.device)]
            yield self.normalise(self.augment(rows, generator, moves_N3, of=len(index), share=share)), labels

    def repeat(self, batch_size: int, generator: torch.Generator, *, skip: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield `shuffle` batches without end.

        Rows must not be augmented: then the first `skip` batches can be skipped without making them.
        """
        passes, skip = divmod(skip, self.steps(batch_size))
        for _ in range(passes):
            torch.randperm(len(self), generator=generator)
        while True:
            yield from self.shuffle(batch_size, generator, skip=skip)
            skip = 0

    def in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield every row once, in order, without augmentation; batches of images above 92 x 92 pixels are smaller."""
        size = min(batch_size, max(1, VALUES_AT_ONCE // max(1, self.rows[0].numel())))
        for begin, (rows, labels) in zip(
            range(0, len(self), size),
            zip(torch.split(self.rows, size), torch.split(self.labels_N, size), strict=True),
            strict=True,
        ):
            yield self.normalise(self._cut(self._on_device(rows), slice(begin, begin + size))), labels

    def _cut(self, rows: Tensor, index: Tensor | slice) -> Tensor:
        """Remove the padding that all texts of a batch have."""
        return rows if self.lengths_N is None else rows[:, : 1 + int(self.lengths_N[index].max())]

    def _on_device(self, rows: Tensor) -> Tensor:
        """Copy rows to the device."""
        self.pages.touch(len(rows))
        return rows.to(self.labels_N.device)


def node_labels(nodes_NM5: Tensor) -> Tensor:
    """Return the labels of the nodes that have one, tree by tree in post-order."""
    labels_NM = nodes_NM5[..., LABEL]
    return labels_NM[labels_NM >= 0].long()


def node_weights(nodes_NM5: Tensor, below_root: float) -> Tensor:
    """Return the weights of the same nodes: 1 for a root, `below_root` for the others."""
    is_node_NM = nodes_NM5[..., WORD] >= 0
    root_N1 = is_node_NM.sum(1, keepdim=True) - 1
    weights_NM = torch.full(is_node_NM.shape, below_root, device=nodes_NM5.device).scatter(1, root_N1, 1.0)
    return weights_NM[nodes_NM5[..., LABEL] >= 0]


@dataclass(frozen=True)
class SplitBatches:
    """The splits that training reads, on one device; only training rows are augmented."""

    train: Batches
    val: Batches
    test: Batches
    held_out: Batches | None
    trains_on_held_out: bool = False
    """Whether the set-aside rows are among the training rows."""

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
        """Put the splits on the device.

        Args:
            data: The data set.
            device: The device.
            recipe: The recipe, with its augmentation and batch size.
            views: Augmentation of the method, or None.
            held_out: Whether the method learns from set-aside rows.
            draws_ahead: Whether training rows draw their moves ahead (`Batches`).

        Raises:
            ConfigError: The recipe's batches would have a single row, or the set-aside rows have a single class.
        """
        augmentation = Augmentation(recipe.padding, recipe.flip, recipe.crop_scale, recipe.randaugment, views)
        train = replace(Batches.of(data, "train", device, augmentation), draws_ahead=draws_ahead)
        trains_on_held_out = recipe.held_out == "official" and not held_out and HELD_OUT in data.arrays
        if trains_on_held_out:
            train = train.append(Batches.of(data, HELD_OUT, device))
        val, test = (Batches.of(data, split, device) for split in ("val", "test"))
        apart = Batches.of(data, HELD_OUT, device) if held_out else None
        for rows in filter(None, (train, apart)):
            if len(rows) // rows.steps(recipe.batch_size) < 2:
                raise ConfigError(
                    "batch normalisation and penalties need two rows in a batch: raise batch_size or the number of"
                    " training and set-aside rows"
                )
        if apart is not None and bool((apart.labels_N == apart.labels_N[0]).all()):
            raise ConfigError(
                f"all {len(apart)} set-aside rows have one class, from which calibration cannot be learned; raise"
                " data.held_out_size"
            )
        return cls(train, val, test, apart, trains_on_held_out)

    def notes(self) -> list[str]:
        """Return notes for the model's card: which rows were learned from besides the training rows."""
        if self.trains_on_held_out:
            return ["The set-aside rows were training rows (training.held_out: official)."]
        if self.held_out is None:
            return []
        return [f"Training also used the {len(self.held_out):,} set-aside rows."]

    def held_out_rows(self, batch_size: int, seed: int, *, skip: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches of set-aside rows without augmentation, in an order of their own.

        They have a generator of their own, so that training rows draw the same numbers with and without them.
        """
        if self.held_out is None:
            return iter(())
        return self.held_out.repeat(batch_size, torch.Generator().manual_seed(seed + (1 << 52)), skip=skip)
