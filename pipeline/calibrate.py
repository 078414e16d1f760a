"""The calibrate stage: checks the calibrator that params.yaml names and fits it to the validation logits."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pipeline.config import Calibration
from trueodds import calibrators
from trueodds.calibrators import SELECT, Calibrator, Candidate
from trueodds.errors import ConfigError, UserError
from trueodds.files import FileError, read_json
from trueodds.logits import Logits

log = logging.getLogger("pipeline.calibrate")


def check(settings: Calibration) -> None:
    """Check the settings of the calibrator.

    Raises:
        ConfigError: An unknown calibrator, option or candidate, or a value that an option does not allow.
    """
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
    rows, options = (validation.logits_NC, validation.labels_N), cast(dict[str, Any], settings.calibrator_options)
    table: tuple[Candidate, ...] = ()
    try:
        if settings.calibrator == SELECT:
            selection = calibrators.select(*rows, **options)
            calibrator, table = selection.calibrator, selection.table
        else:
            calibrator = calibrators.fit(*rows, settings.calibrator, **options)
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
    for note in (*notes, *calibrator.warnings):
        log.warning(note)
    return calibrator, table


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
