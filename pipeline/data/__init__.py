"""Data sets. `load(params)` finds one by name, checks it and splits it; `save` and `read` store it on disk.

Importing this package does not load torch. Only the downloads of CIFAR and Tiny-ImageNet need torchvision.

To use data of your own, set `data.path` to an .npz, CSV or Parquet file or to a folder. To add a built-in data set,
write a function that returns a `pipeline.data.raw.Raw`, and enter it into `pipeline.data.sources`. Another distribution
registers a `Source` with such a function in the entry-point group `trueodds.datasets` instead.
"""

from pipeline.data.dataset import HELD_OUT, SPLITS, DataSet, read, read_card, save
from pipeline.data.raw import DataError, Raw
from pipeline.data.sources import Source, downloads, kind_of, load, names

__all__ = [
    "HELD_OUT",
    "SPLITS",
    "DataError",
    "DataSet",
    "Raw",
    "Source",
    "downloads",
    "kind_of",
    "load",
    "names",
    "read",
    "read_card",
    "save",
]
