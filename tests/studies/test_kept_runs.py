"""Kept runs: another machine takes them as done, with the same numbers. Runs of other settings are not taken."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.training import noisy_digits, studies
from pipeline.studies import duration, kept_runs, measuring, reporting, running, runs
from pipeline.studies import format as study_format
from pipeline.studies.format import Study, StudyError, parse
from pipeline.studies.kept_runs import SPLITS, KeptRuns, pack, unpack
from pipeline.studies.machine import processor
from pipeline.studies.runs import Place, expand
from pipeline.training.files import EPOCH_ROWS, EPOCHS
from tests.conftest import ROOT
from trueodds import logits
from trueodds.files import read_json, read_npz, write_json, write_npz
from trueodds.logits import Logits

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def study(**vary: list[Any]) -> Study:
    return parse({"title": "kept", "vary": vary or {"seed": [0, 1]}, "report": ["nll"]})


def make(_home: Path, place: Place) -> None:
    """Finish a run with random logits, which stand for what a net would give."""
    rng = np.random.default_rng(place.run.params.training.seed)
    z = rng.normal(0, 3, (2, 300, 10)).astype(np.float32)
    y = np.stack([(part / 2 + rng.gumbel(size=part.shape)).argmax(1) for part in z])
    place.folder.mkdir(parents=True)
    parts = {split: Logits(z[k], y[k]) for k, split in enumerate(("val", "test"))}
    logits.write(place.folder / runs.LOGITS, parts, ["a note"])
    (place.folder / EPOCHS).write_text("epoch,val_nll\n1,0.5\n", encoding="utf-8")
    write_npz(place.folder / EPOCH_ROWS, {"epochs": np.array([1])})
    settings = place.run.params.model_dump(mode="json")
    write_json(place.folder / runs.RUN, {"seconds": 2.0, "commit": COMMIT, "work": None, "settings": settings})


def row_nll(of: Logits) -> Any:
    """Return each row's log loss by its definition."""
    z_NC = of.logits_NC.astype(np.float64)
    return np.log(np.exp(z_NC).sum(1)) - z_NC[np.arange(len(z_NC)), of.labels_N]


def carry_out(home: Path, of: Study, kept: KeptRuns, made: list[str]) -> running.StudyOutcome:
    def counted(at: Path, place: Place) -> None:
        made.append(place.run.name)
        make(at, place)

    run_all = partial(running.run_all, make=counted, kept_runs=kept)
    return running.carry_out(of, ROOT / "params.yaml", home, lambda _: None, run_all, kept)


@pytest.fixture
def kept(workspace: Path) -> KeptRuns:
    return KeptRuns(workspace / "kept")


def places(kept: KeptRuns, home: Path, **vary: list[Any]) -> list[Place]:
    return kept.places(home, expand(study(**vary), ROOT / "params.yaml"))


def test_another_machine_runs_what_is_missing_and_reports_the_same(kept: KeptRuns, workspace: Path) -> None:
    made: list[str] = []
    first = carry_out(workspace, study(), kept, made)
    assert made == ["seed=0", "seed=1"]
    second = carry_out(workspace / "other", study(seed=[0, 1, 2]), KeptRuns(kept.folder), made)
    assert made == ["seed=0", "seed=1", "seed=2"] and all(place.is_done for place in second.places)
    for here, there in zip(first.places, second.places, strict=False):
        made_here = Place(here.run, here.key, workspace / runs.FOLDER / here.key)
        for kept_here, kept_there, exact in zip(here.logits(), there.logits(), made_here.logits(), strict=True):
            assert (kept_here.logits_NC == kept_there.logits_NC).all(), "both machines read the kept logits"
            assert (kept_here.labels_N == exact.labels_N).all() and (kept_there.labels_N == exact.labels_N).all()
            change_N = np.abs(row_nll(kept_here) - row_nll(exact))
            assert 0 < change_N.max() <= 2.0**-10
            assert (kept_here.logits_NC.argmax(1) == exact.logits_NC.argmax(1)).all()
    original = workspace / runs.FOLDER / first.places[0].key
    assert len(list(kept.folder.iterdir())) == 3
    assert logits.notes(second.places[0].folder / runs.LOGITS) == ["a note"]
    assert (second.places[0].folder / EPOCHS).read_text() == (original / EPOCHS).read_text()
    assert (first.places[0].folder / EPOCH_ROWS).is_file() and not (second.places[0].folder / EPOCH_ROWS).is_file()
    assert reporting.made_with(second.places) == [
        {"commit": COMMIT, "uncommitted": False, "processor": None, "other_code": False, "runs": 3}
    ]  # fmt: skip
    assert reporting.origins_words(reporting.made_with([])) == ""


def test_groups_of_rows_are_kept_and_read(kept: KeptRuns, workspace: Path) -> None:
    """A study measures a calibrator by group with the groups of the rows, on each machine."""
    (place,) = runs.places(workspace, expand(study(seed=[0]), ROOT / "params.yaml"))
    make(workspace, place)
    tags = np.array(["day", "night", None] * 100, dtype=object)
    parts = {split: Logits(of.logits_NC, of.labels_N, tags) for split, of in zip(SPLITS, place.logits(), strict=True)}
    logits.write(place.folder / runs.LOGITS, parts)
    assert kept.keep(place) is not None
    (taken,) = places(kept, workspace / "other", seed=[0])
    val, test = taken.logits()
    assert val.groups_N is not None and val.groups_N.tolist() == tags.tolist()
    fitted = measuring.fit_calibrator(val, "group_temperature spread=1")
    assert fitted.known_groups == ("day", "night")
    (row,) = measuring._measure_rows(taken, ["group_temperature spread=1"])
    p_NC = fitted(test.logits_NC, groups=tags)
    assert row["nll"] == pytest.approx(-np.log(p_NC[np.arange(300), test.labels_N]).mean())
    settings = runs._settings(place.run.params)
    assert "groups" not in settings["data"], "a run without groups keeps the key of its settings"


def test_runs_of_other_settings_are_not_taken(kept: KeptRuns, workspace: Path) -> None:
    carry_out(workspace, study(seed=[0]), kept, [])
    shutil.rmtree(workspace / runs.FOLDER)
    assert [place.is_done for place in places(kept, workspace, seed=[0, 1])] == [True, False]
    named = KeptRuns(kept.folder, (COMMIT[:8],))
    for other in ({"epochs": [1]}, {"method": ["fl3"]}, {"split_seed": [1]}, {"train_size": [100]}):
        assert not any(place.is_done for place in places(named, workspace, seed=[0], **other)), other


def test_runs_of_other_code_are_taken_by_their_commit_alone(
    kept: KeptRuns, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out(workspace, study(seed=[0]), kept, [])
    (before,) = places(kept, workspace, seed=[0])
    monkeypatch.setattr(runs, "code_hashes", lambda *_: {"pipeline/data/raw.py": "changed"})
    assert not places(kept, workspace, seed=[0])[0].is_done
    assert not places(KeptRuns(kept.folder, ("fedcba98",)), workspace, seed=[0])[0].is_done
    named = KeptRuns(kept.folder, (COMMIT[:8],))
    (taken,) = places(named, workspace, seed=[0])
    assert taken.is_done and taken.other_code and taken.key == before.key
    words = reporting.origins_words(reporting.made_with([taken]))
    assert words == f"Made with: 1 run by commit {COMMIT[:10]}, whose code differs from this version's (settings and " \
                    "data are equal)."  # fmt: skip
    assert named.keep(taken) is None, "it is kept under its own key"
    assert kept_runs.commits_in(kept.folder) == (COMMIT,)
    made: list[str] = []
    carry_out(workspace, study(seed=[0]), kept, made)
    assert made == ["seed=0"] and not places(named, workspace, seed=[0])[0].other_code, "the equal key comes first"
    monkeypatch.setattr(runs, "code_hashes", lambda *_: {"pipeline/data/raw.py": "changed again"})
    with pytest.raises(StudyError, match=r"npz in .* have the settings of seed=0; name fewer commits"):
        places(KeptRuns(kept.folder, (COMMIT[:8],)), workspace, seed=[0])


def test_files_that_are_renamed_or_damaged_are_refused(kept: KeptRuns, workspace: Path) -> None:
    carry_out(workspace, study(seed=[0]), kept, [])
    (place,) = runs.places(workspace, expand(study(seed=[1]), ROOT / "params.yaml"))
    (file,) = kept.folder.iterdir()
    renamed = file.rename(kept.folder / f"{place.key}.npz")
    with pytest.raises(StudyError, match=f"holds the run {file.stem}; name the file {file.stem}.npz"):
        places(kept, workspace, seed=[1])
    renamed.write_bytes(renamed.read_bytes()[:-100])
    with pytest.raises(StudyError, match=f"{place.key}.npz is damaged; restore the file, or remove it"):
        places(kept, workspace, seed=[1])


@pytest.mark.parametrize("name", ["val_logits", "record", "epochs", "key", "settings_key", "exponents", "val_notes"])
def test_files_of_other_programs_and_versions_are_refused(kept: KeptRuns, workspace: Path, name: str) -> None:
    carry_out(workspace, study(seed=[0]), kept, [])
    (file,) = kept.folder.iterdir()
    arrays = read_npz(file)
    record = json.loads(arrays["record"].tobytes())
    record.pop(name, None)
    arrays["record"] = np.frombuffer(json.dumps(record).encode(), np.uint8)
    arrays.pop(name, None)
    write_npz(file, arrays)
    for commits, seed in ((), 0), ((COMMIT[:8],), 1):  # by its key, and among all files
        with pytest.raises(StudyError, match=f"{file.name} is .*{name!r}; restore the file, or remove it"):
            places(KeptRuns(kept.folder, commits), workspace, seed=[seed])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("val_groups", np.zeros(3, int)),
        ("test_groups", np.array([7] * 300)),
        ("val_labels", np.zeros(0, int)),
        ("val_logits", np.zeros((4, 7), np.uint8)),
        ("record", np.frombuffer(b"[1", np.uint8)),
        ("record", np.frombuffer(b"3", np.uint8)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(kept: KeptRuns, workspace: Path, name: str, value: Any) -> None:
    (place,) = runs.places(workspace, expand(study(seed=[0]), ROOT / "params.yaml"))
    make(workspace, place)
    tags = np.array(["day", "night", None] * 100, dtype=object)
    parts = {split: Logits(of.logits_NC, of.labels_N, tags) for split, of in zip(SPLITS, place.logits(), strict=True)}
    logits.write(place.folder / runs.LOGITS, parts)
    file = kept.keep(place)
    assert file is not None
    write_npz(file, {**read_npz(file), name: value})
    with pytest.raises(StudyError, match=f"{file.name} is damaged: .*; restore the file, or remove it"):
        places(kept, workspace / "other", seed=[0])


def test_a_run_that_cannot_be_kept_stops_no_other(kept: KeptRuns, workspace: Path) -> None:
    def huge(home: Path, place: Place) -> None:
        make(home, place)
        if place.run.params.training.seed == 0:
            large = {
                split: Logits(1e7 * of.logits_NC, of.labels_N) for split, of in zip(SPLITS, place.logits(), strict=True)
            }
            logits.write(place.folder / runs.LOGITS, large)

    run_all = partial(running.run_all, make=huge, kept_runs=kept)
    done = running.carry_out(study(), ROOT / "params.yaml", workspace, print, run_all, kept)
    assert [place.is_done for place in done.places] == [True, True]
    assert len(list(kept.folder.iterdir())) == len(done.failures) == 1
    assert done.failures[0].startswith("seed=0 is finished here, but cannot be kept: the logits reach")


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(kept: KeptRuns, workspace: Path) -> None:
    (workspace / "file").touch()
    made: list[str] = []
    for folder in (workspace / "file", workspace / "file" / "kept"):
        with pytest.raises(StudyError, match=f"no run can be kept in {folder} .*; name a folder that you may write"):
            carry_out(workspace, study(), KeptRuns(folder), made)
    assert made == []


def test_a_folder_that_another_process_unpacks_meanwhile_stays(
    kept: KeptRuns, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process may already read the folder."""
    carry_out(workspace, study(seed=[0]), kept, [])
    shutil.rmtree(workspace / runs.FOLDER)
    others: list[tuple[Path, int]] = []

    def slow(path: Path, record: Any) -> None:
        if not others:
            others.append((Path(), 0))
            (place,) = places(kept, workspace, seed=[0])
            others[:] = [(place.folder, place.folder.stat().st_ino)]
        write_json(path, record)

    monkeypatch.setattr(kept_runs, "write_json", slow)
    (place,) = places(kept, workspace, seed=[0])
    assert [(place.folder, place.folder.stat().st_ino)] == others


def test_two_machines_may_keep_a_run_at_the_same_time(
    kept: KeptRuns, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place,) = runs.places(workspace, expand(study(seed=[0]), ROOT / "params.yaml"))
    make(workspace, place)
    original, calls = np.savez_compressed, list[bool]()

    def slow(*parts: Any, **arrays: Any) -> None:
        calls.append(True)
        if len(calls) == 1:
            assert kept.keep(place) is not None
        original(*parts, **arrays)

    monkeypatch.setattr(np, "savez_compressed", slow)
    kept.keep(place)
    assert len(calls) == 2 and [file.name for file in kept.folder.iterdir()] == [f"{place.key}.npz"]
    assert places(kept, workspace, seed=[0])[0].is_done


def test_uncommitted_code_belongs_to_no_commit(
    kept: KeptRuns, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_changed(home: Path, place: Place) -> None:
        make(home, place)
        write_json(place.folder / runs.RUN, {**place.record(), "uncommitted": True})

    run_all = partial(running.run_all, make=make_changed, kept_runs=kept)
    done = running.carry_out(study(seed=[0]), ROOT / "params.yaml", workspace, print, run_all, kept)
    words = f"Made with: 1 run by commit {COMMIT[:10]} with uncommitted changes."
    assert reporting.origins_words(reporting.made_with(done.places)) == words
    assert kept_runs.commits_in(kept.folder) == ()
    monkeypatch.setattr(runs, "code_hashes", lambda *_: {"pipeline/data/raw.py": "changed"})
    assert not places(KeptRuns(kept.folder, (COMMIT[:8],)), workspace, seed=[0])[0].is_done


def test_times_of_another_processor_are_not_those_of_this_machine(kept: KeptRuns, workspace: Path) -> None:
    def timed(home: Path, place: Place) -> None:
        make(home, place)
        work = duration.work_of(place.run.params, None)
        assert work is not None
        machine = {"processor": "another" if place.run.params.training.seed else processor()}
        write_json(place.folder / runs.RUN, {**place.record(), "work": asdict(work), "machine": machine})

    for seed, unknown in (1, 1), (0, 0):
        run_all = partial(running.run_all, make=timed, kept_runs=kept)
        running.carry_out(study(seed=[seed]), ROOT / "params.yaml", workspace, print, run_all, kept)
        shutil.rmtree(workspace / runs.FOLDER)
        assert running.estimate(workspace, places(kept, workspace, seed=[seed, 2])).unknown == unknown


def test_a_file_that_is_replaced_is_unpacked_again(kept: KeptRuns, workspace: Path) -> None:
    (place,) = carry_out(workspace, study(seed=[0]), kept, []).places
    (file,) = kept.folder.iterdir()
    file.unlink()
    record = {**read_json(workspace / runs.FOLDER / place.key / runs.RUN), "seconds": 9.0}
    write_json(workspace / runs.FOLDER / place.key / runs.RUN, record)
    kept.keep(runs.places(workspace, [place.run])[0])
    (again,) = places(kept, workspace, seed=[0])
    assert again.record()["seconds"] == 9.0 and place.record()["seconds"] == 2.0


@pytest.mark.full
def test_a_result_of_more_runs_stays_and_the_page_names_the_commit(kept: KeptRuns, workspace: Path) -> None:
    noisy_digits.prepare()
    of = study_format.read(str(studies.FILES / "noisy-digits.yaml"))
    made = runs.places(workspace, expand(of, ROOT / "params.yaml"))[:2]
    for place in made:
        make(workspace, place)
    studies.store(["noisy-digits"], out := workspace / "result.json", kept, studies.run_nothing)
    result = read_json(out)
    assert result["studies"]["noisy-digits"]["finished"] == len(made) == len(list(kept.folder.iterdir())) == 2
    assert f"Made with: 2 runs by commit {COMMIT[:10]}." in studies.markdown(result)
    (kept.folder / f"{made[0].key}.npz").unlink()
    shutil.rmtree(workspace / runs.FOLDER)
    studies.store(["noisy-digits"], out, kept, studies.run_nothing)
    assert read_json(out) == result, "one run does not replace two"


@pytest.mark.parametrize(("scale", "gap"), [(0.01, 0.1), (5.0, 1e-4), (3000.0, 0.01)])
def test_rounding_keeps_every_top_class(scale: float, gap: float) -> None:
    rng = np.random.default_rng(0)
    z_NC = (scale * rng.normal(0, 1, (500, 7))).astype(np.float32)
    z_NC[:, 1] = z_NC[:, 0] + np.float32(gap) * rng.normal(0, 1, 500).astype(np.float32)
    packed, exponent = pack(z_NC)
    back_NC = unpack(packed, exponent, 7)
    assert packed.shape == (4, 3500) and (back_NC.argmax(1) == z_NC.argmax(1)).all()
    assert np.abs(back_NC - z_NC).max() <= 2.0 ** -(exponent + 1) + np.spacing(np.abs(z_NC).max())
    coarser = np.rint(np.float64(z_NC) * 2.0 ** (exponent - 1))
    assert exponent == 10 or (coarser.argmax(1) != z_NC.argmax(1)).any(), "the step is the largest that keeps them"


def test_logits_that_cannot_be_rounded_are_refused() -> None:
    with pytest.raises(StudyError, match=r"the logits reach 1e\+10, and rounding"):
        pack(np.array([[1e10, 0.0]]))
    assert pack(np.zeros((0, 3), np.float32))[0].shape == (4, 0)


def test_dull_logits_are_kept() -> None:
    for seed in range(10):
        z_NC = (1e-4 * np.random.default_rng(seed).normal(0, 1, (4000, 20))).astype(np.float32)
        assert pack(z_NC)[1] > 20


def test_what_cannot_be_kept_is_refused_before_anything_runs(kept: KeptRuns, workspace: Path) -> None:
    of = parse({"title": "shifted", "hold": {"shift": "cifar-c", "dataset": "cifar10"}, "vary": {"seed": [0]}})
    with pytest.raises(StudyError, match="seed=0 has `shift`, and the logits of corrupted rows are too many to keep"):
        carry_out(workspace, of, kept, [])
    with pytest.raises(StudyError, match="name their folder too"):
        kept_runs.of_arguments(None, ["0123456"])
    with pytest.raises(StudyError, match="'HEAD' is not a commit; give 7 to 40 of its hexadecimal digits"):
        kept_runs.of_arguments("kept", ["HEAD"])
    assert kept_runs.of_arguments(None, []) is None
