"""Search for a data set by its name, its checks and its split."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from pipeline.config import Data
from pipeline.data import cifar, embedded, folder, mapped, npz, tags, tiny_imagenet, vectors
from pipeline.data.dataset import DataSet, sha256
from pipeline.data.image_files import Gathered, gather
from pipeline.data.raw import PIXELS, WORDS, DataError, Inputs, Kind, Labels, Raw, check_raw
from pipeline.data.splitting import groups
from pipeline.data.splitting.checks import alike_classes, check_split, thin_classes
from pipeline.data.splitting.sampling import Shares, draw
from pipeline.data.texts import own as own_texts
from pipeline.data.texts.archives import ARCHIVES
from pipeline.data.texts.archives import find as find_archive
from pipeline.data.texts.splits import EncodedSplits, encode
from trueodds.errors import nearest
from trueodds.inputs import columns
from trueodds.processes import extensions
from trueodds.sums.positive import PositiveClass
from trueodds.texts import short

log = logging.getLogger("pipeline.data")

DEFAULT = "default"


class Source(NamedTuple):
    """A data set by name: a built-in one, or one that another distribution registers.

    The entry-point group is `trueodds.datasets`.

    Attributes:
        kind: Kind of its rows: image, vector, text or tree.
        validation_rows: Number of training rows that become validation rows, unless params.yaml sets it.
        read: Function from the section `data` of params.yaml to the rows.
    """

    kind: Kind
    validation_rows: int
    read: Callable[[Data], Raw]


_BUILT_IN = {
    "digits": Source("image", 300, lambda _: embedded.read_digits()),
    "cifar10": Source("image", 5000, lambda _: cifar.read("cifar10", downloads())),
    "cifar100": Source("image", 5000, lambda _: cifar.read("cifar100", downloads())),
    tiny_imagenet.NAME: Source(
        "image", 10_000, lambda params: tiny_imagenet.read(tiny_imagenet.download(downloads()), params.image_size)
    ),
    "breast_cancer": Source("vector", 95, lambda _: embedded.read_table("breast_cancer")),
    "wine": Source("vector", 30, lambda _: embedded.read_table("wine")),
}
RESERVED = (*_BUILT_IN, *ARCHIVES, DEFAULT)
"""Names that no other distribution may register."""
DOWNLOADS = "TRUEODDS_DOWNLOADS"
"""Environment variable with the folder of official downloads (default downloads/), which many checkouts can share."""
FORMS = (".npz", *columns.SUFFIXES, "")
"""Suffixes of a data set's file; an empty suffix means a folder of images or texts."""
VAL_IS_TEST = "The validation rows are the test rows (data.benchmark_val: val_and_test), as in the papers' public code:\
 calibrators are fitted, and epochs compared, on the rows of the metrics."


def downloads() -> Path:
    """Return the folder of official downloads."""
    return Path(os.environ.get(DOWNLOADS) or "downloads")


def names() -> list[str]:
    """Return the built-in data sets, and those that other distributions register.

    Raises:
        ExtensionError: A registered name is a built-in one, or two distributions register it.
    """
    return [*_BUILT_IN, *extensions.names("datasets", RESERVED)]


def _source(name: str) -> Source | None:
    """Return the built-in or registered data set of a name; None for your own data.

    Raises:
        ExtensionError: The registered object cannot be used.
    """
    extension = extensions.find("datasets", name, RESERVED)
    if extension is None:
        return _BUILT_IN.get(name)
    source = extension.load()
    if not isinstance(source, Source) or source.kind not in get_args(Kind) or not callable(source.read):
        kinds = ", ".join(get_args(Kind))
        raise extension.error(f"is {short(source)}; allowed is a pipeline.data.Source with a kind of {kinds}")
    return source


def _get_source(name: str) -> Source:
    """Return a data set that `_find` found to be built in or registered."""
    source = _source(name)
    assert source is not None
    return source


def load(params: Data, shares: Shares | None = None, scratch: Path | None = None) -> DataSet:
    """Find a data set, check it and split it.

    It is searched in this order: <TRUEODDS_DATA>/<dataset>.npz, .csv, .parquet or <dataset>/, if that variable is set;
    `path` in params; the built-in and registered sources. The log, not the card, says where the rows came from: equal
    rows give equal files.

    Args:
        params: The section `data` of params.yaml.
        shares: The recipe's shares, for split sizes that params leave null.
        scratch: Folder of the file from which large splits are memory-mapped; None means the system's temporary folder.

    Returns:
        The splits and their card.

    Raises:
        DataError: The data set was not found, is damaged, or is too small for the split.
        ConfigError: `positive` is not one of two classes.

    Examples:
        >>> from pipeline.config import Data
        >>> data = load(Data(dataset="wine"))
        >>> data.card["splits"]
        {'train': 88, 'val': 30, 'test': 60}
    """
    raw = _read(params, _find(params))
    if params.positive is not None:
        PositiveClass.of(params.positive, raw.classes)
    built_in = _source(params.dataset) or ARCHIVES.get(params.dataset)
    parts = draw(params, raw, shares, built_in.validation_rows if built_in else None)
    val_is_test = params.benchmark_val == "val_and_test"
    if val_is_test:
        del parts["val"]
    encoded = encode(parts, raw.kind, params, downloads()) if raw.kind in WORDS else None
    if encoded is not None:
        read = Gathered(encoded.arrays, encoded.notes, {})
    else:
        read = gather(parts, params.unreadable_share, scratch)
    arrays, notes = read.arrays, read.notes
    arrays, said, checks, kept = check_split(params, raw, parts, arrays, scratch)
    tags_of = tags.select(tags.of_parts(raw, parts), read.kept, kept)
    notes += said
    if val_is_test:
        arrays = {"train": arrays["train"], "val": arrays["test"], **arrays}
        tags_of = {"val": tags_of["test"], **tags_of} if tags_of else {}
        notes.append(VAL_IS_TEST)
    if params.groups is not None:
        notes += tags.notes(params.groups, tags_of)
    notes += alike_classes(raw.classes)
    notes += thin_classes(raw.classes, {split: labels for split, (_, labels) in arrays.items()})
    for note in notes:
        log.warning("%s: %s", params.dataset, note)
    words = () if encoded is None else (encoded.words.vectors_VD, encoded.words.tokenizer)
    vectors_VD, tokenizer = words or (None, "")
    sha = sha256(arrays, vectors_VD, tokenizer, tags_of)
    card = {**_card(params, raw, arrays, notes, encoded), "sha256": sha}
    return DataSet(arrays, card, checks, vectors_VD, tokenizer, tags_of)


def kind_of(params: Data) -> Kind:
    """Return the kind of a data set's rows without reading them.

    Raises:
        DataError: The data set was not found or is damaged.
    """
    if params.dataset in ARCHIVES:
        return ARCHIVES[params.dataset].kind
    path = _find(params)
    if path is None:
        return _get_source(params.dataset).kind
    if path.suffix == ".npz":
        return npz.kind_of(path)
    if path.is_dir():
        return "text" if own_texts.is_folder(path) else "image"
    return "text" if own_texts.is_table(path) else "vector"


def _find(params: Data) -> Path | None:
    """Return the file or folder of the data set; None for a built-in one."""
    if params.dataset == DEFAULT:
        raise DataError(f"a data set cannot be named {DEFAULT!r}, because a file of that name selects the served model")
    mirror = os.environ.get("TRUEODDS_DATA")
    places = [Path(mirror)] if mirror else []
    own = Path(params.path)
    if not own.exists() and params.path != Data().path:
        raise DataError(f"data.path is {params.path!r}, which does not exist; set it to an existing file or folder")
    if own.is_file() and own.suffix not in FORMS:
        raise DataError(f"data.path is {params.path!r}; allowed are {', '.join(filter(None, FORMS))}, and folders")
    if own.is_file() or (own / "train").is_dir():
        if params.dataset in names():
            named = f"data.path is {params.path!r}, your own data, but data.dataset is still {params.dataset!r}"
            raise DataError(f"{named}; choose another name, such as dataset: {own.stem}")
        return own
    if params.dataset in ARCHIVES:
        return find_archive(params.dataset, [*places, own], downloads())
    for place in [*places, own]:
        for candidate in (place / f"{params.dataset}{form}" for form in FORMS):
            if candidate.exists():
                return candidate
    if _source(params.dataset) is not None:
        return None
    looked = ", ".join(f"{place}/{params.dataset}{form or '/'}" for place in [*places, own] for form in FORMS)
    raise DataError(
        f"data set {params.dataset!r} is not built in ({', '.join([*names(), *ARCHIVES])}) and was not found:"
        f" searched {looked}.{nearest(params.dataset, [*names(), *ARCHIVES])}"
    )


def _read(params: Data, path: Path | None) -> Raw:
    """Read the data set from its file or folder, or from its built-in source, and check params against it."""
    if path is None:
        raw = check_raw(_get_source(params.dataset).read(params), params.dataset)
        log.info("%s: %s", params.dataset, extensions.source("datasets", params.dataset) or "built-in source")
    else:
        raw = _read_own(params, path)
        log.info("%s: read from %s", params.dataset, path)
        if params.dataset not in names() and Path(params.path) not in (path, path.parent):
            log.warning("DVC does not watch %s; after a change of it, run: dvc repro --force fetch", path)
    if params.group_column is not None:
        raw = groups.of(raw, path, params)
    if params.groups is not None:
        raw = tags.of(raw, None if params.dataset in ARCHIVES else path, params)
    if raw.kind not in PIXELS and params.image_size is not None:
        problem = f"data.image_size is {params.image_size}, but {params.dataset} holds {raw.kind}s"
        raise DataError(f"{problem}; set it to null")
    if raw.kind not in WORDS and params.embeddings is not None:
        problem = f"data.embeddings is {params.embeddings!r}, but {params.dataset} holds {raw.kind}s"
        raise DataError(f"{problem}; set it to null")
    return raw


def _read_own(params: Data, path: Path) -> Raw:
    """Read a data set from a file or folder."""
    if path.is_dir() and tiny_imagenet.is_layout(path):
        return tiny_imagenet.read(path, params.image_size)
    if params.dataset in ARCHIVES:
        return check_raw(ARCHIVES[params.dataset].read(path, params), str(path))
    if path.is_dir():
        return own_texts.read_folder(path) if own_texts.is_folder(path) else folder.read(path, params.image_size)
    apart = tuple(name for name in (params.group_column, params.groups) if name is not None)
    if path.suffix in columns.SUFFIXES:
        groups.check_column(path, params)
        tags.check_column(path, params)
    if path.suffix in columns.SUFFIXES and own_texts.is_table(path):
        return own_texts.read_table(path, params.label_column, apart)
    if path.suffix in columns.SUFFIXES:
        return vectors.read_table(path, params.label_column, apart)
    raw = npz.read(path)
    if params.image_size is not None and not raw.features:
        raise DataError(
            f"data.image_size is {params.image_size}, but {path} holds arrays of a fixed size; set it to null"
        )
    return raw


def _card(
    params: Data, raw: Raw, arrays: dict[str, tuple[Inputs, Labels]], notes: list[str], encodings: EncodedSplits | None
) -> dict[str, Any]:
    """Return the card of a data set."""
    name = params.dataset
    if encodings is not None:
        described = {"input": encodings.entry, "normalise": {"mean": [], "std": []}}
    else:
        described = _of_vectors(name, raw, arrays) if raw.features else _of_images(raw, arrays)
    return {
        "name": name,
        "classes": list(raw.classes),
        "positive": params.positive,
        **described,
        "splits": {split: len(labels) for split, (_, labels) in arrays.items()},
        "notes": notes,
    }


def _of_images(raw: Raw, arrays: dict[str, tuple[Inputs, Labels]]) -> dict[str, Any]:
    """Return the card's entries for images."""
    height, width, channels = (int(edge) for edge in raw.x_train.shape[1:])
    moments = _moments(arrays["train"][0])
    return {
        "input": {"kind": "image", "height": height, "width": width, "channels": channels, "resized": raw.is_resized},
        "normalise": {"mean": [mean for mean, _ in moments], "std": [std for _, std in moments]},
    }


def _of_vectors(name: str, raw: Raw, arrays: dict[str, tuple[Inputs, Labels]]) -> dict[str, Any]:
    """Return the card's entries for vectors."""
    missing = any(bool(np.isnan(x).any()) for x, _ in arrays.values())
    return {
        "input": {"kind": "vector", "features": list(raw.features), "missing": missing},
        "normalise": vectors.moments(arrays["train"][0], raw.features, name),
    }


def _moments(images_NHWC: npt.NDArray[Any]) -> list[tuple[float, float]]:
    """Return mean and standard deviation in [0, 1] of each channel, from counts of the 256 values."""
    counts = np.zeros((images_NHWC.shape[3], 256), dtype=np.int64)
    for block in mapped.blocks(images_NHWC):  # bincount makes a copy of eight bytes per pixel
        for channel, counts_256 in enumerate(counts):
            counts_256 += np.bincount(block[..., channel].reshape(-1), minlength=256)
    return [_moments_of(counts_256) for counts_256 in counts]


def _moments_of(counts_256: npt.NDArray[np.int64]) -> tuple[float, float]:
    """Return mean and standard deviation from counts of 256 values."""
    values = np.arange(256) / 255
    mean = float(counts_256 @ values / counts_256.sum())
    std = float(np.sqrt(counts_256 @ (values - mean) ** 2 / counts_256.sum()))
    return round(mean, 6), max(round(std, 6), 1e-3)
