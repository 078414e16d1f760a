"""The promise to act alone: read from a text or a file, kept in the card, published by the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.__main__ import main
from tests.service.tiny_bundle import write_bundle
from trueodds import cli
from trueodds.bundle import ActAlone, Bundle, open_models
from trueodds.bundle.act_alone import EXAMPLE
from trueodds.errors import ConfigError

FOUND: dict[str, Any] = {
    "threshold": 0.9,
    "risk": 0.05,
    "confidence": 0.95,
    "answers": 2000,
    "labels": 1000,
    "acted": 700,
    "wrong": 20,
    "share": 0.7,
    "share_lower": 0.67,
    "share_upper": 0.73,
    "reason": "certified",
    "groups": [],
    "by": None,
}


def written(tmp_path: Path, **changes: Any) -> str:
    path = tmp_path / "act.json"
    path.write_text(json.dumps({**FOUND, **changes}))
    return str(path)


def test_a_text_and_a_file_are_read(tmp_path: Path) -> None:
    by_hand = ActAlone.read(EXAMPLE)
    assert (by_hand.threshold, by_hand.risk, by_hand.confidence, by_hand.labels) == (0.93, 0.05, 0.95, None)
    assert "stated by hand" in by_hand.evidence
    of_file = ActAlone.read(written(tmp_path))
    assert (of_file.threshold, of_file.labels, of_file.acted, of_file.wrong) == (0.9, 1000, 700, 20)
    assert (
        "700 of them acted, 20 of these were wrong. 70% of all answers acted (interval 67% to 73%)" in of_file.evidence
    )


def test_groups_by_tag_become_thresholds_of_tags(tmp_path: Path) -> None:
    rows = [("day", 0.8), ("night", None), ("(no tag)", 0.7)]
    groups = [{**FOUND, "group": name, "threshold": threshold} for name, threshold in rows]
    promise = ActAlone.read(written(tmp_path, by="tag", threshold=None, groups=groups))
    answers = [("day", 0.8, "act"), ("night", 1.0, "escalate"), (None, 0.7, "act"), (None, 0.69, "escalate")]
    for tag, confidence, decision in [*answers, ("new", 1.0, "escalate")]:
        assert promise.decision(confidence, tag) == decision
    tags = ["day", "night", None, "new"]
    assert promise.acts(np.array([0.8, 1.0, 0.7, 1.0]), tags).tolist() == [True, False, True, False]


@pytest.mark.parametrize("by", [None, "tag"])
def test_what_the_command_writes_is_what_publish_reads(tmp_path: Path, by: str | None) -> None:
    table, act = tmp_path / "answers.csv", tmp_path / "act.json"
    rows = "".join(f"0.{90 + n % 10},1,{('day', '')[n % 2]}\n" for n in range(400))
    table.write_text("confidence,correct,tag\n" + rows)
    words = ["threshold", str(table), "--out", str(act), *(["--by", by] if by else [])]
    assert cli.main("trueodds", cli.COMMANDS, words) == 0
    promise = ActAlone.read(str(act))
    assert promise.tags == ({"day": 0.9, "": 0.91} if by else {}) and promise.threshold == (None if by else 0.9)
    assert (promise.labels, promise.acted, promise.wrong, promise.share) == (400, 400, 0, 1.0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("threshold=.9,risk=.05", "lacks confidence"),
        ("threshold=.9,risk=.05,confidence=.95,bins=3", "has the part 'bins=3'"),
        ("threshold=.9,threshold=.8,risk=.05,confidence=.95", "has the part 'threshold=.8'"),
        ("threshold=1.2,risk=.05,confidence=.95", "threshold: Input should be less than or equal to 1"),
        ("threshold=.9,risk=0,confidence=.95", "risk: Input should be greater than 0"),
        ("nowhere.json", "nowhere.json cannot be read"),
    ],
)
def test_what_is_no_promise_is_refused(given: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        ActAlone.read(given)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"threshold": None, "reason": "too_few"}, "no threshold is certified"),
        (
            {"by": "class", "threshold": None},
            "or one for each tag; choose it without --by",
        ),
        ({"by": "question", "threshold": None}, "or send each answer's question as its tag"),
        ({"tagz": {"day": 0.7}}, "has the key 'tagz', which is unknown"),
        ({"by": "tag", "groups": [{}]}, "its groups have no names or thresholds"),
        ({"risk": None, "mean_cost": 0.2}, "bounds a mean cost"),
        ({"wrong": 800}, "must increase in this order"),
    ],
)
def test_a_file_without_a_promise_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        tree = {key: value for key, value in {**FOUND, **changes}.items() if not (key == "risk" and value is None)}
        ActAlone.of_tree(tree, "act.json")
    assert words in str(error.value)


def test_decisions_one_by_one_are_those_of_all_together() -> None:
    rng = np.random.default_rng(0)
    promise = ActAlone.of_text(EXAMPLE).model_copy(update={"tags": {"a": 0.5, "b": None, "": 0.2}})
    confidence_N, tags = rng.random(300), [("a", "b", "c", None)[n % 4] for n in range(300)]
    one_by_one = [promise.decision(float(c), tag) == "act" for c, tag in zip(confidence_N, tags, strict=True)]
    assert promise.acts(confidence_N, tags).tolist() == one_by_one


def test_publish_makes_a_version_with_the_promise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_bundle(tmp_path / "bundle")
    base = ["publish", "--models", str(tmp_path / "models"), "--bundle", str(tmp_path / "bundle")]
    assert main(base) == 0
    assert main([*base, "--act-alone", written(tmp_path)]) == 0
    models = open_models(tmp_path / "models")
    plain, promised = models.versions("tiny")
    card = Bundle.load(models.version_folder("tiny", promised)).card
    assert card.act_alone == ActAlone.read(written(tmp_path))
    assert Bundle.load(models.version_folder("tiny", plain)).card.act_alone is None
    text = (models.version_folder("tiny", promised) / "MODEL_CARD.md").read_text()
    assert "## Acting alone" in text and "from a confidence of 0.9 on: at most 5% of them are wrong" in text
    by_tag = ActAlone.of_text(EXAMPLE).model_copy(update={"tags": {"": None, "day": 0.5}})
    text = (
        Bundle.load(tmp_path / "bundle").promising(by_tag, tmp_path / "by_tag").directory / "MODEL_CARD.md"
    ).read_text()
    assert "| `(no tag)` | never acts |\n| `day` | 0.5 |\n| any other | 0.93 |" in text
    assert main([*base, "--act-alone", "none"]) == 0 and set(models.versions("tiny")) == {plain, promised}
    capsys.readouterr()
    assert main(["versions", "tiny", "--models", str(tmp_path / "models")]) == 0
    assert "acts alone from 0.9 on (at most 5% wrong)" in capsys.readouterr().out
    assert main([*base, "--act-alone", "threshold=2"]) == 1 and "expected" in capsys.readouterr().err
