"""Drift: changes of rows and labels during a replay.

    KIND:STRENGTH@TIME          from then on
    KIND:STRENGTH@TIME..TIME    grows evenly from the previous strength, and then stays

Kinds may be combined. A later entry of a kind replaces earlier ones: `noise:0.5@40s,noise:0@90s` is noise for 50
seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.errors import nearest
from trueodds.inputs import Inputs
from trueodds.inputs.image.pictures import Pixels
from trueodds.replay import ReplayError
from trueodds.replay.kinds import GRAMMAR, KINDS, seconds


def clock(at: float) -> str:
    """Format seconds as `m:ss` or `h:mm:ss`."""
    minutes, rest = divmod(int(at), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@dataclass(frozen=True)
class DriftStep:
    """Entry of a schedule: at `start`, or evenly from `start` to `end`, the kind's strength becomes `strength`."""

    kind: str
    strength: float
    start: float
    end: float

    def __str__(self) -> str:
        ramp = self.end > self.start
        if self.strength == KINDS[self.kind].neutral:
            return f"{self.kind} fades until {clock(self.end)}" if ramp else f"no {self.kind} any more"
        grows = f" grows to {self.strength:g} until {clock(self.end)}"
        return f"{self.kind}{grows}" if ramp else f"{self.kind} {self.strength:g} from now on"


@dataclass(frozen=True)
class Schedule:
    """Steps in the order of their start. Steps of one kind do not overlap."""

    steps: tuple[DriftStep, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Schedule:
        """Parse entries. Each text has one or several, separated by commas.

        Raises:
            ReplayError: An entry is not valid. The message names it, the allowed values, and the nearest kind.
        """
        entries = [entry.strip() for text in texts for entry in text.split(",")]
        steps = sorted(map(_step, entries), key=lambda step: step.start)
        for kind in KINDS:
            own = [step for step in steps if step.kind == kind]
            for before, after in pairwise(own):
                if after.start < max(before.end, math.nextafter(before.start, math.inf)):
                    places = f"{clock(before.start)}..{clock(before.end)} and {clock(after.start)}"
                    raise ReplayError(f"two entries for {kind} overlap ({places}); give one after the other")
        return cls(tuple(steps))

    def check(self, noun: str) -> None:
        """Check that such rows can have this drift.

        Raises:
            ReplayError: They cannot.
        """
        if wrong := next((step.kind for step in self.steps if noun not in KINDS[step.kind].nouns), None):
            allowed = ", ".join(name for name, kind in KINDS.items() if noun in kind.nouns)
            others = " and ".join(f"{one}s" for one in KINDS[wrong].nouns)
            raise ReplayError(
                f"--drift {wrong} applies to {others}, but the model takes {noun}s; allowed are {allowed}"
            )

    def strength(self, kind: str, at: float) -> float:
        """Return the strength of a kind of drift at a time; before any entry, its neutral value."""
        value = KINDS[kind].neutral
        for step in self.steps:
            if step.kind != kind or at < step.start:
                continue
            grown = 1.0 if at >= step.end else (at - step.start) / (step.end - step.start)
            value += (step.strength - value) * grown
        return value

    def change_image(self, pixels_HWC: Pixels, at: float, generator: np.random.Generator) -> Pixels:
        """Return an image with the drift at a time: blur, contrast, brightness, then noise, clipped to 0..255.

        While every kind is neutral, the image is unchanged and nothing is drawn.
        """
        kinds = ("noise", "blur", "contrast", "brightness")
        noise, blur, contrast, brightness = (self.strength(kind, at) for kind in kinds)
        if (noise, blur, contrast, brightness) == (0, 0, 1, 0):
            return pixels_HWC
        image_HWC = pixels_HWC / 255
        if blur:
            image_HWC = scipy.ndimage.gaussian_filter(image_HWC, (blur, blur, 0), mode="nearest")
        mean = image_HWC.mean()
        image_HWC = mean + contrast * (image_HWC - mean) + brightness
        if noise:
            image_HWC += noise * generator.standard_normal(image_HWC.shape)
        drifted_HWC: Pixels = np.rint(255 * image_HWC.clip(0, 1)).astype(np.uint8)
        return drifted_HWC

    def add_noise(
        self, vector_D: Inputs, deviation_D: npt.NDArray[np.float64], at: float, generator: np.random.Generator
    ) -> Inputs:
        """Return a vector with the noise at a time, in units of `deviation_D`. Missing values stay missing.

        Without noise the vector is unchanged and nothing is drawn.
        """
        if not (noise := self.strength("noise", at)):
            return vector_D
        noise_D = noise * deviation_D * generator.standard_normal(vector_D.shape)
        noisy_D: Inputs = (vector_D + noise_D).astype(vector_D.dtype)
        return noisy_D


def change_words(text: str, other: str, loss: float, foreign: float, generator: np.random.Generator) -> str:
    """Return a text without a share `loss` of its words, and with a share `foreign` of the rest replaced.

    The replacements are words of `other`, a text of another class. At least one word stays.
    """
    words = text.split()
    chance_W, lost_W = generator.random((2, len(words)))
    theirs = other.split()
    theirs = [theirs[k] for k in generator.integers(len(theirs), size=len(words))]
    kept = [
        new if chance < foreign else old
        for old, new, chance, lost in zip(words, theirs, chance_W, lost_W, strict=True)
        if lost >= loss
    ]
    return " ".join(kept or words[:1])


def _step(entry: str) -> DriftStep:
    kind, colon, rest = entry.partition(":")
    strength_text, at, when = rest.partition("@")
    if not (colon and at):
        raise ReplayError(f"--drift {entry!r}: expected {GRAMMAR}")
    if kind not in KINDS:
        known = "; ".join(f"{name} ({one.meaning})" for name, one in KINDS.items())
        raise ReplayError(f"--drift {entry!r}: unknown kind {kind!r}; allowed are {known}.{nearest(kind, KINDS)}")
    allowed = KINDS[kind]
    try:
        strength = float(strength_text)
    except ValueError:
        strength = math.nan
    if not allowed.low <= strength <= allowed.high:
        limits = f"{allowed.low:g}..{allowed.high:g}: {allowed.meaning}"
        raise ReplayError(f"--drift {entry!r}: the strength of {kind} is {strength_text!r}; allowed is {limits}")
    start_text, dots, end_text = when.partition("..")
    try:
        start = seconds(start_text)
        end = seconds(end_text) if dots else start
    except ValueError as error:
        raise ReplayError(f"--drift {entry!r}: {error}; expected {GRAMMAR}") from None
    if dots and end <= start:
        raise ReplayError(f"--drift {entry!r}: {end_text} is not after {start_text}; expected {GRAMMAR}")
    return DriftStep(kind, strength, start, end)
