"""The calibrator of params.yaml: its names checked, and fitted on the validation logits."""

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
    """Raises ConfigError for an unknown calibrator, option or candidate, and for an option's value."""
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
    """The calibrator, and the table of the candidates that it was selected from: empty if one was named.

    Warns of `notes`, which belong to the logits, and of the calibrator's own.

    Raises:
        ConfigError: an unknown name or option, or an option's value.
        FitError: rows that do not determine the calibrator.
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
    except ValueError as error:  # an option's value that depends on the rows
        raise _refusal(options, error) from None
    for line in table:
        held_out = f"held-out NLL {line.nll:.4f}, {line.behind:.4f} behind" if line.problem is None else line.problem
        held_out += f"; passed over: {line.passed_over}" if line.passed_over else ""
        held_out += f"; chosen: {line.chosen}" if line.chosen else ""
        log.info("%s%s: %s", "* " if line.name == calibrator.name else "  ", line.name, held_out)
    for note in (*notes, *calibrator.warnings):
        log.warning(note)
    return calibrator, table


def _refusal(options: Mapping[str, object], error: ValueError) -> ConfigError:
    return ConfigError(f"calibration.calibrator_options = {dict(options)}: {error}")


def read(path: Path) -> Calibrator:
    """The calibrator that the calibrate stage wrote.

    Raises:
        FileError: a file that is missing or damaged.
    """
    try:
        return calibrators.from_json(read_json(path))
    except FileNotFoundError:
        raise FileError(f"{path} does not exist; run the calibrate stage first: dvc repro calibrate") from None
    except (TypeError, ValueError) as error:
        raise FileError(f"{path}: {error}; run: dvc repro calibrate") from None
