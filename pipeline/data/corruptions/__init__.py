"""Common corruptions of images in five severities: CIFAR-10-C, CIFAR-100-C and ImageNet-C, read from files or computed.

They follow Hendrycks & Dietterich 2019, in numpy, scipy and Pillow. They differ from the published files in three
points. Frost uses generated textures instead of photographs, the random numbers are others, and motion blur is not
rounded to 16 bits in between.
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
