"""Names that `python -m tools.prose` refuses: participles, and names of two things."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import prose


@pytest.mark.parametrize("name", ["held", "_fitted", "read_rounded", "needed", "kept"])
def test_a_participle_is_refused(name: str) -> None:
    assert prose.is_participle(name)


@pytest.mark.parametrize("name", ["is_served", "was_rearmed", "seed", "speed", "labelled", "fitted_classes", "run"])
def test_a_noun_a_predicate_and_a_term_of_the_field_are_not(name: str) -> None:
    assert not prose.is_participle(name)


def test_fields_on_the_wire_keep_their_names(tmp_path: Path) -> None:
    file = tmp_path / "rows.py"
    file.write_text("class Row:\n    stored: int\n    shown: int\n\n\ndef put(stored: int) -> None: ...\n")
    found = [(line, text.partition(";")[0]) for line, text in prose.names(file)]
    assert found == [(3, "attribute shown of Row"), (6, "parameter stored of put")]


def test_a_class_and_a_file_stand_for_one_thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("app/one/rows.py", "app/two/rows.py", "app/cli/rows.py", "other/rows.py", "other/errors.py"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("class Row: ...\n" if "two" in name or name == "other/rows.py" else "class _Part: ...\n")
    assert list(prose.twice(prose.files_under(["app", "other"], ".py"))) == [
        "class Row stands for two things: app/two/rows.py:1, other/rows.py:1",
        "file rows.py stands for two things in app: app/one/rows.py, app/two/rows.py",
    ]
