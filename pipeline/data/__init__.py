"""Data sets: `load(params)` finds one by name, checks it and splits it; `save` and `read` are its form on disk.

Nothing here loads torch, but for the CIFAR downloads, which are torchvision's.
"""

from pipeline.data.dataset import HELD_OUT, SPLITS, DataSet, read, read_card, save
from pipeline.data.raw import DataError
from pipeline.data.sources import downloads, kind_of, load, names

__all__ = [
    "HELD_OUT",
    "SPLITS",
    "DataError",
    "DataSet",
    "downloads",
    "kind_of",
    "load",
    "names",
    "read",
    "read_card",
    "save",
]
