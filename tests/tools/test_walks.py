"""The counts of a walk and of a folder, on a made-up house of five files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools.definitions import House
from tools.folders import Folder, measure_folder
from tools.walks import WALKS, Way, trace, way

FILES = {
    "trueodds/__init__.py": "",
    "trueodds/door.py": """
from trueodds import hall
from trueodds.hall import Desk
from trueodds.rooms import cellar

def enter(model, other):
    hall.greet(other)
    seat = hall.greet(model)
    with Desk(seat) as desk:
        desk.write(hall.leave)
    unseen = [cellar.fetch(x) for x in other]
    hall.leave(unseen)
    return desk.read(seat)
""",
    "trueodds/hall.py": """
from trueodds.rooms.attic import look

class Desk:
    def __init__(self, seat):
        self.seat = seat

    def write(self, how):
        return look(self.seat)

    def read(self, seat):
        return seat

def greet(name: str):
    return name

def leave(what):
    return what
""",
    "trueodds/rooms/__init__.py": "",
    "trueodds/rooms/attic.py": """
def look(at):
    from trueodds.rooms import cellar
    return cellar.store(at)
""",
    "trueodds/rooms/cellar.py": """
def store(page):
    return page

def fetch(page):
    return page
""",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_walk_follows_what_is_made_of_the_parameter(root: Path) -> None:
    """Not what comes of `other`: neither `fetch` nor `leave` is a stop."""
    walk = trace(House(root), "trueodds/door.py:enter:model")
    assert [(file.stem, name) for file, name in walk.trail] == [
        ("door", "enter"),
        ("hall", "greet"),
        ("hall", "Desk.__init__"),
        ("hall", "Desk.write"),
        ("attic", "look"),
        ("cellar", "store"),
        ("hall", "Desk.read"),
    ]
    assert way("m", walk) == Way("m", stops=5, rooms=4, returns=1)


def test_rooms_and_floors(root: Path) -> None:
    assert measure_folder(root, "trueodds") == Folder(
        "trueodds",
        rooms=4,
        floors=4,
        parts=3,
        part_floors=3,
        lines=sum(len(text.splitlines()) for text in FILES.values()),
    )
    assert measure_folder(root, "trueodds/rooms") == Folder("trueodds/rooms", 2, 2, 2, 2, 10)


@pytest.mark.full
def test_every_walk_of_this_house_begins_somewhere() -> None:
    house = House(ROOT)
    for place in WALKS.values():
        assert len(trace(house, place).stops) > 5


def test_an_unknown_entry_is_refused(root: Path) -> None:
    with pytest.raises(SystemExit, match=r"trueodds/door\.py has no function leave"):
        trace(House(root), "trueodds/door.py:leave:model")


def test_the_command_prints_json(root: Path) -> None:
    command = [sys.executable, "-m", "tools.walks", "--root", str(root), "--walk", "trueodds/door.py:enter:model"]
    done = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["walks"][0]["stops"] == 5
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "trueodds/rooms/attic.py: look" in done.stdout.splitlines()
