"""Temporary files lie in memory where there is room, and nowhere else than where TMPDIR says."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.memory import has_room, hold_temporary_files


@pytest.fixture(autouse=True)
def temporary_folder_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", "")


def test_they_lie_in_the_folder(tmp_path: Path) -> None:
    hold_temporary_files(tmp_path, needed=1)
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(tmp_path)


def test_the_folder_that_somebody_named_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "other").mkdir()
    hold_temporary_files(tmp_path / "other", needed=1)
    assert tempfile.gettempdir() == str(tmp_path)


def test_too_little_room_or_none(tmp_path: Path) -> None:
    assert has_room(tmp_path, needed=1)
    assert not has_room(tmp_path, needed=1 << 60) and not has_room(tmp_path / "absent", needed=1)
    hold_temporary_files(tmp_path, needed=1 << 60)
    assert not os.environ["TMPDIR"]
