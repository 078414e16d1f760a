"""torchvision's nets for larger images, built by torchvision, so that its published weights fit (`training.start`).

`body` is torchvision's module without its last layer, which is `head`. Names of weights are torchvision's after
`body.`. The ResNets have ImageNet's stem (7 x 7, stride 2, max pooling) and need images of about 64 pixels or more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.data.vision import torchvision
from pipeline.nets.blocks import AtLeastFloat32
from pipeline.nets.net import Net
from trueodds.errors import ConfigError


def torchvision_net(
    inside: int, classes: int, *, name: str, builder: str, first: str, last: str, least: int, resize: int
) -> TorchvisionNet:
    """Build a net with random weights, as `pipeline.nets.shapes.torchvision_nets` describes it.

    Args:
        inside: Channels of an image.
        classes: Number of classes.
        name: Name of the net in params.yaml.
        builder: torchvision's function.
        first: Name of its first convolution.
        last: Name of its last layer.
        least: Smallest edge of an image in pixels.
        resize: Edge to which the net first scales its images; 0 means no scaling.
    """
    body = getattr(torchvision().models, builder)(num_classes=classes)
    if inside != 3:
        _replace(body, first, _of_channels(body.get_submodule(first), inside))
    family = VisionTransformer if builder.startswith("vit") else TorchvisionNet
    return family(body, name=name, last=last, least=least, resize=resize)


class TorchvisionNet(Net):
    """A module of torchvision whose last layer is `head`."""

    def __init__(self, body: nn.Module, *, name: str, last: str, least: int, resize: int) -> None:
        super().__init__()
        head = body.get_submodule(last)
        assert isinstance(head, nn.Linear)
        _replace(body, last, nn.Identity())
        if (pooling := getattr(body, "avgpool", None)) is not None:
            _replace(body, "avgpool", nn.Sequential(AtLeastFloat32(), pooling))
        self.name, self.last, self.least, self.resize = name, last, least, resize
        self.body, self.head = body, head

    def features(self, inputs: Tensor) -> Tensor:
        """Return the inputs of the last layer (N, D).

        Raises:
            ConfigError: The images are too small.
        """
        if side := self.resize:
            inputs = F.interpolate(inputs, (side, side), mode="bilinear", align_corners=False)
        height, width = inputs.shape[2:]
        if min(height, width) < self.least:
            raise ConfigError(
                f"net {self.name!r} needs images of at least {self.least} pixels, and these have {height} x"
                f" {width}; set training.resize, data.image_size (for photos), or another net (trueodds nets)"
            )
        return self._features(inputs)

    def own_names(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Rename torchvision's names: the last layer is `head`, all others are below `body`."""
        if any(name.startswith(("body.", "head.")) for name in state):
            return dict(state)
        last = f"{self.last}."
        return {
            name.replace(last, "head.", 1) if name.startswith(last) else f"body.{name}": tensor
            for name, tensor in state.items()
        }

    def _features(self, images_NCHW: Tensor) -> Tensor:
        """Return the outputs of torchvision's module without its last layer."""
        outputs_ND: Tensor = self.body(images_NCHW)
        return outputs_ND


class VisionTransformer(TorchvisionNet):
    """ViT (Dosovitskiy et al. 2021) for images of any size from one patch on.

    Its positions are learned for 14 x 14 patches, 224 pixels. For another grid they are interpolated (section 3.2).
    """

    def _features(self, images_NCHW: Tensor) -> Tensor:
        """Return the class token's output (N, D)."""
        body: Any = self.body
        patches_NDHW = body.conv_proj(images_NCHW)
        rows, columns = patches_NDHW.shape[2:]
        tokens_NLD = patches_NDHW.flatten(2).mT
        first_N1D = body.class_token.expand(images_NCHW.shape[0], -1, -1)
        tokens_NLD = torch.cat([first_N1D, tokens_NLD], dim=1) + self._positions(rows, columns)
        encoded_NLD = body.encoder.ln(body.encoder.layers(body.encoder.dropout(tokens_NLD)))
        outputs_ND: Tensor = encoded_NLD[:, 0]
        return outputs_ND

    def _positions(self, rows: int, columns: int) -> Tensor:
        """Return the position embedding of the grid (1, 1 + rows x columns, D)."""
        embedding: Any = self.body.encoder
        positions_1LD: Tensor = embedding.pos_embedding
        side = round((positions_1LD.shape[1] - 1) ** 0.5)
        if (rows, columns) == (side, side):
            return positions_1LD
        token, grid = positions_1LD[:, :1], positions_1LD[:, 1:]
        grid_1DHW = grid.mT.reshape(1, -1, side, side)
        resized = F.interpolate(grid_1DHW, (rows, columns), mode="bicubic", align_corners=False)
        return torch.cat([token, resized.flatten(2).mT], dim=1)


def _of_channels(layer: nn.Module, channels: int) -> nn.Conv2d:
    """Return a convolution like `layer` for images with this number of channels."""
    assert isinstance(layer, nn.Conv2d)
    size, stride, padding = cast(Any, (layer.kernel_size, layer.stride, layer.padding))
    return nn.Conv2d(channels, layer.out_channels, size, stride, padding, bias=layer.bias is not None)


def _replace(module: nn.Module, name: str, layer: nn.Module) -> None:
    """Replace a submodule by its name."""
    parent, _, child = name.rpartition(".")
    setattr(module.get_submodule(parent), child, layer)
