"""Observations of one version as rows of the store: checks whether they fit it, and computes the stored numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from service.errors import Refusal, ServiceError
from service.models.acting import propensities
from service.models.model import of_logits
from service.observe.observation import CallDefaults, Form, Observation
from service.observe.observation_formats import check_classes
from service.store.label_rules import names_of
from service.store.rows import PredictionBatch, Version
from trueodds.calibrators import Identity
from trueodds.calibrators.conformal import SetRule
from trueodds.errors import ConfigError, nearest
from trueodds.inputs.sources import LOW_MASS, SourceError, from_logprobs, from_votes
from trueodds.sums.inputs import (
    MUST_SUM,
    ROW_SUM_TOLERANCE,
    TELLING_ROWS,
    Array,
    are_percentages,
    check_logits,
    sums_to_one,
    without_noise,
)
from trueodds.sums.ordered import check_level_names
from trueodds.sums.positive import PositiveClass
from trueodds.sums.rounding import EXACT, Resolution, logits_of, resolution_of
from trueodds.sums.steps import on_steps
from trueodds.texts import quotes, short

PERCENT_CURE = "divide percentages by 100, and send them as probabilities"
LOGITS_CURE = "if these are logits, send them as logits"
MOST_SPREAD = float(np.finfo(np.float32).max)
"""Largest difference of two logits in a row."""


class ObservedBatch(NamedTuple):
    """Rows of one version that can be stored, and refusals of the others."""

    version: Version
    rows: PredictionBatch
    numbers: list[int]
    """Row numbers in the call."""
    refusals: list[Refusal]
    readings: frozenset[Form]
    """Forms that were read as probabilities."""
    low_masses: int
    """Number of rows with a low label mass."""
    new_resolution: Resolution | None
    """Resolution that this call decides for the version."""


class _MisfitError(ValueError):
    """Error: an observation does not fit its version."""


def version_of(first: Observation, defaults: CallDefaults, model: str) -> Version | Refusal:
    """Return a new version, made from its first observation. `model` is its name in the store."""
    classes = defaults.classes or first.names
    if classes is None and first.form in ("probabilities", "logits"):
        classes = tuple(map(str, range(len(first.values))))
    if classes is None:
        message = f"{first.model}/{first.version} is new; give the names of its classes in the call: ?classes=a,b,c"
        return Refusal(first.row, first.id, "invalid_row", message)
    try:
        check_classes(classes)
        if defaults.positive is not None:
            PositiveClass.of(defaults.positive, classes)
        if defaults.ordered:
            check_level_names(classes)
    except (ServiceError, ConfigError) as error:
        return Refusal(first.row, first.id, "invalid_row", str(error))
    if defaults.ordered and first.form == "confidence":
        message = "ordered classes need the numbers of all classes: send probabilities or logits, or leave ordered out"
        return Refusal(first.row, first.id, "invalid_row", message)
    return Version(
        model,
        first.version,
        classes,
        Identity(),
        {},
        is_observed=True,
        has_logits=first.form != "confidence",
        positive=defaults.positive,
        ordered=defaults.ordered,
        act_alone=None if defaults.shadow else defaults.act_alone,  # a shadow takes no actions
        set_rules=() if defaults.set_level is None else (SetRule.of_level(defaults.set_level, defaults.set_rows or 0),),
    )


def other_form(version: Version, defaults: CallDefaults) -> str:
    """Return why the call's positive class, order or promise contradicts a known version; "" if it does not."""
    stated, known_promise = None if defaults.shadow else defaults.act_alone, version.act_alone
    if stated is not None and (known_promise is None or not known_promise.states_as(stated)):
        known = "no promise to act alone" if known_promise is None else f"the promise {known_promise.short}"
        return (
            f"{version.model}/{version.version} has {known}, but the call gives another; a version keeps what its first"
            " answer gave. Leave act_alone out, or send these under another version"
        )
    if defaults.set_level is not None:
        stated_rule = SetRule.of_level(defaults.set_level, defaults.set_rows or 0)
        if (stated_rule,) != version.set_rules:
            known = "no sets" if not version.set_rules else _rule_words(version.set_rules[0])
            return (
                f"{version.model}/{version.version} has {known}, but the call gives {_rule_words(stated_rule)}; a"
                " version keeps what its first answer gave. Leave set_level and set_rows out, or send these under"
                " another version"
            )
    if defaults.ordered and not version.ordered:
        return (
            f"the classes of {version.model}/{version.version} are not ordered, but the call says so; a version keeps"
            " what its first answer gave. Leave ordered out, or send these under another version"
        )
    sent, kept = defaults.resolution, version.resolution
    if sent is not None and kept is not None and sent.step != kept.step:
        known = "exact probabilities" if kept.step is None else f"probabilities in steps of {kept.step:g}"
        given = "exact" if sent.step is None else f"{sent.step:g}"
        return (
            f"{version.model}/{version.version} has {known}, but the call gives the resolution {given}; a version keeps"
            " its first one. Leave resolution out, or send these under another version"
        )
    if defaults.positive in (None, version.positive):
        return ""
    known = "no positive class" if version.positive is None else f"the positive class {short(version.positive)}"
    return (
        f"{version.model}/{version.version} has {known}, but the call gives {short(defaults.positive)}; a version keeps"
        " what its first answer gave. Leave positive out, or send these under another version"
    )


def _rule_words(rule: SetRule) -> str:
    """Return what is known of the sets of another server."""
    rows = f" of {rule.calibration_rows:,} calibration rows" if rule.calibration_rows else ""
    return f"sets of level {rule.level:g}{rows}"


def batch_of(
    version: Version, rows: Sequence[Observation], defaults: CallDefaults, request_id: str, audit_share: float = 0.0
) -> ObservedBatch:
    """Return the rows that fit a version as a batch. Probabilities are stored as their logarithms."""
    kept, refusals = list[Observation](), list[Refusal]()
    new_resolution: Resolution | None = None
    columns: dict[tuple[str, ...] | None, list[int] | None] = {}
    """Positions of the version's classes among a row's class names, by these names."""
    for row in rows:
        try:
            _check_form(version, row)
            _check_set(version, row)
            row = _as_probabilities(version, row, defaults)
            names = row.names or defaults.classes
            if names not in columns:
                columns[names] = _columns(version, names)
            _check_count(version, row)
        except SourceError as error:
            refusals.append(Refusal(row.row, row.id, "invalid_row", str(error)))
        except _MisfitError as error:
            refusals.append(Refusal(row.row, row.id, "other_form", str(error)))
        else:
            kept.append(row)
    if version.has_logits:
        values_NC = _matrix(kept, defaults, columns, len(version.classes))
        if version.resolution is None:
            new_resolution = _resolution_of(kept, values_NC, defaults)
        resolution = version.resolution or new_resolution or EXACT
        kept, values_NC = _sound(kept, values_NC, refusals, resolution)
        numbers = _of_values(kept, values_NC)
        if resolution.step is not None:
            confidence_N = np.where(_as_sent(kept), resolution.confidence(numbers.confidence_N), numbers.confidence_N)
            numbers = numbers._replace(confidence_N=confidence_N)
    else:
        kept, index_N = _with_class_index(version, kept, defaults, refusals)
        confidence_N = np.array([row.values[0] for row in kept], np.float64)
        numbers = _Numbers(np.empty((len(kept), 0), np.float32), np.empty((len(kept), 0)), index_N, confidence_N)
    tags, given = [row.tag for row in kept], [row.propensity for row in kept]
    batch = PredictionBatch(
        model=version.model,
        version=version.version,
        created_ms_N=np.array([row.created_ms for row in kept], np.int64),
        ids=[row.id for row in kept],
        request_ids=[request_id] * len(kept),
        logits_NC=numbers.logits_NC,
        probabilities_NC=numbers.probabilities_NC,
        index_N=numbers.index_N,
        raw_confidence_N=numbers.confidence_N,
        confidence_N=numbers.confidence_N,
        digests=_digests(kept, numbers),
        tags=tags,
        propensities=propensities(version.act_alone, audit_share, numbers.confidence_N, tags, given),
        confidence_sources=[row.confidence_source for row in kept],
        label_masses=[row.label_mass for row in kept],
        sets=_packed_sets(version, kept) if version.set_rules else None,
    )
    readings = frozenset(row.sent_form for row in kept if row.sent_form)
    low = sum(row.label_mass is not None and row.label_mass < LOW_MASS for row in kept)
    return ObservedBatch(version, batch, [row.row for row in kept], refusals, readings, low, new_resolution)


class _Numbers(NamedTuple):
    """Stored numbers of N answers."""

    logits_NC: npt.NDArray[np.float32]
    probabilities_NC: Array
    index_N: npt.NDArray[np.intp]
    confidence_N: Array


def _check_form(version: Version, row: Observation) -> None:
    if (row.form != "confidence") == version.has_logits:
        return
    held = "probabilities of all classes" if version.has_logits else "only the confidence of the predicted class"
    raise _MisfitError(
        f"{version.model}/{version.version} has {held}, but this row has {row.form}; all answers of a version have the"
        " same form. Send the row in that form, or under another version"
    )


def _check_set(version: Version, row: Observation) -> None:
    """Check that a row has a set if its version has sets, of the version's classes."""
    who = f"{version.model}/{version.version}"
    if row.members is not None and not version.set_rules:
        cure = "give their level (set_level) with the first answer of a version"
        raise _MisfitError(f"the row has a set, but {who} has none; {cure}")
    if row.members is None and version.set_rules:
        raise _MisfitError(
            f"the row has no set, but {who} has {_rule_words(version.set_rules[0])}; send the set of each answer (an"
            " empty one as []), or the row under another version"
        )
    names = names_of(version.classes)
    if strange := [name for name in row.members or () if names.index(name) is None]:
        near = nearest(strange[0][:100], version.classes)
        raise _MisfitError(f"set holds {short(strange[0])}; {who} has the classes {quotes(version.classes, 5)}.{near}")


def _packed_sets(version: Version, rows: Sequence[Observation]) -> list[bytes]:
    """Return the sets of rows: a bit for each class."""
    names, inside_NC = names_of(version.classes), np.zeros((len(rows), len(version.classes)), bool)
    for n, row in enumerate(rows):
        for name in row.members or ():
            place = names.index(name)
            assert place is not None
            inside_NC[n, place] = True
    return [bits.tobytes() for bits in np.packbits(inside_NC, axis=1)]


def _as_probabilities(version: Version, row: Observation, defaults: CallDefaults) -> Observation:
    """Return a row of log-probabilities or votes as one of probabilities in the order of the version's classes.

    Raises:
        SourceError: They cannot be read.
    """
    if row.form == "logprobs":
        read = from_logprobs(row.values, version.classes)
        mass: float | None = read.label_mass
        values = read.probabilities
    elif row.form == "votes":
        mass, order = None, defaults.classes or version.classes
        votes = row.values
        if isinstance(votes, list) and len(votes) == len(order) and not any(isinstance(vote, str) for vote in votes):
            votes = dict(zip(order, votes, strict=True))
        values = from_votes(votes, version.classes)
    else:
        return row
    return replace(row, form="probabilities", values=values, names=version.classes, label_mass=mass, sent_form=row.form)


def _columns(version: Version, names: tuple[str, ...] | None) -> list[int] | None:
    """Return the position of each of the version's classes among the names; None if the order is the same.

    Raises:
        _MisfitError: The names are not the version's classes.
    """
    if names is None or names == version.classes:
        return None
    known, count = names_of(version.classes), len(version.classes)
    meant = [known.index(name) for name in names]
    place = {index: k for k, index in enumerate(meant) if index is not None}
    if len(place) == len(names) == count:
        return [place[index] for index in range(count)]
    strange = [name for name, index in zip(names, meant, strict=True) if index is None]
    missing = [name for index, name in enumerate(version.classes) if index not in place]
    twice = [name for name, index in zip(names, meant, strict=True) if meant.count(index) > 1]
    which = f"and {quotes(missing, 3)} is missing" if missing else f"and {quotes(twice, 3)} is repeated"
    which = f"not {quotes(strange, 3)}" if strange else which
    raise _MisfitError(
        f"{version.model}/{version.version} has the classes {quotes(version.classes, 5)}, {which}; each row needs one"
        " number per class. A model with other classes is another version."
        + (nearest(strange[0][:100], version.classes) if strange else "")
    )


def _check_count(version: Version, row: Observation) -> None:
    if version.has_logits and len(row.values) != len(version.classes):
        count = len(version.classes)
        raise _MisfitError(
            f"{row.form} has {len(row.values)} numbers, but {version.model}/{version.version} has {count} classes"
            f" ({quotes(version.classes, 5)}); send one per class. A model with other classes is another version"
        )


def _matrix(
    rows: list[Observation],
    defaults: CallDefaults,
    columns: dict[tuple[str, ...] | None, list[int] | None],
    classes: int,
) -> Array:
    """Return the numbers of all rows in the order of the version's classes."""
    if rows and all(isinstance(row.values, list) for row in rows):
        flat = np.fromiter(chain.from_iterable(row.values for row in rows), np.float64, len(rows) * classes)
        values_NC = flat.reshape(len(rows), classes)
    else:
        values_NC = np.array([row.values for row in rows], np.float64).reshape(len(rows), classes)
    if any(columns.values()):
        for n, row in enumerate(rows):
            if where := columns[row.names or defaults.classes]:
                values_NC[n] = values_NC[n, where]
    return values_NC


def _as_sent(rows: list[Observation]) -> npt.NDArray[np.bool_]:
    """Return which rows have probabilities as they were sent, which can be rounded."""
    return np.array([row.form == "probabilities" and row.sent_form in (None, "verbalised") for row in rows], bool)


def _resolution_of(rows: list[Observation], values_NC: Array, defaults: CallDefaults) -> Resolution | None:
    """Return the resolution that the call gives, or that its rows show; None if neither."""
    if defaults.resolution is not None:
        return defaults.resolution
    sent_NC = values_NC[_as_sent(rows)]
    with np.errstate(invalid="ignore", over="ignore"):
        sane_N = np.isfinite(sent_NC).all(axis=1) & ((sent_NC >= 0) & (sent_NC <= 1)).all(axis=1)
        sane_N &= sums_to_one(sent_NC)
    shown = resolution_of(sent_NC[sane_N])
    return None if shown.is_exact else shown


def _sound(
    rows: list[Observation], values_NC: Array, refusals: list[Refusal], resolution: Resolution
) -> tuple[list[Observation], Array]:
    """Return the rows whose numbers are valid probabilities or logits. The others are refused."""
    as_logits_N = np.array([row.form == "logits" for row in rows], bool)
    finite_N = np.isfinite(values_NC).all(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        values_NC = np.where(as_logits_N[:, None], values_NC, without_noise(values_NC))
        inside_N = (values_NC >= 0).all(axis=1) & sums_to_one(values_NC)
        if (step := resolution.step) is not None:
            as_sent_N = _as_sent(rows)
            on_N = ~as_sent_N | on_steps(values_NC, step).all(axis=1)
            inside_N |= as_sent_N & ((values_NC >= 0) & (values_NC <= 1)).all(axis=1) & sums_to_one(values_NC, step)
        storable_N = np.ptp(values_NC, axis=1) <= MOST_SPREAD
    sound_N = finite_N & np.where(as_logits_N, storable_N, inside_N)
    doubt = _doubt(values_NC[finite_N & as_logits_N])
    if doubt:
        sound_N &= ~as_logits_N
    if step is not None:
        finer = np.flatnonzero(sound_N & ~on_N).tolist()
        refusals += [
            Refusal(rows[n].row, rows[n].id, "other_form", _finer(rows[n], values_NC[n], resolution)) for n in finer
        ]
        doubtful_N = sound_N & ~on_N
        sound_N &= on_N
    else:
        doubtful_N = np.zeros(len(rows), bool)
    if sound_N.all():
        return rows, values_NC
    refusals += [
        Refusal(rows[n].row, rows[n].id, "invalid_row", doubt or _problem(rows[n], values_NC[n]))
        for n in np.flatnonzero(~sound_N & ~doubtful_N).tolist()
    ]
    return [row for row, sound in zip(rows, sound_N.tolist(), strict=True) if sound], values_NC[sound_N]


def _finer(row: Observation, values_C: Array, resolution: Resolution) -> str:
    assert resolution.step is not None
    value = values_C[~on_steps(values_C[None], resolution.step)[0]][0]
    how = (
        "the call that gave its resolution said so"
        if resolution.source == "given"
        else "rows that do not sum to 1 showed it"
    )
    return (
        f"probabilities holds {value:.6g}, not a multiple of {resolution.step:g}; {row.model}/{row.version} has"
        f" probabilities in steps of {resolution.step:g} ({how}), and a version keeps its resolution. Send values of"
        " another resolution under another version, with resolution=exact or their step"
    )


def _doubt(logits_NC: Array) -> str:
    """Return why the numbers cannot be logits; "" if they can."""
    if not len(logits_NC):
        return ""
    try:
        check_logits(logits_NC, rows=TELLING_ROWS)
    except ValueError:
        if are_percentages(logits_NC):
            return f"these logits are percentages: each row is in [0, 100] and sums to 100; {PERCENT_CURE}"
        return "these logits are probabilities: each row is in [0, 1] and sums to 1; send them as probabilities"
    return ""


def _problem(row: Observation, values_C: Array) -> str:
    if not np.isfinite(values_C).all():
        cure = " (for a probability of 0, send probabilities)" if row.form == "logits" else ""
        return f"{row.form} holds {values_C[~np.isfinite(values_C)][0]}; every number must be finite{cure}"
    if row.form == "logits":
        low, high = values_C.min(), values_C.max()
        return f"logits range from {low:.6g} to {high:.6g}; as float32 they may differ by at most {MOST_SPREAD:.3g}"
    if (outside_C := (values_C < 0) | (values_C > 1 + ROW_SUM_TOLERANCE)).any():
        if are_percentages(values_C[None]):
            return f"probabilities holds {values_C[outside_C][0]:.6g}, and they sum to 100; {PERCENT_CURE}"
        return f"probabilities holds {values_C[outside_C][0]:.6g}; allowed is [0, 1]; {LOGITS_CURE}"
    return f"probabilities sum to {values_C.sum():.6g}; they {MUST_SUM}; {LOGITS_CURE}"


def _of_values(rows: list[Observation], values_NC: Array) -> _Numbers:
    if not rows:
        none_NC = np.empty((0, values_NC.shape[1]))
        return _Numbers(none_NC.astype(np.float32), none_NC, np.empty(0, np.intp), np.empty(0))
    by_form: dict[Form, list[int]] = {}
    for n, row in enumerate(rows):
        by_form.setdefault(row.form, []).append(n)
    parts = {form: _numbers_of(form, values_NC if len(n) == len(rows) else values_NC[n]) for form, n in by_form.items()}
    if len(parts) == 1:
        (numbers,) = parts.values()
        return numbers
    order = np.argsort(list(chain.from_iterable(by_form.values())))
    return _Numbers(*(np.concatenate(columns)[order] for columns in zip(*parts.values(), strict=True)))


def _numbers_of(form: Form, values_NC: Array) -> _Numbers:
    """Return logits (each row minus its maximum) and the answer. For probabilities the sent confidence is kept."""
    z_NC = logits_of(values_NC, resolution="exact") if form == "probabilities" else values_NC
    logits_NC = (z_NC - z_NC.max(axis=1, keepdims=True)).astype(np.float32)
    if form == "probabilities":
        return _Numbers(logits_NC, values_NC, values_NC.argmax(axis=1), values_NC.max(axis=1).clip(max=1.0))
    scores = of_logits(Identity(), logits_NC)
    return _Numbers(logits_NC, scores.probabilities_NC, scores.index_N, scores.confidence_N)


def _with_class_index(
    version: Version, rows: list[Observation], defaults: CallDefaults, refusals: list[Refusal]
) -> tuple[list[Observation], npt.NDArray[np.intp]]:
    """Return rows of the form `confidence` with the indices of their classes. An index is in the call's classes."""
    names, kept, index = names_of(version.classes), list[Observation](), list[int]()
    for row in rows:
        predicted = row.predicted
        if isinstance(predicted, int) and defaults.classes and 0 <= predicted < len(defaults.classes):
            predicted = defaults.classes[predicted]
        place = None if predicted is None else names.index(predicted)
        if place is None:
            key = "index" if isinstance(row.predicted, int) else "predicted"
            message = f"{key} is {short(row.predicted)}; {version.model}/{version.version} has the classes"
            by_index = f"send the position of a class, 0..{len(version.classes) - 1}, as index"
            message = f"{message} {quotes(version.classes, 5)}; {by_index}"
            refusals.append(Refusal(row.row, row.id, "unknown_class", message))
        else:
            kept.append(row)
            index.append(place)
    return kept, np.array(index, np.intp)


def _digests(rows: list[Observation], numbers: _Numbers) -> list[bytes | None]:
    """Return digests that tell whether an observation with the same id is the same: of its numbers and its details."""
    answers = (
        [row.tobytes() for row in numbers.logits_NC.astype("<f4", copy=False)]
        if numbers.logits_NC.shape[1]
        else [orjson.dumps(pair) for pair in zip(numbers.index_N.tolist(), numbers.confidence_N.tolist(), strict=True)]
    )
    return [
        hashlib.blake2b(
            answer + orjson.dumps(_details(row)),
            digest_size=16,
        ).digest()
        for row, answer in zip(rows, answers, strict=True)
    ]


def _details(row: Observation) -> list[str | float | list[str] | None]:
    details: list[str | float | list[str] | None] = [
        row.version,
        row.tag,
        row.created_ms if row.has_time else None,
        row.propensity,
    ]
    details += [] if row.confidence_source is None else [row.confidence_source]
    return details if row.members is None else [*details, sorted(row.members)]
