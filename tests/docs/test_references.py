"""The pages name every command, setting, metric and calibrator, and their links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from pipeline import cli as pipeline_cli
from pipeline.config import SECTION_OF
from service import cli as service_cli
from service.errors import STATUSES
from service.settings import Settings
from tests.conftest import ROOT
from tests.docs.terminal import PAGES, README
from trueodds import calibrators, metrics
from trueodds.cli import COMMANDS as LIBRARY
from trueodds.cli import Command

TEXT = "\n".join(page.read_text(encoding="utf-8") for page in (README, *PAGES))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ERROR_CODE = re.compile(r'(?:\b[45]\d\d,|self\.code =[^"\n]*|(?:Input\w*|Unreadable)Error\()\s*"([a-z_]+)"')
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), f"{page.name}: {target} does not exist"
        assert not anchor or anchor in anchors(other), f"{page.name}: {other.name} has no heading #{anchor}"


def test_every_page_is_reached_from_readme() -> None:
    """Follow links from README.md, page by page."""
    reached, waiting = set(), [README]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
        names = {target.partition("#")[0] for target in targets if "://" not in target}
        waiting += [(page.parent / name).resolve() for name in names if name.endswith(".md")]
    assert [page for page in PAGES if page not in reached] == []


@pytest.mark.parametrize(
    "commands", [LIBRARY, pipeline_cli.COMMANDS, service_cli.COMMANDS], ids=["library", "pipeline", "service"]
)
def test_every_command_is_named(commands: Mapping[str, Command]) -> None:
    assert [command for command in commands if not re.search(rf"trueodds {command}(?![\w-])", TEXT)] == []


def test_every_setting_is_named() -> None:
    service = [f"`TRUEODDS_{name.upper()}`" for name in Settings.model_fields]
    leaves = [f"`{section}.{leaf}`" for leaf, section in SECTION_OF.items()]
    assert [name for name in [*service, *leaves] if name not in TEXT] == []


def test_every_calibrator_and_metric_is_named() -> None:
    """Those for a user; helpers and the types of answers apart."""
    helpers = {"blocks", "cell_of", "softmax", "summary", "whole_bins"}
    functions = {name for name in metrics.__all__ if name.islower()} - helpers
    named = [*calibrators.names(), *functions, "EProcess", "ShiryaevRoberts", "WeightedEProcess", "Prequential"]
    assert [name for name in named if f"`{name}`" not in TEXT] == []


def test_every_error_code_is_explained() -> None:
    """Those of the service and of its inputs, as they stand in the code."""
    page = (ROOT / "docs" / "reference" / "error-codes.md").read_text(encoding="utf-8")
    files = [file for folder in ("service", "trueodds/inputs") for file in (ROOT / folder).rglob("*.py")]
    codes = set(STATUSES).union(*(ERROR_CODE.findall(file.read_text(encoding="utf-8")) for file in files))
    assert len(codes) > 60
    assert sorted(code for code in codes if f"`{code}`" not in page) == []


def test_the_model_of_dvc_yaml_is_what_export_writes() -> None:
    graph = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    ((name, artifact),) = graph["artifacts"].items()
    assert artifact["type"] == "model" and [artifact["path"]] == graph["stages"]["export"]["outs"]
    assert f"the model `{name}`" in TEXT
