"""torchvision's nets: their named sizes, and the places of their first and last layers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar

from pipeline.data.raw import Kind
from pipeline.nets.shape import Shape

if TYPE_CHECKING:
    from pipeline.nets.net import Net


@dataclass(frozen=True)
class TorchvisionShape(Shape):
    """Place of the layers in a torchvision net, and its image sizes.

    Attributes:
        builder: torchvision's function.
        first: Name of its first convolution.
        last: Name of its last layer.
        least: Smallest edge of an image in pixels.
        resize: Edge to which the net first scales its images, bilinearly; 0 means no scaling.
    """

    builder: str
    first: str
    last: str
    least: int = 1
    resize: int = 0
    kind: ClassVar[Kind] = "image"

    def build(self, inside: int, classes: int) -> Net:
        """Build the net."""
        from pipeline.nets.torchvision_nets import torchvision_net

        return torchvision_net(inside, classes, **asdict(self))


SHAPES = (
    TorchvisionShape("torchvision_resnet18", builder="resnet18", first="conv1", last="fc"),
    TorchvisionShape("torchvision_resnet50", builder="resnet50", first="conv1", last="fc"),
    TorchvisionShape("convnext_tiny", builder="convnext_tiny", first="features.0.0", last="classifier.2", least=32),
    TorchvisionShape("vit_b_16", builder="vit_b_16", first="conv_proj", last="heads.head", least=16),
)
