"""The published files: addresses, checksums, download.

They are inputs of calibrators and reports, not data sets to train on. Each file has an official address at a fixed
commit and a checksum, which is verified at every use.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trueodds.errors import UserError, unknown
from trueodds.files import write_bytes

MIRROR = "TRUEODDS_DATA"
"""Environment variable with a folder of copies, for machines without a network."""
DOWNLOADS = "TRUEODDS_DOWNLOADS"
"""Environment variable with the folder of downloads (default downloads/)."""
SECONDS = 60
Get = Callable[[str], bytes]
"""Function that returns the content of an address. Raises OSError."""


class PublishedDataError(UserError, RuntimeError):
    """Published data are not there, or are not the published ones. The message gives the cure."""


@dataclass(frozen=True)
class PublishedFile:
    """A published file with the SHA-256 of its content."""

    name: str
    url: str
    sha256: str


@dataclass(frozen=True)
class Collection:
    """Files of one source.

    Attributes:
        about: Content, in one line.
        licence: Licence and author.
        files: The files.
    """

    about: str
    licence: str
    files: tuple[PublishedFile, ...]


_NETCAL = (
    "https://raw.githubusercontent.com/EFS-OpenSource/calibration-framework/"
    "2a3db8d7cb2a557f3b563c98ce00954f43dfe927/examples/classification/records"
)
_FORECASTS = (
    "https://raw.githubusercontent.com/fivethirtyeight/checking-our-work-data/f6d5b2e1d6da2889345d381c41431f9a4ee208dd"
)
_SPORTS = {
    "mlb": "2e0c471d179bba588e0ebbdee746306bf2384d8b7f1b7f673ede7a72f6cd0437",
    "nba": "fb99d5a4870ae761684313b36433926f9f53b0e0d272b922c73aa287da20ab20",
    "nfl": "09290d7dfd41f18f584c007a5749bd788bedee1260de865783c68314ad8ab23d",
    "nhl": "f9b46b204820d27775c609fbaba31350bcc9e61abbb1e42adb2d4c3126eb3e99",
    "wnba": "3889257fec08eaa175c285753f40cdb1d78f1f548e45ac52cda73caf698e54c9",
}
COLLECTIONS = {
    "records": Collection(
        "probabilities and labels of 10,000 test images each, of LeNet-5 on CIFAR-10 and of DenseNet-BC-100 and Wide"
        " ResNet 16-4 on CIFAR-100: .npz files with `predictions` (N x C) and `ground_truth` (N)",
        "Apache-2.0, netcal (EFS-OpenSource/calibration-framework)",
        tuple(
            PublishedFile(f"{name}.npz", f"{_NETCAL}/{folder}/{name}.npz", sha256)
            for folder, name, sha256 in (
                (
                    "cifar100",
                    "densenet-bc-100-cifar-100",
                    "6b8c33de93bdf1ae7de335f485c73c9f7198b359f85de6b1f21066a7e7c6379e",
                ),
                ("cifar10", "lenet-5-cifar-10", "2fea8ab231920142ebf1fb90ec07677681f0ea64aef1a328e1d45898978e3c90"),
                (
                    "cifar100",
                    "wideresnet-16-4-cifar-100",
                    "ab3ce671b234521fe346977df2bb1c755a2c96b1781c350cef76be0ad36e5e12",
                ),
            )
        ),
    ),
    "forecasts": Collection(
        "forecasts of games in five sports with dates and outcomes: CSV files with `season`, `date`, `team1`, `team2`,"
        " `prob1`, `prob1_outcome`, `prob2`, `prob2_outcome`",
        "CC BY 4.0, FiveThirtyEight (fivethirtyeight/checking-our-work-data)",
        tuple(
            PublishedFile(f"{sport}_games.csv", f"{_FORECASTS}/{sport}_games.csv", sha256)
            for sport, sha256 in _SPORTS.items()
        ),
    ),
}


def download(url: str) -> bytes:
    """Return the content of an address. Raises OSError."""
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        content: bytes = answer.read()
    return content


def find(name: str, out: Path | None = None, get: Get = download) -> list[Path]:
    """Return the files of a collection, each verified. Files that are not there are downloaded.

    They are searched in <TRUEODDS_DATA>/<name>/, where each may be compressed with xz (<file>.xz), and then in `out`.

    Args:
        name: records or forecasts.
        out: Folder of the download (default: <TRUEODDS_DOWNLOADS>/<name>/).
        get: Downloads an address.

    Raises:
        PublishedDataError: A file has another content than the published one, or there is no network.
        ConfigError: There is no such collection.

    Examples:
        >>> find("weights")
        Traceback (most recent call last):
        ...
        trueodds.errors.ConfigError: unknown collection 'weights'; allowed: forecasts, records.
    """
    if name not in COLLECTIONS:
        raise unknown("collection", name, sorted(COLLECTIONS))
    mirror = Path(os.environ[MIRROR]) / name if os.environ.get(MIRROR) else None
    folder = out if out is not None else Path(os.environ.get(DOWNLOADS) or "downloads") / name
    return [_one(name, file, mirror, folder, get) for file in COLLECTIONS[name].files]


def _one(name: str, file: PublishedFile, mirror: Path | None, folder: Path, get: Get) -> Path:
    """Return one file."""
    places = [place / form for place in filter(None, (mirror, folder)) for form in (file.name, f"{file.name}.xz")]
    for path in places:
        if path.is_file():
            _verify(_content(path), file, str(path), "Delete it, then run the command again")
            return path
    try:
        content = get(file.url)
    except OSError as error:
        cure = f"Without a network, put {file.name} or {file.name}.xz into <folder>/{name}/ and set {MIRROR}=<folder>"
        raise PublishedDataError(f"{file.url} could not be downloaded ({error}). {cure}") from None
    _verify(content, file, file.url, "Run the command again")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file.name
    write_bytes(path, content)
    return path


def _content(path: Path) -> bytes:
    """Return the content of a file, without its compression."""
    packed = path.read_bytes()
    if path.suffix != ".xz":
        return packed
    try:
        return lzma.decompress(packed)
    except lzma.LZMAError as error:
        raise PublishedDataError(f"{path} is not a whole .xz file ({error}). Replace it, then try again") from None


def _verify(content: bytes, file: PublishedFile, place: str, cure: str) -> None:
    """Raise PublishedDataError unless the content is the published one."""
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise PublishedDataError(f"{place} has the SHA-256 {digest}; the published file has {file.sha256}. {cure}")
