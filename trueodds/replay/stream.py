"""Stream of rows: times, labels and delays of labels, decided by a seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from trueodds.errors import nearest
from trueodds.replay import ReplayError
from trueodds.replay.drift import Schedule, change_words
from trueodds.replay.kinds import BIASES
from trueodds.replay.source import Row, RowSource

SURE = 0.9
CHUNK = 1024


@dataclass(frozen=True)
class Bias:
    """Dependence of labels on the answer; 1 means none.

    `wrong` and `unsure` are ratios of probabilities, `early` of delays.
    """

    wrong: float = 1.0
    unsure: float = 1.0
    early: float = 1.0

    @classmethod
    def parse(cls, texts: list[str]) -> Bias:
        """Parse texts such as `wrong:2`, each with one or several entries separated by commas.

        Raises:
            ReplayError: A name is unknown, or a ratio is not a number from 1 to 1,000.
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

    def chance(self, share: float, right: bool, confidence: float) -> float:
        """Return the probability of a label; it is `share` without bias.

        If the probability of the favoured answers would exceed 1, it is 1, and that of the others is lowered to keep
        the ratio.
        """
        likely = share * (1.0 if right else self.wrong) * (self.unsure if confidence < SURE else 1.0)
        return likely / max(1.0, share * self.wrong * self.unsure)

    def delay(self, delay: float, right: bool) -> float:
        return delay if right else delay / self.early


@dataclass(frozen=True)
class Event:
    """One row of the stream, and the random values for its label. Times are in seconds."""

    number: int
    at: float
    row: Row
    label: int
    delay: float
    fate: float
    """Uniform random number in [0, 1). The label arrives if this is below its probability."""
    tag: str | None


@dataclass(frozen=True)
class Stream:
    """Poisson arrivals, `rate` per second, of rows drawn with replacement. Delays are exponential with mean `delay`.

    With `tags`, each row gets one of them at random. Without them, it has the tag of the source.
    """

    source: RowSource
    rate: float
    delay: float = 0.0
    drift: Schedule = field(default_factory=Schedule)
    tags: tuple[str, ...] = ()
    classes: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        self.drift.check(self.source.noun)

    def events(self) -> Iterator[Event]:
        """Yield events without end, in order of time. The same seed gives the same events, whatever the answers."""
        draw, at, number, own_N = np.random.default_rng([self.seed, 0]), 0.0, 0, self.source.tags_N
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
                tag = self.tags[int(tag_N[n])] if self.tags else None if own_N is None else own_N[row]
                inputs = self._drift(row, at, own)
                yield Event(number, at, inputs, label, float(delay_N[n]), float(fate_N[n]), tag)
                number += 1

    def _drift(self, row: int, at: float, generator: np.random.Generator) -> Row:
        """Return a row with the drift at a time."""
        inputs, deviation_D = self.source.row(row), self.source.deviation_D
        if isinstance(inputs, str):
            return self._reword(inputs, int(self.source.labels_N[row]), at, generator)
        if deviation_D is None:
            return self.drift.change_image(inputs, at, generator)
        return self.drift.add_noise(inputs, deviation_D, at, generator)

    def _reword(self, text: str, label: int, at: float, generator: np.random.Generator) -> str:
        """Return a text with the drift at a time. While no words are removed or replaced, nothing is drawn."""
        removed, foreign = (self.drift.strength(kind, at) for kind in ("words", "topic"))
        if not removed and not foreign:
            return text
        others_M = np.flatnonzero(self.source.labels_N != label)
        other = str(self.source.row(int(generator.choice(others_M)))) if len(others_M) else text
        return change_words(text, other, removed, foreign, generator)
