"""Every public name that takes arrays refuses masked and missing values, and -1 as a label, before it computes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import trueodds
from trueodds import calibrators, metrics
from trueodds.client.instances import instances_of
from trueodds.client.observations import observation_rows
from trueodds.errors import ConfigError
from trueodds.metrics import CalibrationSums
from trueodds.sums.ordered import at_least

N = 60
RNG = np.random.default_rng(5)
LOGITS = RNG.normal(0, 2, (N, 2))
P = metrics.softmax(LOGITS)
Y = np.arange(N) % 2
TOP, RIGHT = P.max(axis=1), P.argmax(axis=1) == Y
VOTES = RNG.integers(1, 5, (N, 2))
SUMS = CalibrationSums.from_top(TOP, RIGHT)
COUNTS = SUMS.cells[0] * 3
SCORES = np.stack([1 - (s := (np.arange(400) % 2 + RNG.uniform(0, 2, 400)) / 3), s], axis=1)
"""Scores that tell two classes apart, for the class shares of a prior shift."""

Array = np.ndarray[Any, Any]
OF_JUDGE: dict[str, Array] = {
    "human_N": np.where(np.arange(N) % 2, RIGHT * 1.0, 0.0),
    "judge_N": RIGHT * 1.0,
    "propensity_N": np.full(N, 0.5),
}
OF_ROWS: dict[str, Array] = {"probabilities": P, "labels": Y}
BY_NAME: dict[str, Array] = {
    "predictions": P,
    "probabilities_NC": P,
    "probabilities": P,
    "logits_NC": LOGITS,
    "labels_N": Y,
    "labels": Y,
    "confidence_N": TOP,
    "confidence": TOP,
    "correct_N": RIGHT,
    "p_N": P[:, 1],
    "positive_N": Y == 1,
    "nll_N": TOP,
    "brier_N": TOP,
    "human_NC": VOTES,
    "counts_NC": VOTES,
    "votes": VOTES.sum(axis=1),
    "answers_C": COUNTS,
    "counts_K": COUNTS,
    "reference_K": COUNTS,
    "probability_N": np.full(N, 0.5),
    "propensity_N": np.full(N, 0.5),
    "right": np.arange(3.0),
    "count": np.arange(3.0) + 3,
    "gain_N": RNG.uniform(-1, 1, N),
    "weight_N": np.full(N, 0.5),
    "wrong_N": ~RIGHT,
    "risk_N": np.full(N, 0.2),
    "at_least_NK": at_least(P),
    "log_e_G": RNG.normal(size=4),
    "weight_G": np.full(4, 0.25),
    "reached_NK": Y[:, None] >= np.arange(1, P.shape[1]),
}
"""Values of the arguments that are arrays, by their names."""
OF_P: dict[str, Array] = {"predictions": P[:, 1], "labels_N": Y}
OTHERS: dict[str, dict[str, Array]] = {
    "thresholds": OF_P,
    "decision_cost": OF_P,
    "CalibrationRows": {"probabilities": P[:, 1]},
    "judge_errors": {"human_L": Y, "judge_L": Y, "propensity_L": np.full(N, 0.5)},
    "powered_mean": OF_JUDGE,
    "powered_gap": OF_JUDGE | {"confidence_N": TOP},
    "prior_shift": {"probabilities": P, "reference_probabilities": P, "reference_labels": Y},
    "prior_shift_of_scores": {"probabilities": P, "answers": np.full(N, 9.0), "reference": np.full((N, 2), 9.0)},
    "expected_decisions": {"probabilities": P[:, 1], "counts": np.full(N, 2.0)},
}
GIVEN: dict[str, Any] = {
    "labelled": SUMS,
    "costs": metrics.Costs(10, 1),
    "sums": SUMS,
    "fast": SUMS,
    "slow": SUMS,
    "ratio": 2.0,
    "score": "nll",
    "threshold": 0.5,
    "bins": 15,
    "binning": "width",
    "least": -1.0,
    "most": 1.0,
    "groups": [["a"]] * N,
    "groups_N": ["a", "b"] * (N // 2),
    "names": ["a", "b"],
    "budget": 6,
    "classes": 2,
}
"""Of the others without a default."""
STARTED: dict[type, Any] = {
    metrics.EProcess: lambda: metrics.EProcess.start(null="ece", tolerance=0.02),
    metrics.GroupAlarm: lambda: metrics.GroupAlarm.start(),
    metrics.OrderedEProcess: lambda: metrics.OrderedEProcess.start(P.shape[1]),
    metrics.PartitionEProcess: lambda: metrics.PartitionEProcess.start(),
    metrics.PositiveEProcess: lambda: metrics.PositiveEProcess.start(),
    metrics.Prequential: lambda: metrics.Prequential.start(),
    metrics.RiskEProcess: lambda: metrics.RiskEProcess.start(0.05),
    metrics.ShiryaevRoberts: lambda: metrics.ShiryaevRoberts.start(null="ece", tolerance=0.02),
    metrics.WeightedEProcess: lambda: metrics.WeightedEProcess.start(floor=0.1),
}

Call = tuple[str, Callable[..., Any], dict[str, Array], dict[str, Any]]


def arrays_of(call: Callable[..., Any]) -> list[str]:
    """The arguments that are annotated as arrays."""
    annotated = inspect.signature(call).parameters.values()
    return [p.name for p in annotated if re.search(r"ArrayLike|Predictions|Logits\b|Labels\b", str(p.annotation))]


def call_of(name: str, call: Callable[..., Any]) -> Call | None:
    """The call with a sound array for each argument that takes one; None: it takes none."""
    if not (names := arrays_of(call)):
        return None
    own = OTHERS.get(name, BY_NAME)
    required = [p.name for p in inspect.signature(call).parameters.values() if p.default is p.empty]
    drawn = {"seed": 1} if name == "draw_labels" else {}
    return name, call, {n: own[n] for n in names}, {n: GIVEN[n] for n in required if n in GIVEN} | drawn


def calls() -> list[Call]:
    found: list[Call | None] = [
        call_of("report", trueodds.report),
        call_of("logits_of", trueodds.logits_of),
        call_of("fit", trueodds.fit),
        call_of("select", calibrators.select),
        call_of("Calibrator()", calibrators.Temperature(2.0)),
        call_of("from_probabilities", CalibrationSums.from_probabilities),
        call_of("from_top", CalibrationSums.from_top),
        call_of("OrderedSums", metrics.OrderedSums.from_probabilities),
        call_of("CalibrationRows", metrics.CalibrationRows.of),
        call_of("PriorShift", metrics.prior_shift(SCORES, SCORES, np.arange(400) % 2).correct),
    ]
    for name in metrics.__all__:
        value = getattr(metrics, name)
        if inspect.isfunction(value):
            found.append(call_of(name, value))
        elif inspect.isclass(value) and value in STARTED:
            started = STARTED[value]()
            methods = inspect.getmembers(started, inspect.ismethod)
            found += [call_of(f"{name}.{method}", of) for method, of in methods if method[0] != "_"]
    return [call for call in found if call]


CALLS = calls()
ARGUMENTS = [
    pytest.param(call, arrays, others, argument, id=f"{name}-{argument}")
    for name, call, arrays, others in CALLS
    for argument in arrays
]
LABELS = [param for param in ARGUMENTS if "labels" in str(param.values[3])]


def run(call: Callable[..., Any], arrays: Mapping[str, Any], others: Mapping[str, Any]) -> Any:
    result = call(**arrays, **others)
    return list(result) if inspect.isgenerator(result) else result


def test_the_walk_meets_every_public_function_that_takes_arrays() -> None:
    functions = [getattr(module, name) for module in (metrics, calibrators) for name in module.__all__]
    taking = {f.__name__ for f in functions if inspect.isfunction(f) and arrays_of(f)}
    assert taking <= {name for name, *_ in CALLS} and len(taking) > 35
    classes = [getattr(metrics, name) for name in metrics.__all__ if inspect.isclass(getattr(metrics, name))]
    methods = {
        c
        for c in classes
        for _, f in inspect.getmembers(c, lambda f: inspect.isfunction(f) or inspect.ismethod(f))
        if f.__name__[0] != "_" and arrays_of(f)
    }
    assert methods == {*STARTED, CalibrationSums, metrics.CalibrationRows, metrics.OrderedSums, metrics.PriorShift}


@pytest.mark.parametrize(("call", "arrays", "others", "argument"), ARGUMENTS)
def test_masked_and_missing_values_are_refused(
    call: Callable[..., Any], arrays: dict[str, Array], others: dict[str, Any], argument: str
) -> None:
    sound = arrays[argument]
    whole = np.ma.MaskedArray(sound, mask=np.zeros(sound.shape, bool))
    assert repr(run(call, arrays | {argument: whole}, others)) == repr(run(call, arrays, others))
    masked = whole.copy()
    masked[3 % len(sound)] = np.ma.masked
    name = "|".join([argument.rpartition("_")[0] or argument, "p.positive.", "probabilit", "human", "counts"])
    with pytest.raises(ValueError, match=rf"({name}).* has \d+ masked values?; take these rows out of every argument"):
        run(call, arrays | {argument: masked}, others)
    with pytest.raises(ValueError, match=rf"({name})"):
        run(call, arrays | {argument: [*masked]}, others)
    if getattr(call, "__name__", "").startswith("powered_") and argument != "confidence_N":
        return  # None is an answer without this label
    gap = sound.astype(object)
    gap[(1, 0)[: sound.ndim]] = None
    with pytest.raises(ValueError, match=r"\[1(, 0)?\] is None, a missing value; take these rows out"):
        run(call, arrays | {argument: gap}, others)
    if getattr(call, "__name__", "") == "worst_chances" and argument == "propensity_N":
        return  # NaN is a propensity that is not known
    if sound.ndim == 1:
        null = pyarrow.array([*sound.tolist()[:1], None, *sound.tolist()[2:]])
        with pytest.raises(ValueError, match=rf"({name}|right).*(nan|None|whole numbers|between 0 and count)"):
            run(call, arrays | {argument: null}, others)


@pytest.mark.parametrize(("call", "arrays", "others", "argument"), ARGUMENTS)
def test_tensors_are_taken(
    call: Callable[..., Any], arrays: dict[str, Array], others: dict[str, Any], argument: str
) -> None:
    """With a gradient, and in bfloat16, whose numbers NumPy does not know."""
    sound = arrays[argument]
    given: list[Any] = [torch.tensor(sound)]
    if "answers_C" in arrays and argument != "answers_C":
        arrays = arrays | {"answers_C": np.full_like(COUNTS, N)}
    if sound.dtype.kind == "f":
        sound = np.round(sound * 16) / 16  # exact in bfloat16
        sound = sound.clip(1 / 16, 15 / 16) if sound.max() <= 1 else sound
        tensor = torch.tensor(sound, requires_grad=True)
        given = [tensor, list(tensor), tensor.to(torch.bfloat16), sound.astype(ml_dtypes.bfloat16)]
    expected = repr(run(call, arrays | {argument: sound}, others))
    single = repr(run(call, arrays | {argument: sound.astype(np.float32)}, others)) if len(given) > 1 else expected
    for one in given:
        assert repr(run(call, arrays | {argument: one}, others)) in (expected, single)


def test_the_client_and_calibrated_take_tensors() -> None:
    options: Any = {"predicted": torch.tensor(Y), "propensities": torch.full((N,), 0.5, requires_grad=True)}
    ids, top = [str(k) for k in range(N)], torch.tensor(TOP, requires_grad=True)
    rows, _ = observation_rows(ids, top, options)
    plain, _ = observation_rows(ids, TOP, {"predicted": Y, "propensities": np.full(N, 0.5)})
    assert [*rows] == [*plain]
    for x in (LOGITS.astype(np.float32), np.zeros((2, 4, 4, 3), np.uint8)):
        expected = [one.body for one in instances_of(x)]
        assert [one.body for one in instances_of(torch.tensor(x))] == expected
        assert [one.body for one in instances_of(list(torch.tensor(x)))] == expected
    half = torch.tensor(LOGITS, requires_grad=True).to(torch.bfloat16)
    assert [one.body for one in instances_of(half)] == [one.body for one in instances_of(half.float().detach().numpy())]
    model = trueodds.Calibrated(LogisticRegression(), method="temperature").fit(half, torch.tensor(Y))
    assert model.predict_proba(half).shape == (N, 2)


@pytest.mark.parametrize(("call", "arrays", "others", "argument"), LABELS)
def test_minus_1_is_no_label(
    call: Callable[..., Any], arrays: dict[str, Array], others: dict[str, Any], argument: str
) -> None:
    message = r"labels holds? -1; allowed are .*0.*1; give .*, and leave out rows without a label"
    with pytest.raises(ValueError, match=message):
        run(call, arrays | {argument: np.where(Y == 0, -1, Y)}, others)


def test_missing_labels_of_a_report_with_classes() -> None:
    names = np.array(["ham", "spam"])[Y]
    missing = names.astype(object)
    missing[Y == 0] = None
    for gap in (np.ma.MaskedArray(names, mask=Y == 0), missing):
        with pytest.raises(ValueError, match=r"labels.* missing value|labels has 30 masked value"):
            trueodds.report(P, gap, classes=["ham", "spam"])
    with pytest.raises(ConfigError, match="unknown label -1; allowed: 0, 1"):
        trueodds.report(P, np.where(Y == 0, -1, Y), classes=[0, 1])
    assert trueodds.report(P, 2 * Y - 1, classes=[-1, 1]).accuracy == trueodds.report(P, Y).accuracy
    with pytest.raises(ConfigError, match="classes has 3 names for 2 columns"):
        trueodds.report(P, names, classes=["ham", "spam", "eggs"])


def fitted_numbers() -> list[Any]:
    """A calibrator of each kind that keeps arrays, with the name of one."""
    rows = RNG.normal(0, 2, (300, 2))
    labels = (metrics.softmax(rows / 2)[:, 1] > RNG.random(300)).astype(int)
    made = [calibrators.fit(rows, labels, name) for name in calibrators.names(has_groups=False)]
    made.append(calibrators.fit(rows, labels, "group_temperature", groups=["a", "b", "c"] * 100))
    kept = [(one, f.name) for one in made for f in fields(one) if isinstance(getattr(one, f.name), np.ndarray)]
    return [pytest.param(one, name, id=f"{one.name}-{name}") for one, name in kept]


@pytest.mark.parametrize(("calibrator", "name"), fitted_numbers())
def test_masked_numbers_make_no_calibrator(calibrator: Any, name: str) -> None:
    masked = np.ma.MaskedArray(getattr(calibrator, name))
    masked[(0,) * masked.ndim] = np.ma.masked
    with pytest.raises(ValueError, match=rf"{name} has 1 masked value"):
        replace(calibrator, **{name: masked})


def test_calibrated_refuses_masks() -> None:
    model = trueodds.Calibrated(LogisticRegression(), method="temperature")
    x, names = LOGITS, np.array(["a", "b"])[Y]
    masked = np.ma.MaskedArray(x, mask=x > 3)
    with pytest.raises(ValueError, match=r"X has \d+ masked value"):
        model.fit(masked, names)
    with pytest.raises(ValueError, match="y has 1 masked value"):
        model.fit(x, np.ma.MaskedArray(names, mask=np.arange(N) == 3))
    with pytest.raises(ValueError, match=r"y\[3\] is None, a missing value"):
        model.fit(x, [None if k == 3 else name for k, name in enumerate(names)])
    model.fit(x, np.where(Y == 0, -1, 1))
    assert model.classes_.tolist() == [-1, 1]
    for answer in (model.predict_proba, model.predict):
        with pytest.raises(ValueError, match=r"X has \d+ masked value"):
            answer(masked)


def test_the_client_refuses_masks_before_it_sends() -> None:
    client = trueodds.Client("http://127.0.0.1:9", tries=1)  # where nobody listens
    x, p = np.ma.MaskedArray(LOGITS), np.ma.MaskedArray(P)
    x[4, 1] = p[2, 0] = np.ma.masked
    image = np.ma.MaskedArray(np.zeros((1, 8, 8, 1), np.uint8), mask=True)
    for inputs, row in ((x, 4), ([*x], 4), ((one for one in x), 4), (image, 0)):
        with pytest.raises(ConfigError, match=rf"row {row} has \d+ masked value"):
            client.predict(inputs)
    ids = [str(k) for k in range(N)]
    labels = np.ma.MaskedArray(Y, mask=Y == 1)
    for some in (labels, np.ma.MaskedArray(np.array(["a", "b"])[Y], mask=Y == 1)):
        with pytest.raises(ConfigError, match="row 1 has the label masked; expected the name of a class"):
            client.feedback(ids, some)
    observe = {"model": "m", "version": "1"}
    with pytest.raises(ConfigError, match="the numbers has 1 masked value"):
        client.observe(ids, p, **observe)  # type: ignore[arg-type]
    half = np.ma.MaskedArray(np.full(N, 0.5), mask=Y == 1)
    with pytest.raises(ConfigError, match="propensities has 30 masked value"):
        client.observe(ids, P, propensities=half, **observe)  # type: ignore[arg-type]
