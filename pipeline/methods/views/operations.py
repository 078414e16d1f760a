"""torchvision's augmentation operations on whole batches, with an operation and a magnitude for each image.

A generator of the CPU draws them, so the groups of images are known without a copy from the device. The images of a
group share one operation and magnitude. Shears, translations and rotations are one group, because each image has its
own matrix. The pixels equal those of torchvision's transform applied to each image by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.data.vision import torchvision

IDENTITY = "Identity"
GEOMETRIC = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")


@dataclass(frozen=True)
class Draws:
    """Operation of each image (an index into the policy's names), and its magnitude; on the CPU."""

    operation_N: Tensor
    magnitude_N: Tensor

    def __getitem__(self, index: Any) -> Draws:
        return Draws(self.operation_N[index], self.magnitude_N[index])


@dataclass(frozen=True)
class Policy:
    """A torchvision policy for images of one size.

    Attributes:
        transform: The torchvision transform.
        names: Names of its operations, then IDENTITY.
        magnitude_KB: The `bins` magnitudes of each operation; 0 if it has none.
        signed_K: Whether a magnitude may be negative.
    """

    transform: Any
    names: tuple[str, ...]
    magnitude_KB: Tensor
    signed_K: Tensor

    @classmethod
    def of(cls, transform: Any, space: Mapping[str, Any], bins: int, size: tuple[int, int]) -> Policy:
        """Build the policy from a torchvision transform, its operations, and (height, width) of the images."""
        rows = [magnitudes(bins, *size) for magnitudes, _ in space.values()]
        table = [torch.zeros(bins) if row is None else row.float() for row in rows]
        signed = torch.tensor([signed for _, signed in space.values()])
        return cls(transform, (*space, IDENTITY), torch.stack(table), signed)

    def draw(self, n: int, generator: torch.Generator, *, first: int, count: int) -> Draws:
        """Draw an operation and a magnitude for n images.

        The magnitude is one of `count` from number `first` on, and negative half the time if the operation is signed.
        """
        operation_N = torch.randint(len(self.signed_K), (n,), generator=generator)
        level_N = first + torch.randint(count, (n,), generator=generator)
        negative_N = (torch.rand(n, generator=generator) <= 0.5) & self.signed_K[operation_N]
        magnitude_N = self.magnitude_KB[operation_N, level_N]
        return Draws(operation_N, torch.where(negative_N, -magnitude_N, magnitude_N))

    def apply(self, images_NCHW: Tensor, draws: Draws) -> Tensor:
        """Apply to each uint8 image its operation; return uint8."""
        is_moved_K = torch.tensor([name in GEOMETRIC for name in self.names])
        is_moved_N = is_moved_K[draws.operation_N]
        key_2N = torch.stack([draws.operation_N.double(), draws.magnitude_N.double()])
        keys_2G, group_N, counts_G = torch.unique(
            key_2N.masked_fill(is_moved_N, -1.0), dim=1, return_inverse=True, return_counts=True
        )
        order_N = torch.argsort(group_N, stable=True)
        places_N = order_N.to(images_NCHW.device)
        images, begin, made = images_NCHW[places_N], 0, []
        for (operation, magnitude), count in zip(keys_2G.T.tolist(), counts_G.tolist(), strict=True):
            part = images[begin : begin + count]
            made.append(
                self._warp(part, draws[order_N[begin : begin + count]])
                if operation < 0
                else self._one(part, self.names[int(operation)], magnitude)
            )
            begin += count
        return torch.empty_like(images).index_copy_(0, places_N, torch.cat(made))

    def _one(self, images_NCHW: Tensor, name: str, magnitude: float) -> Tensor:
        """Apply one operation of one magnitude to all images."""
        transform = self.transform
        done: Tensor = transform._apply_image_or_video_transform(
            images_NCHW, name, magnitude, interpolation=transform.interpolation, fill=transform._fill
        )
        return done

    def _warp(self, images_NCHW: Tensor, draws: Draws) -> Tensor:
        """Apply geometric operations as torchvision's `affine_image` does, with a matrix for each image."""
        n, _, height, width = images_NCHW.shape
        pairs = zip(draws.operation_N.tolist(), draws.magnitude_N.tolist(), strict=True)
        theta = [_inverse(self.names[operation], magnitude, height, width) for operation, magnitude in pairs]
        theta_N32 = torch.tensor(theta).view(n, 2, 3).transpose(1, 2) / torch.tensor([0.5 * width, 0.5 * height])
        theta_N32 = theta_N32.to(images_NCHW.device)
        base_P3 = _places(height, width).to(images_NCHW.device)
        grid_NHW2 = (base_P3 @ theta_N32).view(n, height, width, 2)
        mode = self.transform.interpolation
        moved = F.grid_sample(images_NCHW.float(), grid_NHW2, mode=mode, padding_mode="zeros", align_corners=False)
        return moved.round_().to(images_NCHW.dtype)


@lru_cache(maxsize=1024)
def _inverse(name: str, magnitude: float, height: int, width: int) -> tuple[float, ...]:
    """Return the inverse matrix (2 x 3, row by row) of a geometric operation about the centre of the image."""
    torchvision()
    from torchvision.transforms.functional import _get_inverse_affine_matrix

    centre, angle, move, shear = [0.0, 0.0], 0.0, [0.0, 0.0], [0.0, 0.0]
    if name.startswith("Shear"):
        centre = [-0.5 * width, -0.5 * height]
        shear[name == "ShearY"] = math.degrees(math.atan(magnitude))
    elif name.startswith("Translate"):
        move[name == "TranslateY"] = float(int(magnitude))
    else:
        angle = -(magnitude % 360)
    return tuple(_get_inverse_affine_matrix(centre, angle, move, 1.0, shear))


@lru_cache(maxsize=8)
def _places(height: int, width: int) -> Tensor:
    """Return x, y and 1 of the centre of each pixel (H W, 3), measured from the centre of the image."""
    x_W, y_H = (torch.linspace((1.0 - n) * 0.5, (n - 1.0) * 0.5, steps=n) for n in (width, height))
    y_HW, x_HW = torch.meshgrid(y_H, x_W, indexing="ij")
    return torch.stack([x_HW, y_HW, torch.ones_like(x_HW)], 2).view(-1, 3)


def randaugment(
    operations: int, size: tuple[int, int]
) -> Callable[[Tensor, torch.Generator, int, Callable[[Tensor], Tensor]], Tensor]:
    """Return RandAugment with this many operations and magnitude 9 of 31, for images of (height, width).

    Args:
        operations: Number of operations per image.
        size: Height and width.

    Returns:
        A function (images_NCHW, generator, n, share) -> images. It draws for a batch of n and augments the rows
        `share`.

    References:
        Cubuk et al. (2020), RandAugment: practical automated data augmentation with a reduced search space.
    """
    torchvision()
    from torchvision.transforms import v2

    transform: Any = v2.RandAugment(num_ops=operations)
    policy = Policy.of(transform, transform._AUGMENTATION_SPACE, transform.num_magnitude_bins, size)

    def augment(images_NCHW: Tensor, generator: torch.Generator, n: int, share: Callable[[Tensor], Tensor]) -> Tensor:
        """Draw for a batch of n rows and augment the rows of a share."""
        for _ in range(operations):
            draws = policy.draw(n, generator, first=transform.magnitude, count=1)
            images_NCHW = policy.apply(images_NCHW, draws[share(torch.arange(n))])
        return images_NCHW

    return augment
