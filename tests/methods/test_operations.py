"""Augmentation policies on whole batches against torchvision's own transforms, image by image."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pipeline.data.vision import torchvision
from pipeline.methods.views.augmix import AugMix
from pipeline.methods.views.operations import IDENTITY, Draws, Policy


def policy(name: str) -> Policy:
    torchvision()
    from torchvision.transforms import v2

    transform: Any = v2.RandAugment() if name == "RandAugment" else v2.AugMix()
    return Policy.of(transform, transform._AUGMENTATION_SPACE, 10, (16, 12))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["RandAugment", "AugMix"])
def test_each_image_of_a_batch_is_as_torchvision_makes_it(name: str, channels: int) -> None:
    made, generator = policy(name), torch.Generator().manual_seed(channels)
    images = torch.randint(0, 256, (150, channels, 16, 12), dtype=torch.uint8, generator=generator)
    drawn = made.draw(len(images), generator, first=0, count=10)
    together = made.apply(images, drawn)
    assert len(set(drawn.operation_N.tolist())) == len(made.names) - 1
    transform = made.transform
    for image, one, operation, magnitude in zip(
        images, together, drawn.operation_N.tolist(), drawn.magnitude_N.tolist(), strict=True
    ):
        alone = transform._apply_image_or_video_transform(
            image, made.names[operation], magnitude, interpolation=transform.interpolation, fill=transform._fill
        )
        # A sum in another order may round a value between two greys, or a place between two pixels, the other way.
        differs = one != alone
        assert differs.float().mean() < 0.03, (made.names[operation], magnitude)
        if name == "AugMix":
            assert (one.int() - alone.int()).abs().max() <= 1, (made.names[operation], magnitude)
    assert torch.equal(made.apply(images, Draws(torch.full((150,), len(made.names) - 1), torch.zeros(150))), images)
    assert made.names[-1] == IDENTITY


def test_draws_are_torchvisions_law() -> None:
    """Operations and signs alike, of the magnitudes that the transform would draw."""
    made = policy("RandAugment")
    drawn = made.draw(20_000, torch.Generator().manual_seed(0), first=2, count=3)
    counts = torch.bincount(drawn.operation_N).double()
    expected = 20_000 / (len(made.names) - 1)
    assert float(((counts - expected) ** 2 / expected).sum()) < 40, "chi squared, 13 degrees of freedom"
    shears = drawn.magnitude_N[drawn.operation_N == made.names.index("ShearX")]
    table = made.magnitude_KB[made.names.index("ShearX"), 2:5]
    assert sorted(set(shears.abs().tolist())) == pytest.approx(table.tolist())
    assert float((shears < 0).double().mean()) == pytest.approx(0.5, abs=0.05)


def test_mixtures_are_torchvisions_mixtures() -> None:
    """Pixel by pixel, of the draws that the batch took: chains of 1 to 3 operations, their shares, and the image's."""
    mix, n = AugMix(jsd=0.0, width=2), 40
    images = torch.randint(0, 256, (n, 8, 8, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    together = mix(images, torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(1)
    made = mix._policy((8, 8))
    steps = mix._chains(made, n, 2, generator)
    own_N, share_NW = mix._weights(n, generator, images.device)
    assert torch.allclose(own_N + share_NW.sum(1), torch.ones(n)) and float(share_NW.min()) > 0
    transform, depths = made.transform, set()
    for i, image_HWC in enumerate(images):
        mixture = own_N[i] * image_HWC
        for chain in range(2):
            seen, done = image_HWC.permute(2, 0, 1), []
            for drawn in steps:
                name, magnitude = made.names[drawn.operation_N[chain * n + i]], float(drawn.magnitude_N[chain * n + i])
                done.append(name)
                if name != IDENTITY:
                    seen = transform._apply_image_or_video_transform(
                        seen, name, magnitude, interpolation=transform.interpolation, fill=transform._fill
                    )
            depths.add(3 - done.count(IDENTITY))
            mixture = mixture + share_NW[i, chain] * seen.permute(1, 2, 0)
        assert (mixture - together[i]).abs().mean() < 1.5
    assert depths == {1, 2, 3}


def test_the_device_is_asked_nothing() -> None:
    """Meta tensors have no values."""
    images = torch.empty(40, 8, 8, 3, dtype=torch.uint8, device="meta")
    assert AugMix(all_ops=True)(images, torch.Generator().manual_seed(0)).shape == (120, 8, 8, 3)
