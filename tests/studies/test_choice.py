"""Rules of choice, and sequential tuning by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pipeline.studies import setting_choice
from pipeline.studies.format import StudyError, parse
from pipeline.studies.measuring import Row, settings_of
from pipeline.studies.reporting import cells, chosen_lines, markdown
from pipeline.studies.runs import Run, expand
from pipeline.studies.setting_choice import choose
from tests.conftest import ROOT

PARAMS = ROOT / "params.yaml"
STUDY: dict[str, Any] = {"title": "small", "vary": {"method": ["ce", "fl1", "fl2", "fl3"], "seed": [0, 1]}}
RULE: dict[str, Any] = {"least": "val_ece", "within": 0.01}
VALUES = {"ce": (0.80, 0.09, 0.6), "fl1": (0.796, 0.05, 0.7), "fl2": (0.795, 0.04, 0.8), "fl3": (0.7, 0.01, 0.9)}
"""By method validation accuracy, ECE and NLL, the means of two seeds."""


def table(apart: float = 0.002) -> list[dict[str, Any]]:
    return [
        {"method": method, "seed": seed, "calibrator": "identity", "val_accuracy": accuracy + sign * apart,
         "val_ece": ece - sign * apart, "val_nll": nll, "ece": 2 * ece, "error_rate": 1 - accuracy, "nll": nll}
        for method, (accuracy, ece, nll) in VALUES.items() for seed, sign in enumerate((1, -1))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "methods"),
    [
        (RULE, ["fl2"]),
        ({"least": "val_ece"}, ["fl3"]),
        ({"least": "val_ece", "within": 0.0045}, ["fl1"]),
        ({"least": "val_nll"}, ["ce"]),
        ({"pareto": ["val_ece", "val_nll"]}, ["ce", "fl1", "fl2", "fl3"]),
        ({"pareto": ["val_ece", "val_nll"], "within": 0.01}, ["ce", "fl1", "fl2"]),
    ],
)
def test_a_rule_takes_settings_by_the_means_of_their_seeds(rule: dict[str, Any], methods: list[str]) -> None:
    study = parse({**STUDY, "choose": rule})
    assert study.choose
    (chosen,) = choose(study.choose, settings_of(study, table()))
    assert [one.name for one in chosen.settings] == [f"method={method}" for method in methods]
    said = chosen_lines(study, [chosen])
    assert len(said) == 1 + len(methods) and "which the choice did not use: error_rate" in said[1]


def test_a_front_has_none_that_another_beats() -> None:
    study = parse({**STUDY, "choose": {"pareto": ["val_ece", "val_nll"]}})
    rows = [row | ({"val_nll": 0.95} if row["method"] == "fl2" else {}) for row in table()]
    assert study.choose
    (chosen,) = choose(study.choose, settings_of(study, rows))
    assert [one.name for one in chosen.settings] == ["method=ce", "method=fl1", "method=fl3"]


def test_each_of_several_data_sets_has_its_choice_and_what_failed_has_none() -> None:
    study = parse({
        "title": "two", "vary": {"dataset": ["digits", "wine"], "method": ["ce", "fl3"]},
        "choose": {"least": "val_ece", "each": ["dataset"]},
    })  # fmt: skip
    assert study.choose
    rows = [
        {"dataset": data, "method": m, "calibrator": "identity", "val_accuracy": 0.8, "val_ece": ece}
        for data, m, ece in (("digits", "ce", 0.1), ("digits", "fl3", 0.2), ("wine", "ce", None), ("wine", "fl3", 0.3))
    ]
    chosen = choose(study.choose, settings_of(study, rows))
    assert [one.settings[0].name for one in chosen] == ["dataset=digits method=ce", "dataset=wine method=fl3"]
    assert "of 2 settings" in chosen[0].words
    assert chosen[0].words.endswith(
        ". val_ece is a plug-in estimate: this is no evidence that other settings are calibrated worse"
    )
    assert choose(study.choose, settings_of(study, rows[2:3])) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"choose": {"least": "ece"}}, "ece is a column of the test rows; choose by val_ece instead"),
        ({"choose": {"least": "val_ecc"}}, r"unknown column 'val_ecc'; .* Did you mean 'val_ece'\?"),
        ({"choose": {"within": 0.01}}, "give either least or pareto"),
        ({"choose": {"pareto": ["val_ece"]}}, "pareto has 1 columns; allowed are two or three"),
        ({"choose": {**RULE, "calibrator": "vector"}}, "choose: unknown calibrator 'vector'"),
        ({"choose": {**RULE, "each": ["metod"]}}, r"unknown parameter 'metod'; .* Did you mean 'method'\?"),
        ({"tune": {"steps": [{"leaf": "epochs", "values": [1]}]}}, "tune needs a rule; add choose"),
        ({"choose": RULE, "tune": {"steps": [{"leaf": "epocs", "values": [1]}]}}, "unknown parameter 'epocs'"),
        ({"published": {"of": "difference", "rows": []}}, "published differences need a baseline"),
    ],
)
def test_rules_that_cannot_be_meant(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        parse({**STUDY, **changes})


TUNED: dict[str, Any] = {
    "title": "tuned", "vary": {"method": ["ce", "avuc"], "seed": [0, 1]}, "choose": {"least": "val_ece"},
    "tune": {"seed": 7, "steps": [
        {"leaf": "method_options.kappa", "values": [0.2, 0.4], "where": {"method": ["avuc"]}},
        {"leaf": "weight_decay", "values": [0.1, 0.01, 0.001]},
    ]},
}  # fmt: skip


def test_tuning_keeps_each_choice_while_it_makes_the_next() -> None:
    study, tried, said = parse(TUNED), [], list[str]()
    runs = expand(study, PARAMS)

    def measure(batch: Sequence[Run]) -> list[Row | None]:
        rows: list[Row | None] = []
        for run in batch:
            options, decay = run.params.training.method_options, run.params.training.weight_decay
            kappa = float(str(options.get("kappa", 0.4)))
            tried.append((run.params.training.method, run.params.training.seed, kappa, decay))
            ece = abs(kappa - 0.2) + abs((decay or 0.01) - 0.01) / 10
            rows.append({"calibrator": "identity", "val_accuracy": 0.5, "val_ece": ece} if decay != 0.1 else None)
        return rows

    found = setting_choice.tune(study, runs, PARAMS, measure, said.append)
    assert tried == [
        ("avuc", 7, 0.2, None), ("avuc", 7, 0.4, None),
        ("ce", 7, 0.4, 0.1), ("ce", 7, 0.4, 0.01), ("ce", 7, 0.4, 0.001),
        ("avuc", 7, 0.2, 0.1), ("avuc", 7, 0.2, 0.01), ("avuc", 7, 0.2, 0.001),
    ]  # fmt: skip
    assert len(setting_choice.trials(study, runs, PARAMS)) == len(tried)
    assert [(run.name, run.params.training.seed) for run in found] == [
        ("method=ce seed=0 weight_decay=0.01", 0), ("method=ce seed=1 weight_decay=0.01", 1),
        ("method=avuc seed=0 method_options.kappa=0.2 weight_decay=0.01", 0),
        ("method=avuc seed=1 method_options.kappa=0.2 weight_decay=0.01", 1),
    ]  # fmt: skip
    assert found[3].params.training.method_options == {"kappa": 0.2} and found[0].axis_leaves == runs[0].axis_leaves
    assert (
        said[0]
        == "tuned method=avuc: method_options.kappa = 0.2 (val_ece, a plug-in estimate, 0.2: 0.0000, 0.4: 0.2000)"
    )
    assert "0.1: failed" in said[1]
    with pytest.raises(StudyError, match=r"method=avuc: no run with method_options.kappa = 0.2, 0.4 could be measured"):
        setting_choice.tune(study, runs, PARAMS, lambda batch: [None] * len(batch), said.append)
    assert setting_choice.tune(parse(STUDY), runs, PARAMS, measure, said.append) == runs


def test_published_differences_and_spreads() -> None:
    published = {"of": "difference", "plain": ["nll"], "rows": [
        {"method": "fl3", "ece": -6.0, "ece_deviation": 0.5, "nll": 0.1, "nll_error": 0.02},
    ]}  # fmt: skip
    study = parse({**STUDY, "report": ["ece", "nll"], "baseline": {"method": "ce"}, "published": published})
    (line,) = [line for line in markdown(cells(study, table())) if "published" in line]
    assert "| -6.00 ± 0.50 more than the baseline (-10.00) |" in line
    assert "| 0.1000 ± 0.0200 (standard error) more than the baseline (+0.2000) |" in line
