"""The model folder: what is published there, who answers, who did before, and the way back."""

from __future__ import annotations

import json
import os
import resource
import shutil
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, partialmethod
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import recalibrate
from pipeline.__main__ import main
from tests.test_bundle import make_bundle
from trueodds.bundle import AuditLogError, Bundle, BundleError, PublishedModels, open_models, user
from trueodds.bundle.audit_log import Change, previous
from trueodds.client import Client


@pytest.fixture
def models(tmp_path: Path) -> PublishedModels:
    return open_models(tmp_path / "models")


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle")


def published(
    models: PublishedModels,
    method: str,
    *,
    role: Literal["default", "shadow"] | None = "default",
    displace: bool = False,
) -> str:
    folder = make_bundle(models.path.parent / method, lambda card: card.update(method=method))
    return models.publish(folder, role, displace=displace).name


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file's bytes and time of change."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_publish(models: PublishedModels, good: Path) -> None:
    target = models.publish(good)
    assert target == models.path / "tiny" / Bundle.load(good).version
    assert models.default() == target
    assert sorted(path.name for path in target.iterdir()) == [
        "MODEL_CARD.md",
        "calibrator.json",
        "card.json",
        "model.onnx",
    ]
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    assert Bundle.load(target).card == Bundle.load(good).card


def test_publishing_again_changes_nothing(models: PublishedModels, good: Path, tmp_path: Path) -> None:
    first = models.publish(good)
    before = tree(models.path)
    assert models.publish(good, None) == first
    assert models.publish(first, None) == first  # from the published folder itself
    assert tree(models.path) == before
    models.publish(good)
    assert {name: content for name, (content, _) in tree(models.path).items()} == {k: v[0] for k, v in before.items()}


def test_default_is_kept_or_moved(models: PublishedModels, good: Path, tmp_path: Path) -> None:
    first = models.publish(good)
    other = make_bundle(tmp_path / "other", lambda card: card.update(method="focal"))
    second = models.publish(other, None)
    assert second != first
    assert models.default() == first
    models.publish(other)
    assert models.default() == second


def test_another_models_default_is_never_taken(models: PublishedModels, good: Path, tmp_path: Path) -> None:
    first = models.publish(good, "shadow")
    assert models.default() == first, "a model's first version answers, and so does the first model"
    other = models.publish(make_bundle(tmp_path / "other", lambda card: card.update(name="other")))
    assert models.default() == first and models.version_of("other", "default") == other.name
    newer = make_bundle(tmp_path / "newer", lambda card: card.update(method="focal"))
    second = models.publish(newer, "shadow")
    assert models.version_of("tiny", "default") == first.name and models.version_of("tiny", "shadow") == second.name
    assert "?model=other. Calls that name no model are answered by tiny" in models.standing("other", other.name)
    models.publish(other, default_model=True)
    assert models.default() == other
    models.publish(newer)
    assert models.default() == other and models.version_of("tiny", "default") == second.name
    assert [(c.action, c.before, c.after) for c in models.changes()] == [
        ("default", None, "tiny"),
        ("default", "tiny", "other"),
    ]
    assert models.roll_back_default() == "tiny"
    assert models.default() == second, "by the version that answers for it now"
    with pytest.raises(AuditLogError, match="the log knows no model that answered"):
        models.roll_back_default()


def test_a_shadow_under_judgement_is_not_displaced_by_what_is_published(models: PublishedModels) -> None:
    """Four training runs in an hour: the first is judged on, the last waits, and takes the place when it is free."""
    served, first, *later = (published(models, method, role="shadow") for method in "abcde")
    since_ms = models.since_ms("tiny", "shadow")
    assert models.version_of("tiny", "default") == served and models.version_of("tiny", "shadow") == first
    assert models.version_of("tiny", "waiting") == later[-1]
    assert models.since_ms("tiny", "shadow") == since_ms > 0
    assert f"waits behind {first}" in models.standing("tiny", later[-1])
    assert "has no role" in models.standing("tiny", later[0])
    lines = [(c.action, c.before, c.after) for c in models.changes("tiny")]
    assert lines[2:] == [("waiting", b, a) for b, a in pairwise([None, *later])]
    models.withdraw("tiny", why="worse: 9 labels")
    assert [models.version_of("tiny", role) for role in ("shadow", "waiting")] == [later[-1], None]
    assert [(c.action, c.before, c.after, c.why) for c in models.changes("tiny")[5:]] == [
        ("shadow", first, None, "worse: 9 labels"),
        ("shadow", None, later[-1], f"it waited behind {first}"),
        ("waiting", later[-1], None, "it is the shadow now"),
    ]
    assert published(models, "b", role="shadow", displace=True) == first
    assert models.version_of("tiny", "shadow") == first and models.version_of("tiny", "waiting") is None
    assert (change := models.changes("tiny")[-1]).before == later[-1] and change.after == first
    published(models, "e", role="shadow")
    models.promote("tiny", first)
    assert [models.version_of("tiny", role) for role in ("default", "shadow", "waiting")] == [first, later[-1], None]


def test_what_answers_moves_the_time_from_which_answers_count(models: PublishedModels) -> None:
    served, net, calibrator, other = (published(models, method, role=None) for method in "abcd")
    models.publish(models.version_folder("tiny", served))
    models.shadow("tiny", net)
    models.shadow("tiny", calibrator, slot="recalibrated", since_ms=2**52)
    before = models.since_ms("tiny", "shadow")
    assert models.since_ms("tiny", "recalibrated") == 2**52
    time.sleep(0.01)
    models.promote("tiny", calibrator)
    assert models.version_of("tiny", "shadow") == net and models.version_of("tiny", "recalibrated") is None
    assert models.since_ms("tiny", "shadow") > before, "what answers now was chosen by the labels until now"
    models.shadow("tiny", other, slot="recalibrated")
    models.promote("tiny", net)
    change = models.changes("tiny")[-1]
    assert (change.action, change.before, change.after) == ("recalibrated", other, None)
    assert change.why == f"{net} answers now; its calibrator was fitted beside {calibrator}"


def test_publishing_over_a_damaged_folder(models: PublishedModels, good: Path) -> None:
    target = models.publish(good)
    (target / "model.onnx").write_bytes(b"damaged")
    with pytest.raises(BundleError, match="altered or damaged"):
        models.publish(good)


def test_many_publishers_at_once(models: PublishedModels, good: Path, tmp_path: Path) -> None:
    for _ in range(5):
        with ThreadPoolExecutor(8) as pool:
            targets = {future.result() for future in [pool.submit(models.publish, good) for _ in range(16)]}
        assert len(targets) == 1
        assert models.default() == targets.pop()
        assert sorted(path.name for path in models.path.iterdir()) == [".id", "default", "history.jsonl", "tiny"]
        names = sorted(path.name for path in (models.path / "tiny").iterdir())
        assert len(names) == 4 and {".publishing", "default", "history.jsonl"} < set(names), (
            "what was written aside is left over"
        )
        assert len((models.path / "tiny" / "history.jsonl").read_text().splitlines()) == 1
        assert len((models.path / "history.jsonl").read_text().splitlines()) == 1
        (models.path / "history.jsonl").unlink()
        (models.path / "default").unlink()
        for path in (models.path / "tiny").iterdir():
            path.rename(tmp_path / f"away-{len(list(tmp_path.iterdir()))}")


def roles_and_logs(folder: Path) -> dict[str, bytes]:
    """The files that are in no bundle."""
    files = [path for path in folder.rglob("*") if path.is_file() and len(path.relative_to(folder).parts) < 3]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_publication_without_space_changes_nothing(models: PublishedModels, tmp_path: Path) -> None:
    """Wherever it ends: no file may become longer than the limit."""
    published(models, "a")
    b = make_bundle(tmp_path / "b", lambda card: card.update(method="b"))
    models.publish(b, "shadow")  # so that it changes three roles and two logs when it takes over
    (models.path / "default").unlink()
    log, unlimited = len(roles_and_logs(models.path)["tiny/history.jsonl"]), resource.getrlimit(resource.RLIMIT_FSIZE)
    other_log = models.path / "history.jsonl"
    line = other_log.read_bytes()
    other_log.write_bytes(line * (log // len(line) + 3))  # longer than tiny's, so that it is full later, too
    other = make_bundle(tmp_path / "other", lambda card: card.update(name="other"))
    before = roles_and_logs(models.path)
    for limit, bundle in [(0, b), (13, b), (log, b), (log + 10, b), (log + 200, b), (2 * log, b), (5, other)]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, unlimited[1]))
        try:
            with pytest.raises(OSError, match=r"File too large: .*models"):
                models.publish(bundle)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        assert roles_and_logs(models.path) == before, limit
    assert models.names() == ["tiny"], "the folder of a model without versions is left over"
    version = models.publish(b).name
    assert [change.after for change in models.changes("tiny")][-2:] == [version, None]
    assert models.version_of("tiny", "default") == models.default().name == version


def test_what_killed_publishers_leave(models: PublishedModels, good: Path) -> None:
    """A copy that is not whole, half a line of the log, a role without its line: the next one mends all of it."""
    first = models.publish(good, why="before")
    left_over = first.parent / ".publishing-dead"
    left_over.mkdir()
    (left_over / "model.onnx").write_bytes(b"half")
    log = first.parent / "history.jsonl"
    with log.open("ab") as file:
        file.write('{"when": "2026-01-01", "why": "\u00e4'.encode()[:-1])
    assert [change.why for change in models.changes("tiny")] == ["before"]
    second = published(models, "b", role=None)
    assert not left_over.exists()
    (first.parent / "default").write_text(second + "\n")  # and then it died
    models.publish(models.version_folder("tiny", second), why="again")
    assert [(c.before, c.after, c.why) for c in models.changes("tiny")] == [
        (None, first.name, "before"),
        (first.name, second, "again"),
    ]
    log.write_bytes(log.read_bytes()[:-1])  # an editor that ends no line
    assert models.roll_back("tiny") == first.name and len(models.changes("tiny")) == 3


@pytest.mark.full
def test_a_publisher_that_dies_at_any_step(models: PublishedModels, tmp_path: Path) -> None:
    """A shadow takes over, which is six small files; publishing again completes it, once, and leaves nothing aside."""
    published(models, "a")
    b = make_bundle(tmp_path / "b", lambda card: card.update(method="b"))
    version = models.publish(b, "shadow").name
    before, steps = tmp_path / "before", ("replace", "unlink", "open")
    shutil.copytree(models.path, before)
    for deadline in range(1, 100):
        shutil.rmtree(models.path)
        shutil.copytree(before, models.path)
        if (child := os.fork()) == 0:
            left = iter(range(deadline - 1, -1, -1))

            def counted(step: Callable[..., Any], *args: Any, **options: Any) -> Any:
                return step(*args, **options) if next(left) else os._exit(1)  # noqa: B023

            for step in steps:
                setattr(Path, step, partialmethod(partial(counted, getattr(Path, step))))
            models.publish(b)
            os._exit(0)
        is_whole = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        models.publish(b)
        assert models.version_of("tiny", "default") == models.default().name == version
        assert models.version_of("tiny", "shadow") is None
        answering = [change for change in models.changes("tiny") if change.action == "publish"]
        assert [change.after for change in answering][1:] == [version] and answering[1].before == answering[0].after
        assert not [path for path in models.path.rglob(".*") if path.suffix in (".new", ".before")]
        if is_whole:
            break
    assert deadline > 10


def test_a_broken_bundle_is_not_published(models: PublishedModels, good: Path) -> None:
    (good / "model.onnx").unlink()
    with pytest.raises(BundleError, match="is missing"):
        models.publish(good)
    assert not models.path.exists()


def test_the_name_default_is_taken(models: PublishedModels, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="the name 'default' is reserved"):
        models.publish(make_bundle(tmp_path / "b", lambda card: card.update(name="default")))


def test_no_default_yet(models: PublishedModels) -> None:
    with pytest.raises(BundleError, match=r"no model yet: .*Publish one: trueodds publish"):
        models.default()


@pytest.mark.parametrize("named", ["..", "../x", "x/..", "/etc", "/", "", "tiny", "tiny/a/b", "./tiny", "a/../tiny/v",
                                   "tiny/gone", ".tiny/v", "tiny/.aside"])  # fmt: skip
def test_default_never_leads_out(models: PublishedModels, tmp_path: Path, named: str) -> None:
    for folder in ("tiny/v", "tiny/a/b", "tiny/.aside", ".tiny/v", "a"):
        (models.path / folder).mkdir(parents=True)
    (tmp_path / "x").mkdir()
    (models.path / "default").write_text(named + "\n")
    with pytest.raises(BundleError, match="which is not a folder <name>/<version> in"):
        models.default()
    (models.path / "default").write_text("tiny/v\n")
    assert models.default() == models.path / "tiny/v"


def test_default_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "default").write_bytes(b"\xff\xfe")
    with pytest.raises(BundleError, match="which is not a folder"):
        open_models(tmp_path).default()


def test_every_change_is_a_line_and_the_way_back_is_an_undo(models: PublishedModels) -> None:
    a, b, c = (published(models, method, role="default" if method == "a" else None) for method in "abc")
    models.shadow("tiny", b, why="look", who="ann", since_ms=5)
    models.promote("tiny", b, why="better", who="ann")
    assert models.version_of("tiny", "shadow") is None, "who answers is no shadow"
    models.promote("tiny", b)
    models.promote("tiny", c)
    lines = [(x.action, x.before, x.after, x.why, x.since_ms) for x in models.changes("tiny")]
    assert lines[:4] == [
        ("publish", None, a, "published", None),
        ("shadow", None, b, "look", 5),
        ("promote", a, b, "better", None),
        ("shadow", b, None, "it answers now", None),
    ]
    assert len(lines) == 5, "promoting what answers is no change"
    line = json.loads((models.path / "tiny" / "history.jsonl").read_text().splitlines()[2])
    assert list(line) == ["when", "what", "from", "to", "why", "who"] and line["what"] == "promote"
    assert (line["from"], line["to"], line["who"]) == (a, b, "ann") and line["when"].endswith("+00:00")
    assert [models.roll_back("tiny", why="worse") for _ in "12"] == [b, a]
    assert models.default().name == a == models.version_of("tiny", "default")
    with pytest.raises(AuditLogError, match=f"the log knows no version that answered for tiny before {a}"):
        models.roll_back("tiny")
    models.promote("tiny", c)
    assert models.roll_back("tiny") == a
    assert models.contents().models["tiny"].versions == {a, b, c}
    assert not models.contents().problems


@given(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=12))
def test_the_way_back_is_a_stack(moves: list[str | None]) -> None:
    stack = ["start"]
    changes: list[Change] = []
    for version in moves:
        before = stack[-1]
        if version is None and len(stack) > 1:
            stack.pop()
            assert previous(changes, before) == stack[-1]
            changes.append(Change("rollback", before, stack[-1], "", "", ""))
        elif version is not None and version != before:
            stack.append(version)
            changes.append(Change("promote", before, version, "", "", ""))
    assert previous(changes, stack[-1]) == (stack[-2] if len(stack) > 1 else None)


def test_a_default_written_by_hand_is_not_in_the_way(models: PublishedModels) -> None:
    a, b, c = (published(models, method, role=None if method == "c" else "default") for method in "abc")
    (models.path / "tiny" / "default").write_text(c + "\n")
    assert models.roll_back("tiny") == b
    (models.path / "tiny" / "shadow").write_bytes(b"\xff")
    assert models.version_of("tiny", "shadow") is None
    assert models.roll_back("tiny") == a


@pytest.mark.parametrize("line", ["{", "[]", '{"what": "promote"}', '{"what": "x", "from": null, "to": "a", "why": "", '
                                  '"who": "", "when": ""}', '{"from": 1, "to": 2, "more": 3}'])  # fmt: skip
def test_a_damaged_history_is_named_by_its_line(models: PublishedModels, line: str) -> None:
    published(models, "a")
    with (models.path / "tiny" / "history.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(AuditLogError, match=r"history.jsonl, line 2 is not a change .*; repair the line"):
        models.roll_back("tiny")


@pytest.mark.parametrize(
    "mark",
    ["\n", "\t", "\0", "\x1b", "\x7f", "\x85", "\u061c", "\u200e", "\u2028", "\u202a", "\u202e", "\u2069", "\udcff"],
    ids=ascii,
)
def test_reasons_and_names_are_plain_lines(models: PublishedModels, mark: str) -> None:
    """Nothing is changed by a refused one; a history that holds one of earlier times is read."""
    a, b = published(models, "a"), published(models, "b", role=None)
    before = (models.path / "tiny" / "history.jsonl").read_bytes()
    calls: list[Callable[..., object]] = [
        partial(models.promote, "tiny", b),
        partial(models.roll_back, "tiny"),
        partial(models.shadow, "tiny", b),
        partial(models.withdraw, "tiny"),
        partial(recalibrate.Recalibration, Client.from_environment(), models),
    ]
    for name, call in product(("why", "who"), calls):
        with pytest.raises(AuditLogError, match=rf"{name} holds U\+{ord(mark):04X} \(.*\) as character 3; allowed is"):
            call(**{name: f"so{mark}"})
    assert main(["promote", "tiny", b, "--why", f"so{mark}", "--models", str(models.path)]) == 1
    assert models.version_of("tiny", "default") == a and models.version_of("tiny", "shadow") is None
    assert (models.path / "tiny" / "history.jsonl").read_bytes() == before
    if mark not in ("\udcff", "\n"):
        old = Change("promote", a, b, f"so{mark}it was", "me", "2026-01-01T00:00:00.000+00:00")
        (models.path / "tiny" / "history.jsonl").write_bytes(before + old.line().encode() + b"\n")
        assert models.changes("tiny")[-1].why == f"so{mark}it was"


def test_a_user_whose_name_is_no_plain_line(models: PublishedModels, monkeypatch: pytest.MonkeyPatch) -> None:
    b = published(models, "a") and published(models, "b", role=None)
    monkeypatch.setenv("LOGNAME", "me\x1b[2J")
    with pytest.raises(AuditLogError, match=r"who holds U\+001B"):
        models.promote("tiny", b)


def test_many_writers_leave_whole_lines(models: PublishedModels) -> None:
    versions = [published(models, method) for method in "abc"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda k: models.promote("tiny", versions[k % 3]), range(60)))
    changes = models.changes("tiny")
    assert all(x.before == y.after for y, x in pairwise(changes))
    assert changes[-1].after == models.version_of("tiny", "default")


def test_a_version_that_is_gone(models: PublishedModels) -> None:
    a, _ = published(models, "a"), published(models, "b")
    (models.path / "tiny" / a).rename(models.path / "away")
    with pytest.raises(BundleError, match="there is no folder"):
        models.roll_back("tiny")


def test_the_commands(models: PublishedModels, capsys: pytest.CaptureFixture[str]) -> None:
    def typed(*words: str) -> tuple[int, str]:
        status = main([*words, "--models", str(models.path)])
        shown = capsys.readouterr()
        return status, shown.out + shown.err

    assert typed("versions") == (1, f"error: there is no model in {models.path}; run: trueodds publish\n")
    a, b = published(models, "a"), published(models, "b", role=None)
    assert typed("shadow", "tiny", b) == (0, f"tiny/{b} is the shadow now\n")
    status, text = typed("shadow", "tiny", "none")
    assert status == 0 and text.startswith(f"tiny has no shadow now (ends the evidence about {b}: unknown (no service")
    assert models.changes("tiny")[-1].why.startswith(f"ends the evidence about {b}: unknown")
    assert typed("promote", "tiny", b, "--why", "asked for") == (
        0,
        f"tiny/{b} answers now: calls with ?model=tiny, and calls that name no model.\n",
    )
    status, text = typed("versions", "tiny")
    assert status == 0 and f"  {b}  served       temperature, b" in text and f"{a} -> {b}" in text
    assert text.endswith(": asked for\n") and f"  {a}               temperature, a" in text
    assert "tiny, the model for calls that name none\n" in text
    models.publish(make_bundle(models.path.parent / "o", lambda card: card.update(name="other")))
    assert typed("default") == (0, f"tiny/{b} serves calls that name no model\n")
    other = models.version_of("other", "default")
    assert typed("default", "other", "--why", "new") == (0, f"other/{other} serves calls that name no model\n")
    assert f"default      tiny -> other  {user()}: new\n" in typed("versions")[1]
    assert typed("default", "--rollback") == (0, f"tiny/{b} serves calls that name no model\n")
    assert typed("default", "nobody")[0] == 1
    assert typed("rollback", "tiny") == (0, f"tiny/{a} is served again\n")
    assert typed("rollback", "tiny")[0] == 1
    for words in (("promote", "tiny", "x"), ("promote", "tiny", "../tiny"), ("shadow", "tiny", "x"), ("rollback", "x")):
        status, text = typed(*words)
        assert status == 1 and text.startswith("error: there is no ")
    (models.path / "tiny" / b / "calibrator.json").write_text("{}")
    status, text = typed("promote", "tiny", b)
    assert status == 1 and "altered or damaged" in text
    assert "damaged: " in typed("versions")[1]
