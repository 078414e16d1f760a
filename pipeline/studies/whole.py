"""A study from its file to its runs: tuned, run, what failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.studies import expansion, measuring, running, tuning
from pipeline.studies.expansion import Run
from pipeline.studies.format import Study
from pipeline.studies.running import Place


@dataclass(frozen=True)
class Done:
    """The runs of a study, a line for each choice of tuning, and the message of each run that failed."""

    places: tuple[Place, ...]
    tuned: tuple[str, ...]
    failed: tuple[str, ...]


def carry_out(
    study: Study, params: Path, home: Path, say: Callable[[str], None], run: Callable[..., dict[str, str]]
) -> Done:
    """Tunes, then runs what is left; `run` is `running.run_all` or another that makes the runs of (home, places).

    Raises:
        ConfigError: settings that no run can have.
        StudyError: no run of a step of tuning could be measured.
    """
    failed: dict[str, str] = {}
    tuned: list[str] = []

    def measure(tried: Sequence[Run]) -> list[Mapping[str, Any] | None]:
        assert study.choose is not None
        places = running.places(home, tried)
        failed.update(run(home, places))
        rows = {row[measuring.KEY]: row for row in measuring.rows_of(places, [study.choose.calibrator])}
        return [rows.get(place.key) for place in places]

    def choice(line: str) -> None:
        tuned.append(line)
        say(line)

    untuned = expansion.expand(study, params)
    running.places(home, [*untuned, *tuning.tried(study, untuned, params)])  # refuses before hours of earlier steps
    runs = tuning.tuned(study, untuned, params, measure, choice)
    places = running.places(home, runs)
    failed.update(run(home, places))
    return Done(tuple(places), tuple(tuned), tuple(failed.values()))
