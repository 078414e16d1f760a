"""Two slots under judgement: who is promoted, withdrawn or displaced, with labels that come from no service."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.__main__ import main
from pipeline.choices import Promote
from pipeline.recalibrate import (
    Recalibration,
    RecalibrationOutcome,
    RemoteModel,
    Rules,
    judge,
    judgement_loop,
    observed,
    recalibrate,
)
from pipeline.recalibrate.judging import directly
from tests.service.tiny_bundle import write_bundle
from tests.test_recalibrate import SERVED, TRUE, answers
from trueodds.bundle import SLOTS, BundleError, PublishedModels, open_models
from trueodds.calibrators import Temperature
from trueodds.client import Client, Labelled, Versions
from trueodds.errors import ConfigError

CREATED_MS = 2**50
"""Of all answers here: later than anything was fixed."""


@dataclass
class Stub(Client):
    """The labelled answers of a model, in memory; a net in the shadow's place has the served logits times `scale`."""

    folder: PublishedModels = field(default_factory=lambda: open_models(Path()))
    truth: float = TRUE
    count: int = 400
    scale: float = 0.5

    url = "http://127.0.0.1:8000"

    def versions(self) -> Versions:
        return Versions(self.folder.identify(), (), {}, ())

    def labelled(
        self,
        model: str,
        version: str,
        *,
        last: int | None = None,
        since: datetime | None = None,
        shadow: str | None = None,
    ) -> Labelled:
        z_NC, labels_N = answers(self.count, self.truth)
        shadow_NC: npt.NDArray[np.float32] | None = None if shadow is None else z_NC * np.float32(self.scale)
        created_N = np.full(len(labels_N), CREATED_MS, np.int64)
        return Labelled(z_NC, labels_N, created_N, 0, shadow_NC, np.full(len(labels_N), np.nan))


@pytest.fixture
def models(tmp_path: Path) -> PublishedModels:
    """What answers, a net that is the shadow, and a calibrator for what answers, which is right about the truth."""
    folder = open_models(tmp_path / "models")
    folder.publish(write_bundle(tmp_path / "served"))
    folder.publish(write_bundle(tmp_path / "net", seed=9), "shadow")
    calibrator = folder.publish(write_bundle(tmp_path / "calibrator", calibrator=Temperature(TRUE)), None)
    folder.shadow("tiny", calibrator.name, slot="recalibrated")
    return folder


def roles(models: PublishedModels) -> list[str | None]:
    return [models.version_of("tiny", role) for role in ("default", "shadow", "recalibrated")]


def request(models: PublishedModels, **options: Any) -> Recalibration:
    stub = {name: options.pop(name) for name in ("truth", "count", "scale") if name in options}
    return Recalibration(Stub(folder=models, **stub), models, **options)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"classes": ("cat", "dog", "hare", "3")}, r"has classes\[2\] = 'hare' on its card, .* has '3'\."),
        ({"classes": ("a", "b")}, r"has classes = \['a', 'b'\] on its card"),
    ],
)
def test_a_version_of_other_classes_is_no_shadow(
    models: PublishedModels, tmp_path: Path, other: dict[str, Any], words: str
) -> None:
    """The service would not score it, and only `trueodds doctor` said so."""
    before, bundle = roles(models), write_bundle(tmp_path / "other", **other)
    with pytest.raises(BundleError, match=words):
        models.publish(bundle, "shadow", displace=True)
    assert len(models.versions("tiny")) == 3, "nothing was copied"
    version = models.publish(bundle, None).name
    for slot in SLOTS:
        with pytest.raises(BundleError, match="give it a name of its own"):
            models.shadow("tiny", version, slot=slot)
    assert roles(models) == before
    models.promote("tiny", version)


def test_the_verdict_promotes_a_calibrator_and_no_net(models: PublishedModels) -> None:
    served, net, calibrator = roles(models)
    assert served and net and calibrator
    outcome = judge(request(models, why="drift"))
    assert outcome.status == "promoted" and [one.decision for one in outcome.judgements] == ["promoted", "stays"]
    assert roles(models) == [calibrator, net, None]
    promoted = next(change for change in models.changes("tiny") if change.action == "promote")
    assert promoted.why.startswith("drift: better on 400 fresh labels: gain +")
    assert f"; ends the evidence about {net}: better on 400 fresh labels" in promoted.why
    assert f"tiny/{net} stays the shadow" in outcome.words and "--promote-net when-better" in outcome.words


@pytest.mark.parametrize(
    ("promote", "promote_net", "truth", "after"),
    [
        ("never", "never", TRUE, "s n c"),
        ("never", "when-better", TRUE, "n - -"),
        ("when-better", "never", SERVED, "s n -"),
        ("never", "never", SERVED, "s n c"),
        ("never", "when-better", SERVED, "s - c"),
        ("now", "never", SERVED, "c n -"),
    ],
)
def test_one_rule_at_every_door(
    models: PublishedModels, promote: Promote, promote_net: Promote, truth: float, after: str
) -> None:
    names = dict(zip("snc", roles(models), strict=True)) | {"-": None}
    judge(request(models, truth=truth, promote=promote, promote_net=promote_net))
    assert roles(models) == [names[name] for name in after.split()]


def test_a_slot_is_judged_alone_and_an_empty_one_says_so(models: PublishedModels) -> None:
    served, net, calibrator = roles(models)
    outcome = judge(request(models, slot="shadow"))
    assert [one.slot for one in outcome.judgements] == ["shadow"] and roles(models) == [served, net, calibrator]
    models.withdraw("tiny", "recalibrated")
    with pytest.raises(BundleError, match="tiny has no recalibrated version to judge"):
        judge(request(models, slot="recalibrated"))
    for wrong in ({"slot": "net"}, {"promote": "always"}, {"promote_net": None}):
        with pytest.raises(ConfigError, match="allowed are"):
            request(models, **wrong)


def test_an_undecided_calibrator_keeps_its_evidence_until_it_has_had_enough(
    models: PublishedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It equals what answers, so that no label decides."""
    twin = models.version_of("tiny", "default")
    assert twin is not None
    equal = write_bundle(models.path.parent / "equal", calibrator=Temperature(SERVED + 1e-6))
    waiting = models.publish(equal, None).name
    models.shadow("tiny", waiting, slot="recalibrated")
    few = request(models, candidates=("temperature",), why="alarm")
    outcome = recalibrate(few)
    assert outcome.status == "waits" and "No other calibrator is fitted" in outcome.words and outcome.is_undecided
    assert models.version_of("tiny", "recalibrated") == waiting

    def displaced(outcome: RecalibrationOutcome) -> str:
        version = models.version_of("tiny", "recalibrated")
        assert outcome.status == "published" and outcome.candidate == version != waiting
        assert f"displaces {waiting}: undecided on 400 fresh labels" in outcome.words
        return models.changes("tiny")[-1].why

    why = displaced(recalibrate(replace(few, displace=True)))
    assert why.startswith(f"alarm: recalibrated on 400 labels; displaces {waiting}: undecided on 400 fresh labels")
    models.shadow("tiny", waiting, slot="recalibrated")
    monkeypatch.setattr(judgement_loop, "USED_UP", 400)
    displaced(recalibrate(few))


def test_the_fit_comes_first_whatever_is_the_shadow(models: PublishedModels) -> None:
    served, net, _ = roles(models)
    models.withdraw("tiny", "recalibrated")
    outcome = recalibrate(request(models, candidates=("temperature",)))
    assert outcome.status == "published" and roles(models) == [served, net, outcome.candidate]
    assert f"tiny/{net} stays the shadow" in outcome.words
    unlike = write_bundle(models.path.parent / "unlike", classes=("a", "b"))
    (models.path / "tiny" / "shadow").write_text(f"{models.publish(unlike, None).name}\n")
    models.withdraw("tiny", "recalibrated")
    outcome = recalibrate(request(models, candidates=("temperature",)))
    assert outcome.status == "published" and "so it cannot be judged beside it" in outcome.words


def test_waiting_for_a_net_forgets_no_verdict_about_the_calibrator(
    models: PublishedModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The net equals what answers then, so that it stays undecided for as long as one waits."""
    _, net, calibrator = roles(models)
    monkeypatch.setattr(observed, "POLL_SECONDS", 0.02)
    outcome = judge(request(models, scale=1.7 / TRUE, truth=TRUE, wait_seconds=0.1))
    assert outcome.status == "promoted" and outcome.served == outcome.candidate == calibrator
    assert [(one.version, one.decision) for one in outcome.judgements] == [(calibrator, "promoted"), (net, "stays")]
    first, second = outcome.words.split("\n")
    assert first.startswith(f"tiny/{calibrator} answers now.") and second.startswith(f"tiny/{net} stays the shadow.")
    models.shadow("tiny", str(net))
    assert judge(request(models, wait_seconds=0.1)).status == "waits"


@pytest.mark.parametrize("action", ["withdraw", "promote"])
def test_a_wait_ends_when_somebody_else_decides(
    models: PublishedModels, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """Issue: the message said "Start again: somebody else decided."."""
    _, net, _ = roles(models)

    def decide(seconds: float) -> None:
        if action == "withdraw":
            models.withdraw("tiny", "shadow")
        else:
            models.promote("tiny", str(net))

    monkeypatch.setattr("time.sleep", decide)
    outcome = judge(request(models, slot="shadow", scale=1.0, wait_seconds=60))
    assert outcome.status == "nothing" and outcome.judgements == ()
    assert outcome.words == (
        "The wait ended without a verdict, because the published versions changed: tiny has no shadow to judge; make"
        " one: trueodds recalibrate, or trueodds publish --role shadow"
    )


def test_a_person_hears_which_evidence_ends_and_what_begins_anew(
    models: PublishedModels, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, net, calibrator = roles(models)
    waiting = models.publish(write_bundle(models.path.parent / "next", seed=5), "shadow").name
    monkeypatch.setenv("TRUEODDS_SERVICE", "http://127.0.0.1:9")

    def typed(*words: str) -> str:
        assert main([*words, "--models", str(models.path)]) == 0
        return capsys.readouterr().out

    assert f"tiny/{net} stays the shadow, and is compared with {calibrator}" in typed(
        "promote", "tiny", str(calibrator)
    )
    assert "from now on" not in typed("promote", "tiny", str(calibrator)), "nothing changes"
    text = typed("promote", "tiny", str(net))
    assert f"tiny/{waiting} waited; it is the shadow now, and is compared with {net} from now on" in text

    def why(action: str) -> str:
        return next(change.why for change in reversed(models.changes("tiny")) if change.action == action)

    assert f"stays the shadow, and is compared with {calibrator}" in typed("rollback", "tiny", "--why", "a try")
    assert why("rollback").startswith(f"a try; ends the evidence about {waiting}: unknown (no service answers")
    again = models.path / "tiny" / str(served)
    text = typed("publish", "--bundle", str(again), "--why", "back")
    assert f"ends the evidence about {waiting}: unknown" in text
    assert why("publish").startswith(f"back; ends the evidence about {waiting}: unknown (no service answers")
    assert main(["publish", "--bundle", str(again), "--displace", "--models", str(models.path)]) == 1
    assert "use it with --role shadow only" in capsys.readouterr().err


def test_judge_takes_no_version_where_the_roles_say_what_is_judged(models: PublishedModels) -> None:
    for given in ({"version": "zzz"}, {"shadow": "zzz"}):
        with pytest.raises(ConfigError, match=f"{next(iter(given))} given; allowed only for a model that another"):
            judge(request(models, model="tiny", promote="never", **given))


def test_a_shadow_of_an_observed_model_is_another_candidate_beside_another_version(models: PublishedModels) -> None:
    desk = RemoteModel("tiny", ("1", "2"), ("a",))
    together = request(models, rules=Rules(budget="together"))
    texts = [observed.judge(replace(together, version=v), desk, directly).words for v in desk.versions]
    assert "This is candidate 1;" in texts[0] and "This is candidate 4;" in texts[1]
    with pytest.raises(ConfigError, match="slot is 'recalibrated'; tiny is served elsewhere and only has a shadow"):
        observed.judge(replace(together, slot="recalibrated"), desk, directly)


@pytest.mark.parametrize("work", [judge, recalibrate])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"promote": "now"}, "promote=now given"),
        ({"promote": "when-better"}, "promote=when-better given"),
        ({"promote": "now", "promote_net": "when-better"}, "promote=now and promote_net=when-better given"),
        ({"displace": True, "prior_shift": True}, "displace given"),
    ],
)
def test_nothing_is_promoted_on_another_server(
    models: PublishedModels, monkeypatch: pytest.MonkeyPatch, work: Any, given: dict[str, Any], words: str
) -> None:
    elsewhere = Versions(None, (), {"desk": ("1",), "desk~shadow": ("2",)}, ())
    monkeypatch.setattr(Stub, "versions", lambda self: elsewhere)
    with pytest.raises(ConfigError, match=f"{words}; allowed only for a model of this service"):
        work(request(models, model="desk", **given))
    if work is recalibrate:
        with pytest.raises(ConfigError, match=r"wait=9 given; allowed only where there is a verdict.*leave it out"):
            work(request(models, model="desk", wait_seconds=9))


@pytest.mark.parametrize("verdict", ["better", "undecided"])
def test_a_shadow_on_another_server_is_waited_for(
    models: PublishedModels, monkeypatch: pytest.MonkeyPatch, verdict: str
) -> None:
    """Until the verdict, or until the time is over."""
    monkeypatch.setattr(observed, "POLL_SECONDS", 0.01)
    looks = list[int]()

    def look(step: Any, *arguments: Any) -> Any:
        result = step(*arguments)
        if step.__name__ != "compare":
            return result
        looks.append(1)
        return result if verdict == "better" and len(looks) == 3 else replace(result, lower=-1.0)

    desk = RemoteModel("tiny", ("1",), ("a",))
    outcome = observed.judge(request(models, wait_seconds=0.4 if verdict == "undecided" else 60), desk, look)
    assert outcome.judgements[0].comparison.verdict == verdict
    assert len(looks) == 3 if verdict == "better" else len(looks) > 3


def test_what_answers_is_not_judged_beside_itself(models: PublishedModels) -> None:
    before = roles(models)
    for slot in SLOTS:
        with pytest.raises(BundleError, match=f"tiny/{before[0]} is the version that answers; choose another"):
            models.shadow("tiny", str(before[0]), slot=slot)
    assert roles(models) == before


@pytest.mark.parametrize("promote", ["when-better", "now"])
def test_a_fit_takes_no_place_beside_another_version_than_it_was_made_for(
    models: PublishedModels, monkeypatch: pytest.MonkeyPatch, promote: Promote
) -> None:
    """A person decides while the fit is under way."""
    _, net, calibrator = roles(models)
    models.withdraw("tiny", "recalibrated")
    after = [calibrator, net, None]

    def slowly(step: Any, *arguments: Any) -> Any:
        if step.__name__ == "choose":
            models.promote("tiny", str(calibrator))
        return step(*arguments)

    asked = request(models, candidates=("temperature",), promote=promote)
    with pytest.raises(BundleError, match=f"no longer answers, {calibrator} does: somebody else changed it"):
        recalibrate(asked, slowly)
    assert roles(models) == after


def test_a_verdict_decides_nothing_where_a_person_did_meanwhile(models: PublishedModels) -> None:
    served, net, calibrator = roles(models)
    looks: list[str] = []

    def slowly(step: Any, *arguments: Any) -> Any:
        looks.append(step.__name__)
        if looks.count("fetch_labels") == 2:  # the verdict is there, and the evidence that it ends is read
            models.promote("tiny", str(net))
        return step(*arguments)

    outcome = judge(request(models, slot="recalibrated"), slowly)
    assert outcome.status == "nothing" and "somebody else decided" in outcome.words
    assert roles(models) == [net, None, None] and served != net != calibrator


@pytest.mark.parametrize(("truth", "verb"), [(TRUE, "answers now"), (SERVED, "was withdrawn")])
def test_a_decided_net_makes_place_for_the_one_that_waits_and_says_so(
    models: PublishedModels, truth: float, verb: str
) -> None:
    _, net, _ = roles(models)
    waiting = models.publish(write_bundle(models.path.parent / "next", seed=5), "shadow").name
    words = judge(request(models, truth=truth, slot="shadow", promote_net="when-better")).words
    assert f"tiny/{net} {verb}." in words and words.endswith(f" tiny/{waiting}, which waited, is the shadow now.")
    assert models.version_of("tiny", "shadow") == waiting
