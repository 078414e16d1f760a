"""Large arrays, mapped from files: the same rows and the same bytes, and few pages in memory at a time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import data
from pipeline.config import Data
from pipeline.data import DataError, mapped
from trueodds.files import FileError, write_npz

IMAGES = np.random.default_rng(0).integers(0, 256, (60, 6, 5, 3), dtype=np.uint8)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything from 1,000 bytes on is large, and pages are given back after every block of 500 bytes."""
    monkeypatch.setattr(mapped, "MAPPED_FROM", 1000)
    monkeypatch.setattr(mapped, "BLOCK", 500)
    monkeypatch.setattr(mapped, "RELEASED_AT", 0)


def own(path: Path, **changes: Any) -> Path:
    arrays = {"x_train": IMAGES, "y_train": np.arange(60) % 2, "x_test": IMAGES[::2], "y_test": np.arange(30) % 2}
    np.savez(path, **{**arrays, "class_names": np.array(["cat", "dog"]), **changes})
    return path


def is_mapped(array: np.ndarray[Any, Any]) -> bool:
    return mapped._mapping(array) is not None


@pytest.mark.parametrize("x_test", [IMAGES[::2], np.asfortranarray(IMAGES[::2])], ids=["by rows", "by columns"])
def test_a_large_data_set_is_the_same_to_the_byte(
    x_test: np.ndarray[Any, Any], workspace: Path, request: pytest.FixtureRequest
) -> None:
    own(workspace / "datasets" / "pets.npz", x_test=x_test)
    held = data.load(Data(dataset="pets"))
    data.save(held, workspace / "held")
    request.getfixturevalue("small")
    large = data.load(Data(dataset="pets"), scratch=workspace)
    assert large.card == held.card and is_mapped(large.arrays["train"][0])
    data.save(large, workspace / "mapped")
    for name in ("arrays.npz", "card.json"):
        assert (workspace / "held" / name).read_bytes() == (workspace / "mapped" / name).read_bytes()
    back = data.read(workspace / "mapped")
    assert is_mapped(back.arrays["train"][0]) and back.card == held.card
    assert all(np.array_equal(back.arrays[split][i], held.arrays[split][i]) for split in data.SPLITS for i in (0, 1))
    assert {path.name for path in workspace.iterdir()} >= {"held", "mapped"} and not list(workspace.glob("tmp*"))


def test_an_archive_is_written_as_numpy_writes_it(small: None, tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "x": IMAGES,
        "none": IMAGES[:0],
        "every other": IMAGES[:, ::2],
        "y": np.arange(60),
    }
    mapped.write_npz(tmp_path / "a.npz", arrays)
    write_npz(tmp_path / "b.npz", {name: np.ascontiguousarray(array) for name, array in arrays.items()})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_what_cannot_be_mapped_is_read(small: None, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=IMAGES, numbers=np.arange(1000))
    back = mapped.read_npz(tmp_path / "a.npz")
    assert np.array_equal(back["x"], IMAGES) and np.array_equal(back["numbers"], np.arange(1000))
    assert not any(map(is_mapped, back.values()))


def test_a_mapped_file_is_never_written_to(small: None, tmp_path: Path) -> None:
    content = own(tmp_path / "a.npz").read_bytes()
    mapped.read_npz(tmp_path / "a.npz")["x_train"][:] = 0
    assert (tmp_path / "a.npz").read_bytes() == content


@pytest.mark.parametrize("rows", [IMAGES, np.arange(60) % 2], ids=["mapped", "read"])
def test_a_damaged_file_is_refused(rows: np.ndarray[Any, Any], small: None, tmp_path: Path) -> None:
    path = own(tmp_path / "a.npz")
    content = bytearray(path.read_bytes())
    content[content.index(rows.tobytes()) + 100] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"a\.npz is not a whole \.npz file"):
        mapped.read_npz(path)


def test_objects_are_refused(small: None, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="without Python objects"):
        mapped.read_npz(own(tmp_path / "a.npz", class_names=np.array(["cat", {}], dtype=object)))


def test_a_disk_without_room_is_named(small: None, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no room for 1000000000000\.0 GB of rows: .* GB are free"):
        mapped.empty((10**21,), np.uint8, tmp_path)


def test_few_pages_are_held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process's own count of file pages, over 64 MB that are written, read and drawn from."""
    monkeypatch.setattr(mapped, "MAPPED_FROM", 2**20)
    monkeypatch.setattr(mapped, "RELEASED_AT", 2**22)
    rows = 2**14
    source = mapped.empty((rows, 4096), np.uint8, tmp_path)
    before, most, pages = file_pages(), 0, mapped.Pages(source)
    for begin in range(0, rows, 256):
        source[begin : begin + 256] = begin // 256
        pages.touch(256)
        most = max(most, file_pages())
    for block in mapped.blocks(source):
        assert block.max() - block.min() <= 1
        most = max(most, file_pages())
    drawn = mapped.take(source, np.random.default_rng(0).permutation(rows), tmp_path)
    most = max(most, file_pages())
    assert sorted(drawn[:, 0]) == sorted(source[:, 0])
    assert most - before < 40 * 2**20  # measured: 21 to 22 MB of 128; 16 of them are what 256 rows bring along


def file_pages() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * sum(map(int, re.findall(r"Rss(?:File|Shmem):\s+(\d+) kB", status)))
