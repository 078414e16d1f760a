"""The calibrate stage: fits the calibrator that params.yaml names, and its conformal sets, to validation logits."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pipeline.config import Calibration
from trueodds import calibrators
from trueodds.calibrators import SELECT, Calibrator, Candidate, conformal
from trueodds.calibrators.conformal import ConformalSets, SetSettings
from trueodds.errors import ConfigError, UserError
from trueodds.files import FileError, read_json
from trueodds.logits import Logits

log = logging.getLogger("pipeline.calibrate")

NOT_READ = "The rows have groups, and {} reads none: it treats all groups alike."


def check(settings: Calibration) -> None:
    """Check the settings of the calibrator.

    Raises:
        ConfigError: An unknown calibrator, option or candidate, or a value that an option does not allow.
    """
    set_settings(settings)
    name, options = settings.calibrator, settings.calibrator_options
    try:
        calibrators.check(name, options)
    except UserError:
        raise
    except ValueError as error:
        raise _refusal(options, error) from None
    if name == SELECT:
        candidates = options.get("candidates", [])
        if not isinstance(candidates, list):
            raise ConfigError(f"option candidates of 'select' is {candidates!r}; allowed is a list of calibrators")
        for candidate in candidates:
            calibrators.get(candidate)


def check_groups(groups: str | None, settings: Calibration, others: Sequence[str]) -> None:
    """Check that a calibrator reads the groups that `data.groups` names.

    Args:
        groups: The parameter `data.groups`.
        settings: The section `calibration` of params.yaml, checked by `check`.
        others: Names of the calibrators that are measured too.

    Raises:
        ConfigError: There are groups, and no calibrator reads them.
    """
    if groups is None or _uses_groups(settings) or any(calibrators.get(name).uses_groups for name in others):
        return
    raise ConfigError(
        f"data.groups is {groups!r}, and {_words(settings)} reads no groups; set calibration.calibrator to select or"
        " group_temperature, or data.groups to null"
    )


def _uses_groups(settings: Calibration) -> bool:
    """Return whether the calibrator, or a candidate of `select`, reads groups."""
    if settings.calibrator != SELECT:
        return calibrators.get(settings.calibrator).uses_groups
    candidates = cast(list[str] | None, settings.calibrator_options.get("candidates"))
    return candidates is None or any(calibrators.get(name).uses_groups for name in candidates)


def _words(settings: Calibration) -> str:
    """Return the calibrator in words, for messages."""
    candidates = cast(list[str], settings.calibrator_options.get("candidates", []))
    named = f" with the candidates {', '.join(candidates)}" if candidates else ""
    return f"the calibrator {settings.calibrator}{named}"


def fit(
    settings: Calibration, validation: Logits, notes: Sequence[str] = ()
) -> tuple[Calibrator, tuple[Candidate, ...]]:
    """Fit the calibrator to the validation logits.

    Notes and warnings of the calibrator are logged as warnings.

    Args:
        settings: The calibrator and its options.
        validation: Logits and labels of the validation rows.
        notes: Warnings about the logits, such as how they were made.

    Returns:
        The calibrator, and the table of candidates for `select`, which is empty for a calibrator given by name.

    Raises:
        ConfigError: An unknown name or option, or a value that an option does not allow.
        FitError: The rows do not determine the calibrator.
    """
    check(settings)
    options, groups_N = cast(dict[str, Any], settings.calibrator_options), validation.groups_N
    rows = validation.logits_NC, validation.labels_N
    uses_groups = _uses_groups(settings)
    table: tuple[Candidate, ...] = ()
    try:
        if settings.calibrator == SELECT:
            selection = calibrators.select(*rows, groups=groups_N, **options)
            calibrator, table = selection.calibrator, selection.table
        else:
            groups = groups_N if uses_groups else None
            calibrator = calibrators.fit(*rows, settings.calibrator, groups=groups, **options)
    except UserError:
        raise
    except ValueError as error:  # an option's value that the rows do not allow
        raise _refusal(options, error) from None
    for line in table:
        held_out = f"held-out NLL {line.nll:.4f}, {line.behind:.4f} behind" if line.problem is None else line.problem
        held_out += f"; passed over: {line.passed_over}" if line.passed_over else ""
        held_out += f"; chosen: {line.chosen}" if line.chosen else ""
        log.info("%s%s: %s", "* " if line.name == calibrator.name else "  ", line.name, held_out)
    if (whose := calibrators.origin(calibrator)) is not None:
        log.info("calibrator %s of the distribution %s", calibrator.name, whose)
    unused = [NOT_READ.format(_words(settings))] if groups_N is not None and not uses_groups else []
    for note in (*notes, *unused, *calibrator.warnings):
        log.warning(note)
    return calibrator, table


def set_settings(settings: Calibration) -> SetSettings | None:
    """Return the settings of the conformal sets; None if there are none.

    Raises:
        ConfigError: An option is unknown or has a value that is not allowed, or there are options without a method.
    """
    if settings.conformal is not None:
        return SetSettings.of(settings.conformal, settings.conformal_options, "calibration.conformal_options")
    if settings.conformal_options:
        raise ConfigError(
            f"calibration.conformal_options = {settings.conformal_options}, but calibration.conformal is null; name a"
            " method (lac, aps, raps, class), or leave the options out"
        )
    return None


def fitting_rows(settings: SetSettings | None, validation: Logits) -> Logits:
    """Return the validation rows that fit the calibrator: all that give no thresholds of sets.

    Raises:
        ConfigError: There are too few rows for both.
    """
    return validation if settings is None else conformal.rows_apart(validation, settings).fitting


def fit_conformal(settings: SetSettings | None, calibrator: Calibrator, validation: Logits) -> dict[str, Any] | None:
    """Fit the sets on the validation rows that did not fit the calibrator. Return the content of conformal.json.

    Raises:
        ConfigError: There are too few rows, or the method does not work with two classes.
    """
    if settings is None:
        return None
    apart = conformal.rows_apart(validation, settings).sets
    sets = conformal.fit_sets(calibrator, apart.logits_NC, apart.labels_N, settings, apart.groups_N)
    rules = [sets.at(level, settings.confidence) for level in settings.levels]
    for note in conformal.few_rows_notes(rules):
        log.warning(note)
    return {"settings": settings.model_dump(mode="json"), "sets": sets.to_json()}


def read_conformal(path: Path) -> tuple[SetSettings, ConformalSets] | None:
    """Read conformal.json, which the calibrate stage wrote; None if the run has no sets.

    Raises:
        FileError: The file is missing or damaged.
    """
    try:
        tree = read_json(path)
        if tree is None:
            return None
        return SetSettings.model_validate(tree["settings"]), ConformalSets.from_json(tree["sets"])
    except FileNotFoundError:
        raise FileError(f"{path} does not exist; run the calibrate stage first: dvc repro calibrate") from None
    except (TypeError, KeyError, ValueError) as error:
        raise FileError(f"{path}: {error}; run: dvc repro calibrate") from None


def _refusal(options: Mapping[str, object], error: ValueError) -> ConfigError:
    """Return the error for an option whose value the calibrator refuses."""
    return ConfigError(f"calibration.calibrator_options = {dict(options)}: {error}")


def read(path: Path) -> Calibrator:
    """Read the calibrator that the calibrate stage wrote.

    Raises:
        FileError: The file is missing or damaged.
    """
    try:
        return calibrators.from_json(read_json(path))
    except FileNotFoundError:
        raise FileError(f"{path} does not exist; run the calibrate stage first: dvc repro calibrate") from None
    except (TypeError, ValueError) as error:
        raise FileError(f"{path}: {error}; run: dvc repro calibrate") from None
