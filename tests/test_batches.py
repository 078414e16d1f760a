"""Batches and augmentation against a slow twin that moves one pixel at a time."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.data import DataSet, mapped
from pipeline.training.batches import Augmentation, Batches, ImageNormaliser, VectorNormaliser

MOMENTS = {"mean": [0.2, 0.5, 0.4], "std": [0.1, 0.3, 0.2]}
CPU = torch.device("cpu")


def batches(rows: int = 10, augment: Augmentation | None = None) -> Batches:
    x = np.random.default_rng(0).integers(0, 256, (rows, 6, 5, 3), dtype=np.uint8)
    card = {"input": {"kind": "image"}, "normalise": MOMENTS}
    return Batches.of(DataSet({"train": (x, np.arange(rows))}, card), "train", CPU, augment)


def test_normalise_is_the_formula_and_channels_last() -> None:
    x = torch.randint(0, 256, (2, 6, 5, 3), dtype=torch.uint8)
    out = ImageNormaliser.of(MOMENTS, CPU)(x)
    assert out.shape == (2, 3, 6, 5)
    assert out.is_contiguous(memory_format=torch.channels_last)
    for n, c, i, j in np.ndindex(2, 3, 6, 5):
        expected = (float(x[n, i, j, c]) / 255 - MOMENTS["mean"][c]) / MOMENTS["std"][c]
        assert float(out[n, c, i, j]) == pytest.approx(expected, abs=1e-5)


def test_a_missing_value_is_the_mean() -> None:
    x = torch.tensor([[0.3, float("nan"), -1e9], [1.0, 0.5, 3e37]])
    out = VectorNormaliser.of(MOMENTS, CPU)(x)
    for n, d in np.ndindex(2, 3):
        expected = (float(x[n, d]) - MOMENTS["mean"][d]) / MOMENTS["std"][d]
        assert float(out[n, d]) == (pytest.approx(expected, rel=1e-6) if expected == expected else 0)


@pytest.mark.parametrize(("padding", "flip"), [(2, True), (1, False), (0, True)])
def test_augmentation_is_a_shift_and_a_flip(padding: int, flip: bool) -> None:
    x = torch.randint(1, 256, (40, 6, 5, 2), dtype=torch.uint8)
    out = Augmentation(padding, flip)(x, torch.Generator().manual_seed(3))

    def shifted(image: torch.Tensor, top: int, left: int, mirror: bool) -> torch.Tensor:
        moved = torch.zeros_like(image)
        for i, j in np.ndindex(6, 5):
            column = 4 - j if mirror else j
            source = (i + top - padding, column + left - padding)
            if 0 <= source[0] < 6 and 0 <= source[1] < 5:
                moved[i, j] = image[source]
        return moved

    seen = set()
    for before, after in zip(x, out, strict=True):
        moves = [(t, w, m) for t in range(2 * padding + 1) for w in range(2 * padding + 1) for m in (False, True)]
        fitting = [move for move in moves if torch.equal(shifted(before, *move), after)]
        assert len(fitting) == 1
        seen.add(fitting[0])
    assert len(seen) > min(20, (2 * padding + 1) ** 2 * (1 + flip) // 2)
    assert flip == any(mirror for _, _, mirror in seen)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_random_crop_is_a_part_of_the_image_scaled_to_its_size(channels: int) -> None:
    """Of two ramps, down and across, a part scaled up is two flatter ramps, whose slopes tell its size."""
    down, across = (
        torch.arange(64, dtype=torch.uint8).mul(4).view(shape).expand(64, 64) for shape in ((64, 1), (1, 64))
    )
    x_NHW1 = torch.stack([down, across] * 30).unsqueeze(3)
    x_NHWC = x_NHW1.expand(-1, -1, -1, channels).contiguous()
    out = Augmentation(crop_scale=0.25)(x_NHWC, torch.Generator().manual_seed(0)).float()
    assert out.shape == x_NHWC.shape
    for image, along in zip(out, [0, 1] * 30, strict=True):
        assert float(image.std(1 - along).max()) < 1, "the other way nothing changes"
    shares = [float(image[50].mean() - image[10].mean()) / 160 for image in out[::2]]
    assert 0.4 < min(shares) < 0.7 and 0.85 < max(shares) < 1.02  # edges: sqrt(.25 x 3/4) = .43 of the side to all
    assert len({round(share, 3) for share in shares}) > 15, "each image its own"
    whole = Augmentation(crop_scale=1.0)(x_NHWC, torch.Generator().manual_seed(0))
    assert whole.float().sub(x_NHWC.float()).abs().mean() < 30


def test_transforms_draw_from_the_generator_alone() -> None:
    x = torch.randint(0, 256, (6, 16, 12, 3), dtype=torch.uint8)
    both = Augmentation(flip=True, crop_scale=0.3, randaugment=2)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = both(x, torch.Generator().manual_seed(7))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(both(x, torch.Generator().manual_seed(7)), one)
    assert not torch.equal(both(x, torch.Generator().manual_seed(8)), one)
    assert one.dtype == torch.uint8 and one.shape == x.shape
    assert not torch.equal(Augmentation(randaugment=2)(x, torch.Generator().manual_seed(7)), x)


def test_no_augmentation_is_the_same_tensor() -> None:
    x = torch.zeros(2, 4, 4, 1, dtype=torch.uint8)
    assert Augmentation()(x, torch.Generator()) is x


def test_an_epoch_is_every_row_once_in_even_batches() -> None:
    split = batches(rows=10)
    parts = [labels for _, labels in split.shuffle(4, torch.Generator().manual_seed(1))]
    assert [len(part) for part in parts] == [4, 3, 3] and split.steps(4) == 3
    assert sorted(torch.cat(parts).tolist()) == list(range(10))
    assert torch.cat(parts).tolist() != list(range(10))


def test_mapped_rows_give_the_same_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "MAPPED_FROM", 100)
    monkeypatch.setattr(mapped, "RELEASED_AT", 0)  # pages go after every batch
    held, augment = batches(rows=10), Augmentation(2, True)
    x = mapped.take(held.rows.numpy(), np.arange(10), tmp_path)
    large = Batches.of(
        DataSet({"train": (x, np.arange(10))}, {"input": {"kind": "image"}, "normalise": MOMENTS}),
        "train",
        CPU,
        augment,
    )
    one, other = (
        [*split.shuffle(4, torch.Generator().manual_seed(1)), *split.in_order(4)]
        for split in (large, batches(rows=10, augment=augment))
    )
    assert all(
        torch.equal(a, b) for left, right in zip(one, other, strict=True) for a, b in zip(left, right, strict=True)
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_rows_that_are_too_large_for_the_device_stay_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).integers(0, 256, (10, 6, 5, 3), dtype=np.uint8)
    dataset = DataSet({"train": (x, np.arange(10))}, {"input": {"kind": "image"}, "normalise": MOMENTS})
    here = Batches.of(dataset, "train", torch.device("cuda"), Augmentation(2, True))
    monkeypatch.setattr("pipeline.training.batches.FREE_SHARE", 0.0)
    apart = Batches.of(dataset, "train", torch.device("cuda"), Augmentation(2, True))
    assert here.rows.is_cuda and not apart.rows.is_cuda
    for split in (here, apart):
        assert all(rows.is_cuda and labels.is_cuda for rows, labels in split.in_order(4))
    one, other = (list(split.shuffle(4, torch.Generator().manual_seed(1))) for split in (here, apart))
    assert all(
        torch.equal(a, b) for left, right in zip(one, other, strict=True) for a, b in zip(left, right, strict=True)
    )


def test_ordered_is_in_order() -> None:
    split = batches(rows=10)
    pairs = list(split.in_order(4))
    assert torch.cat([labels for _, labels in pairs]).tolist() == list(range(10))
    assert torch.equal(pairs[1][0], split.normalise(split.rows[4:8]))


def test_large_images_are_passed_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.training.batches.VALUES_AT_ONCE", 3 * 6 * 5 * 3)
    assert [len(labels) for _, labels in batches(rows=10).in_order(4)] == [3, 3, 3, 1]
    monkeypatch.setattr("pipeline.training.batches.VALUES_AT_ONCE", 1)
    assert [len(labels) for _, labels in batches(rows=3).in_order(4)] == [1, 1, 1]


def test_the_generator_decides() -> None:
    split = batches(augment=Augmentation(2, True))
    one, same, other = (next(iter(split.shuffle(4, torch.Generator().manual_seed(s))))[0] for s in (5, 5, 6))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_endless_batches_go_on_where_they_were() -> None:
    split = batches(rows=10)

    def first(count: int, done: int = 0) -> list[list[int]]:
        endless = split.repeat(4, torch.Generator().manual_seed(3), skip=done)
        return [labels.tolist() for _, labels in itertools.islice(endless, count)]

    whole = first(8)
    assert whole[:3] != whole[3:6], "each pass has an order of its own"
    assert all(first(8 - done, done) == whole[done:] for done in range(8))
