"""One place for the version: `trueodds.__version__`."""

from __future__ import annotations

import re
import tomllib

import pytest

import trueodds
from service.app import create_app
from service.settings import Settings
from tests.conftest import ROOT, run
from trueodds import cli

VERSION = trueodds.__version__
TAG = re.compile(r"trueodds-(?:serve|train):([\w.]*\d[\w.]*)|newName: \S*trueodds\S*\n\s+newTag: (\S+)")


def test_the_distribution_takes_it_from_there() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert pyproject["project"]["dynamic"] == ["version"]
    assert pyproject["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "trueodds.processes.version.__version__"}


@pytest.mark.parametrize("prog", ["trueodds", "pipeline", "service"])
def test_a_command_prints_it(prog: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(prog, cli.COMMANDS, ["--version"], default="report" if prog == "service" else "") == 0
    assert capsys.readouterr().out == f"{prog} {VERSION}\n"


def test_openapi_names_it() -> None:
    assert create_app(Settings()).version == VERSION


def test_images_in_manifests_and_pages_have_its_tag() -> None:
    tracked = run(["git", "ls-files", "-co", "--exclude-standard", "deploy", "docker", "docs"], ROOT).stdout.split()
    files = [ROOT / name for name in tracked if name.endswith((".yaml", ".json", ".md")) and (ROOT / name).is_file()]
    tags = {tag for file in files for pair in TAG.findall(file.read_text(encoding="utf-8")) for tag in pair if tag}
    assert tags == {VERSION}


def test_the_citation_and_the_changelog_name_it() -> None:
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert VERSION in versions[:2], "the version, below what is not released yet"
