"""CIFAR through torchvision's real download code, from a server on this machine that holds a small archive."""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest

from pipeline import data
from pipeline.config import Data
from pipeline.data import DataError
from pipeline.data.vision import torchvision
from tests.local_server import LocalServer
from trueodds.files import write_npz

ROWS = {"train": 300, "test": 100}


def images(split: str) -> np.ndarray:
    return np.random.default_rng(len(split)).integers(0, 256, (ROWS[split], 32, 32, 3), dtype=np.uint8)


def labels(split: str) -> np.ndarray:
    return np.arange(ROWS[split]) % 100


def archive() -> tuple[bytes, dict[str, str]]:
    """A tar.gz with the official CIFAR-100 layout (pickled rows, planes of channels) and the md5 of its members."""
    members = {
        split: pickle.dumps(
            {"data": images(split).transpose(0, 3, 1, 2).reshape(-1, 3072), "fine_labels": labels(split).tolist()}
        )
        for split in ROWS
    }
    members["meta"] = pickle.dumps({"fine_label_names": [f"class{k:02}" for k in range(100)]})
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(f"cifar-100-python/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue(), {name: hashlib.md5(content).hexdigest() for name, content in members.items()}


@pytest.fixture
def official(tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A server of the archive, with torchvision's CIFAR100 pointed at it; gives the served file."""
    folder = tmp_path / "served"
    folder.mkdir()
    content, md5 = archive()
    served = folder / "cifar-100-python.tar.gz"
    served.write_bytes(content)
    kind = torchvision().datasets.CIFAR100
    monkeypatch.setattr(kind, "tgz_md5", hashlib.md5(content).hexdigest())
    monkeypatch.setattr(kind, "train_list", [["train", md5["train"]]])
    monkeypatch.setattr(kind, "test_list", [["test", md5["test"]]])
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": md5["meta"]})
    with LocalServer().serve(partial(SimpleHTTPRequestHandler, directory=str(folder))) as server:
        monkeypatch.setattr(kind, "url", f"{server.url}/{served.name}")
        yield served


def test_download_and_mirror_give_the_same_bytes(
    official: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Data(dataset="cifar100", validation_size=100)
    data.save(data.load(settings), workspace / "downloaded")
    assert (workspace / "downloads").is_dir()
    mirror = workspace / "mirror"
    mirror.mkdir()
    arrays = {f"{a}_{s}": f(s) for s in ROWS for a, f in (("x", images), ("y", labels))}
    write_npz(mirror / "cifar100.npz", {"class_names": np.array([f"class{k:02}" for k in range(100)]), **arrays})
    official.unlink()  # from here on nothing can be downloaded
    monkeypatch.setenv("TRUEODDS_DATA", str(mirror))
    data.save(data.load(settings), workspace / "mirrored")
    for name in ("arrays.npz", "card.json"):
        assert (workspace / "downloaded" / name).read_bytes() == (workspace / "mirrored" / name).read_bytes()


def test_a_damaged_download_is_refused_and_removed(official: Path, workspace: Path) -> None:
    whole = official.read_bytes()
    official.write_bytes(whole[:-100])
    with pytest.raises(DataError, match=r"the download from http.* is damaged .* was removed\. Run again"):
        data.load(Data(dataset="cifar100", validation_size=100))
    official.write_bytes(whole)
    assert data.load(Data(dataset="cifar100", validation_size=100)).card["splits"]["train"] == 200


def test_no_network_says_what_to_do(official: Path, workspace: Path) -> None:
    official.unlink()
    with pytest.raises(DataError, match=r"could not be downloaded .*TRUEODDS_DATA=<folder>"):
        data.load(Data(dataset="cifar100"))


def test_all_of_cifar100(development_data: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUEODDS_DATA", str(development_data))
    cifar = data.load(Data(dataset="cifar100"))
    assert cifar.card["splits"] == {"train": 45_000, "val": 5_000, "test": 10_000}
    assert cifar.card["classes"][:2] == ["apple", "aquarium_fish"]
    assert np.bincount(cifar.arrays["val"][1]).tolist() == [50] * 100
    assert cifar.card["normalise"]["mean"] == pytest.approx([0.507, 0.487, 0.441], abs=2e-3)  # the published means
