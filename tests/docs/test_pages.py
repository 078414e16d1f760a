"""docs/**/*.md, each typed from top to bottom after what its first line says it needs; in any order."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from service.alarm import webhooks
from tests.conftest import ROOT
from tests.docs.terminal import PAGES, Terminal, blocks, needs

WALKS = [page for page in PAGES if blocks(page)]


@pytest.mark.full
@pytest.mark.parametrize("page", WALKS, ids=lambda page: str(page.relative_to(ROOT / "docs").with_suffix("")))
def test_every_block_in_order(page: Path, terminal: Terminal) -> None:
    for command in needs(page):
        try:
            terminal.type(command)
        except AssertionError as error:
            if command.startswith(("docker ", "kubectl ")):
                pytest.skip(f"{page.name} needs {command}, which fails here: {' '.join(str(error).split())}")
            raise
    assert terminal.walk(page)


@pytest.mark.full
def test_cifar100_by_the_command_of_its_page(terminal: Terminal, development_data: Path) -> None:
    """On a few rows, in one epoch, up to the calibrator; the data are those of TRUEODDS_DATA."""
    command = "dvc exp run -S data.dataset=cifar100"
    assert f"`{command}`" in (terminal.folder / "docs" / "reference" / "data-sets.md").read_text(encoding="utf-8")
    terminal.type(". .venv/bin/activate")
    terminal.type(f"{command} -S data.train_size=600 -S data.validation_size=500 -S training.epochs=1 calibrate")
    card = json.loads((terminal.folder / "artifacts" / "data" / "card.json").read_text())
    assert card["name"] == "cifar100" and card["splits"]["train"] == 600


def test_containers_names_services_and_files_that_exist() -> None:
    """Where there is no Docker, its page is held to docker/ by this alone."""
    typed = [line for block in blocks(ROOT / "docs" / "how-to" / "containers.md") for line in block.commands()]
    text = "\n".join(typed)
    services = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert set(re.findall(r" exec (?:-T )?(\w+)", text)) <= set(services)
    files = re.findall(r"docker compose -f (\S+)", text)
    assert files and all((ROOT / file).is_file() for file in files)


def test_pages_with_blocks_say_first_what_they_need() -> None:
    lines = {page: page.read_text(encoding="utf-8").splitlines()[2] for page in WALKS}
    assert [page for page, line in lines.items() if not line.startswith("Needs: ")] == []


def test_every_block_is_of_a_kind_that_is_run() -> None:
    kinds = {block.kind for page in PAGES for block in blocks(page)}
    assert kinds <= {"console", "python", "text"}


def test_every_type_of_news_is_described() -> None:
    text = (ROOT / "docs" / "reference" / "wire-formats.md").read_text(encoding="utf-8")
    kinds = webhooks.ALARM, webhooks.TRIAL, webhooks.UNDECIDED, webhooks.BROKEN, webhooks.QUESTION, webhooks.UNCOVERED
    assert all(f"`{kind}`" in text for kind in kinds)
    assert all(f"`{field}`" in text for field in webhooks.message(webhooks.UNDECIDED, None, None, "", address=""))
