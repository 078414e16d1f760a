"""Claims of the papers: their published numbers, and verdicts on nets of known calibration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.training import paper_claims
from benchmarks.training.paper_claims import CLAIMS, Claim
from pipeline.config import load
from pipeline.studies.runs import LOGITS, RUN, Place, Run
from tests.conftest import ROOT
from trueodds import logits
from trueodds.files import write_json


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.paper} {claim.method} {claim.than}")
def test_a_claim_is_printed_in_its_paper(claim: Claim) -> None:
    ours, theirs = claim.published()
    assert 0 < ours < theirs, "the paper says that the method is better calibrated"


def test_a_claim_without_one_published_row_is_an_error() -> None:
    with pytest.raises(LookupError, match="gamma-net/table1: 0 rows"):
        Claim("gamma-net/table1", "fl1", "ce", {"dataset": "svhn"}).published()


def place(folder: Path, method: str, seed: int, factor: float) -> Place:
    """Return a finished run whose logits are `factor` times those of a calibrated net."""
    rng = np.random.default_rng(seed)
    z_NC = rng.normal(0, 2, (3000, 5))
    labels_N = (z_NC + rng.gumbel(size=z_NC.shape)).argmax(axis=1)
    of = Place(
        Run({"method": method, "seed": seed}, {"method": method, "seed": seed}, load(ROOT / "params.yaml", {})),
        f"{method}{seed}",
        folder / f"{method}{seed}",
    )
    of.folder.mkdir(parents=True)
    part = logits.Logits((factor * z_NC).astype(np.float32), labels_N)
    logits.write(of.folder / LOGITS, {"val": part, "test": part})
    write_json(of.folder / RUN, {"seconds": 1.0, "work": None, "commit": None})
    return of


def runs(folder: Path, seeds: int, **factors: float) -> dict[str, dict[int, Place]]:
    every = [place(folder, method, seed, factor) for method, factor in factors.items() for seed in range(seeds)]
    return paper_claims.by_method(every)


BETTER = Claim("gamma-net/table1", "fl1", "ce")


def test_verdicts_on_nets_of_known_calibration(tmp_path: Path) -> None:
    (row,) = paper_claims.judged(runs(tmp_path / "a", 3, ce=2.0, fl1=1.0), [BETTER])
    assert (row["verdict"], row["seeds"]) == ("appears", 3) and row["squared_calibration_error"]["upper"] < 0
    (row,) = paper_claims.judged(runs(tmp_path / "b", 3, ce=1.0, fl1=2.0), [BETTER])
    assert row["verdict"] == "the opposite appears"
    (row,) = paper_claims.judged(runs(tmp_path / "c", 3, ce=1.0, fl1=1.001), [BETTER])
    assert row["verdict"] == "not told from chance"
    (row,) = paper_claims.judged(runs(tmp_path / "d", 1, ce=2.0, fl1=1.0), [BETTER])
    assert row["verdict"] == "appears in two nets", "one seed compares nets, not methods"
    (row,) = paper_claims.judged(runs(tmp_path / "e", 1, ce=2.0), [BETTER])
    assert row["verdict"] == "not run yet" and row["seeds"] == 0
    assert "| not run yet |" in paper_claims.markdown([row], {})[-1]


def test_the_survey_is_measured_twice_and_has_no_verdict() -> None:
    rows = [
        {"method": "ce", "calibrator": "identity", "ece": 0.10, "ece_estimate": 0.08},
        {"method": "flsd53", "calibrator": "identity", "ece": 0.06, "ece_estimate": 0.02},
        {"method": "flsd53", "calibrator": "temperature", "ece": 0.01, "ece_estimate": 0.0},
    ]
    found = paper_claims.survey(rows)
    assert found is not None and found["reductions"] == {"ece": pytest.approx(0.4), "ece_estimate": pytest.approx(0.75)}
    assert "verdict" not in found and paper_claims.survey(rows[:1]) is None
