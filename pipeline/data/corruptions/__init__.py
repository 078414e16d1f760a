"""Common corruptions of images, five severities each: CIFAR-10-C, CIFAR-100-C and ImageNet-C, read or computed.

Hendrycks & Dietterich 2019, in numpy, scipy and Pillow. Differences from the published files: frost is made of
generated textures instead of photographs, the random numbers are others, and the blur of motion is not rounded to 16
bits on its way.
"""

from pipeline.data.corruptions.corrupt import NAMES, check, corrupt
from pipeline.data.corruptions.tables import CIFAR, COMMON, EXTRA, IMAGENET, SEVERITIES, Table, table_of

__all__ = [
    "CIFAR",
    "COMMON",
    "EXTRA",
    "IMAGENET",
    "NAMES",
    "SEVERITIES",
    "Table",
    "check",
    "corrupt",
    "table_of",
]
