"""A disk that is full: the path is named, no part of a file stays, and what was there stays whole."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.data import mapped
from pipeline.data.texts.downloads import Download, fetch
from pipeline.figures.style import new_figure
from pipeline.flows.workspace import write_params
from pipeline.studies.measuring import _parquet
from pipeline.training.checkpoint import Checkpoint
from pipeline.training.training_result import write_epochs
from tests.test_bundle import make_bundle
from trueodds import files
from trueodds.bundle import Bundle
from trueodds.importing import labelled_rows
from trueodds.importing.labelled_rows import ImportRows

BIG_N = np.zeros(100_000)


@contextmanager
def full(largest: int = 4096) -> Iterator[None]:
    """The kernel takes no file of this process beyond so many bytes: EFBIG, by the way that ENOSPC comes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def draw(path: Path) -> None:
    with new_figure(path.with_suffix(""), "a title", (4, 3)) as figure:
        figure.subplots().plot(range(500), np.sin(range(500)))


WRITERS: dict[str, Callable[[Path], object]] = {
    "a.json": lambda path: files.write_json(path, BIG_N.tolist()),
    "a.npz": lambda path: files.write_npz(path, {"a": BIG_N}),
    "b.npz": lambda path: mapped.write_npz(path, {"a": BIG_N}),
    "a.bin": lambda path: files.write_bytes(path, BIG_N.tobytes()),
    "b.bin": lambda path: files.copy(Path(np.__file__), path),  # of some 20 kB
    "a.parquet": lambda path: _parquet(path, [{"a": str(n)} for n in BIG_N.cumsum() + range(100_000)], ["a"]),
    "a.txt": lambda path: files.write_text(path, "x" * 9000),
    "a.csv": lambda path: write_epochs(path, [{"epoch": n, "val_nll": 0.1} for n in range(5000)]),
    "a.svg": draw,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_does_not_fit_is_named_and_leaves_what_was_there(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"before")
    with pytest.raises(OSError, match="File too large") as caught, full():
        WRITERS[name](path)
    assert caught.value.filename == str(path)
    assert [file.name for file in tmp_path.iterdir()] == [name] and path.read_bytes() == b"before"
    WRITERS[name](path)
    assert path.stat().st_size > 6 and [file.name for file in tmp_path.iterdir()] == [name]


def test_a_download_that_does_not_fit_names_its_folder_and_leaves_no_part(tmp_path: Path) -> None:
    (archive := tmp_path / "a.zip").write_bytes(BIG_N.tobytes())
    with pytest.raises(OSError, match="File too large") as caught, full():
        fetch(Download(archive.as_uri(), ("a",)), folder := tmp_path / "downloads", "")
    assert caught.value.filename == str(folder)
    assert not [path for path in folder.iterdir() if path.suffix != ".lock"]


def test_a_bundle_that_does_not_fit_is_named_and_leaves_no_part(tmp_path: Path) -> None:
    bundle = Bundle.load(make_bundle(tmp_path / "made"))
    model = tmp_path / "model.onnx"
    model.write_bytes(BIG_N.tobytes())
    zero, card = np.zeros(1), bundle.card
    with pytest.raises(OSError, match="File too large") as caught, full():
        Bundle.write(tmp_path / "out", model, bundle.calibrator, card, golden_input=zero, golden_logits=zero)
    assert caught.value.filename == str(tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"made", "model.onnx"}


def test_parameters_that_do_not_fit_stay_as_they_were(tmp_path: Path) -> None:
    (path := tmp_path / "params.yaml").write_text("data: {}\n")
    with pytest.raises(OSError, match=f"File too large: '{path}'"), full():
        write_params(path, {"dataset": "x" * 9000})
    assert path.read_text() == "data: {}\n" and [*tmp_path.iterdir()] == [path]


def test_what_cannot_be_read_is_not_called_what_is_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        files.copy(tmp_path / "absent", tmp_path / "target")
    assert caught.value.filename == str(tmp_path / "absent")


def test_a_device_is_written_in_place() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        files.write_text(Path("/dev/full"), "x")
    files.write_text(Path("/dev/null"), "x")
    assert not Path("/dev/null.part").exists() and Path("/dev/null").is_char_device()


class State:
    """The part of a training's state that a checkpoint asks for."""

    history = (1,)

    def to_dict(self, _epoch: object) -> dict[str, Any]:
        return {"weights": torch.zeros(100_000)}


def test_a_checkpoint_that_does_not_fit_warns_and_the_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = Checkpoint(tmp_path / "run", share=1e9)
    checkpoint.save(State(), last=True)  # type: ignore[arg-type]
    (file,) = (tmp_path / "run").iterdir()
    before = file.read_bytes()
    with full():
        checkpoint.save(State(), last=True)  # type: ignore[arg-type]
    assert "no checkpoint could be written" in caplog.text and f"File too large: '{file}'" in caplog.text
    assert [*(tmp_path / "run").iterdir()] == [file] and file.read_bytes() == before


def test_hidden_files_and_folders_are_neither_rows_nor_classes(tmp_path: Path) -> None:
    """A notebook writes .ipynb_checkpoints, and macOS ._1.png, beside the photos. Each reader lists files here."""
    for name in ("b/1.png", "b/2.PNG", "b/deep/3.png", "b/._1.png", "b/.ipynb_checkpoints/1-checkpoint.png", "b/1.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / "a").mkdir()
    assert files.class_folders(tmp_path) == ("a", "b")
    names = [path.relative_to(tmp_path).as_posix() for path in files.files_below(tmp_path / "b", [".png"])]
    assert names == ["b/1.png", "b/2.PNG", "b/deep/3.png"]
    assert files.files_below(tmp_path / "c", [".png"]) == []


@pytest.mark.parametrize("read", [labelled_rows.read, lambda path: labelled_rows.read(path, texts=True)])
def test_folders_of_rows_leave_hidden_ones_out(tmp_path: Path, read: Callable[[Path], ImportRows]) -> None:
    for name in ("a/1.png", "b/2.PNG", ".hidden/3.png", "a/1.txt", "b/deep/2.TXT", ".hidden/3.txt", "b/._2.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("words")
    rows = read(tmp_path)
    assert rows.classes == ("a", "b") and rows.y.tolist() == ["a", "b"]
