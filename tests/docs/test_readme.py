"""README.md, typed from top to bottom as a newcomer would, in a plain shell."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT
from tests.docs.terminal import README, Terminal, blocks
from tools import readme_picture


def test_it_is_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150 and len(text.encode()) <= 12_000


def test_its_picture_is_that_of_its_command() -> None:
    """Other processors round differently, so numbers may differ."""

    def without_numbers(drawing: str) -> str:
        return re.sub(r"[\d.]+", "#", drawing)

    committed = readme_picture.OUT.read_text(encoding="utf-8")
    assert without_numbers(readme_picture.drawing()) == without_numbers(committed)
    assert f"]({readme_picture.OUT.relative_to(ROOT)})" in README.read_text(encoding="utf-8")


@pytest.mark.full  # a minute of a processor; make test holds each of its commands to tests of their own
def test_make_run_and_every_block_in_order(terminal: Terminal) -> None:
    """The real pipeline, the real service, and a summary as README.md shows it; then what is typed after it.

    `make demo` has a test of its own.
    """
    listed = terminal.type("make")
    assert all(f"make {target}" in listed for target in ("run", "demo", "serve", "test", "test-full", "lint", "docs"))
    printed = terminal.type("make run")
    assert terminal.type("git status --porcelain") == ""
    (shown,) = [block.text for block in blocks(README) if block.text.startswith("TrueOdds:")]

    def words(text: str) -> list[str]:
        """The first words of each line, every number as #; the sentence about ECE left out."""
        lines = (line.strip() for line in text.splitlines() if not line.startswith("("))
        return [re.sub(r"-?[\d.]+", "#", re.split(r" {2,}", line)[0]) for line in lines]

    assert set(words(shown)) <= set(words(printed))
    page = (terminal.folder / ".run" / "service" / "calibration-report.html").read_text(encoding="utf-8")
    assert "<svg" in page and "600" in page

    assert terminal.walk(README, skipping=("make run", "make demo"))
    assert (terminal.folder / "models" / "digits" / "default").is_file()


@pytest.mark.full
def test_make_run_of_edits(terminal: Terminal) -> None:
    """Of the checkout as it is, with edits that nobody has committed; nothing else in it changes. Only the stages that
    the edits reach run, and none a second time.
    """
    params = terminal.folder / "params.yaml"
    params.write_text(params.read_text().replace("bins: 15", "bins: 20").replace("level: 0.95", "level: 0.8"))
    (terminal.folder / "pipeline" / "new.py").touch()
    status = terminal.type("git status --porcelain")
    assert "?? pipeline/new.py" in status
    printed = terminal.type("make run")
    assert terminal.type("git status --porcelain") == status and "dvc.lock" not in status
    assert "ECE, 20 bins" in printed and "80% interval" in printed
    assert re.findall(r"Running stage '(\w+)'", printed) == ["plan", "evaluate", "export"]
    again = terminal.type(".venv/bin/python -m pipeline repro")
    assert "Running" not in again and again.count("skipping") == 7
