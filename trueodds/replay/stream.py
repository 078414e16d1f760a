"""The stream of rows: their times, labels and delays of labels, decided by a seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trueodds.errors import nearest
from trueodds.replay import ReplayError
from trueodds.replay.drift import Schedule, drifted
from trueodds.replay.source import Row, Source

BIASES = {
    "wrong": "wrong answers are so many times as likely to get their label",
    "unsure": "answers below 90% confidence are so many times as likely to get their label",
    "early": "labels of wrong answers come so many times as fast",
}
SURE = 0.9
CHUNK = 1024


@dataclass(frozen=True)
class Bias:
    """Dependence of labels on the answer; 1: none. `wrong`, `unsure`: ratios of chances; `early`: of times."""

    wrong: float = 1.0
    unsure: float = 1.0
    early: float = 1.0

    @classmethod
    def parse(cls, texts: list[str]) -> Bias:
        """`wrong:2`, several with commas or in several texts.

        Raises:
            ReplayError: an unknown name, or what is no number from 1 to 1,000.
        """
        ratios: dict[str, float] = {}
        for entry in (entry.strip() for text in texts for entry in text.split(",")):
            name, _, ratio = entry.partition(":")
            if name not in BIASES:
                known = "; ".join(f"{bias}:RATIO ({meaning})" for bias, meaning in BIASES.items())
                raise ReplayError(f"--bias {entry!r}: allowed are {known}.{nearest(name, BIASES)}")
            try:
                ratios[name] = float(ratio)
            except ValueError:
                ratios[name] = 0.0
            if not 1 <= ratios[name] <= 1000:
                raise ReplayError(f"--bias {entry!r}: the ratio is {ratio!r}; allowed is 1..1000, such as {name}:2")
        return cls(**ratios)

    def chance(self, labelled: float, right: bool, confidence: float) -> float:
        """The chance of a label, `labelled` where nothing favours the answer.

        Where the favoured answers' chance would pass 1, it is 1 and the others' falls: the ratio stays.
        """
        likely = labelled * (1.0 if right else self.wrong) * (self.unsure if confidence < SURE else 1.0)
        return likely / max(1.0, labelled * self.wrong * self.unsure)

    def delay(self, delay: float, right: bool) -> float:
        return delay if right else delay / self.early


@dataclass(frozen=True)
class Event:
    """One row of the stream, and what fate has for its label. Times in seconds."""

    number: int
    at: float
    row: Row
    label: int
    delay: float
    fate: float
    """Uniform in [0, 1): the label comes if this is below its chance."""
    tag: str | None


@dataclass(frozen=True)
class Stream:
    """Poisson arrivals, `rate` a second, of rows drawn with replacement; delays are exponential with mean `delay`."""

    source: Source
    rate: float
    delay: float = 0.0
    drift: Schedule = field(default_factory=Schedule)
    tags: tuple[str, ...] = ()
    classes: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        self.drift.check(self.source.noun)

    def events(self) -> Iterator[Event]:
        """Yield events without end, in order of time; the same for the same seed, whatever became of earlier ones."""
        draw, at, number = np.random.default_rng([self.seed, 0]), 0.0, 0
        while True:
            at_N = at + draw.exponential(1 / self.rate, CHUNK).cumsum()
            row_N = draw.integers(len(self.source), size=CHUNK)
            delay_N = draw.exponential(self.delay, CHUNK)
            fate_N, shuffle_N = draw.random((2, CHUNK))
            other_N = draw.integers(1, max(self.classes, 2), CHUNK)
            tag_N = draw.integers(max(len(self.tags), 1), size=CHUNK)
            for n, at in enumerate(at_N.tolist()):
                row = int(row_N[n])
                label = int(self.source.labels_N[row])
                if shuffle_N[n] < self.drift.strength("labels", at):
                    label = (label + int(other_N[n])) % self.classes
                own = np.random.default_rng([self.seed, 1, number])
                tag = self.tags[int(tag_N[n])] if self.tags else None
                inputs = self._drifted(row, at, own)
                yield Event(number, at, inputs, label, float(delay_N[n]), float(fate_N[n]), tag)
                number += 1

    def _drifted(self, row: int, at: float, generator: np.random.Generator) -> Row:
        inputs, deviation_D = self.source.row(row), self.source.deviation_D
        if isinstance(inputs, str):
            return self._reworded(inputs, int(self.source.labels_N[row]), at, generator)
        if deviation_D is None:
            return self.drift.changed(inputs, at, generator)
        return self.drift.noisy(inputs, deviation_D, at, generator)

    def _reworded(self, text: str, label: int, at: float, generator: np.random.Generator) -> str:
        """Unchanged, and nothing drawn, while no words are lost or replaced."""
        dropped, foreign = (self.drift.strength(kind, at) for kind in ("words", "topic"))
        if not dropped and not foreign:
            return text
        others_M = np.flatnonzero(self.source.labels_N != label)
        other = str(self.source.row(int(generator.choice(others_M)))) if len(others_M) else text
        return drifted(text, other, dropped, foreign, generator)
