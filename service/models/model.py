"""A bundle ready to answer: onnxruntime for the logits, the bundle's calibrator for the probabilities.

A slow model has two sessions, and its weights are in memory twice: onnxruntime fixes the number of threads when it
loads a model, and which is better depends on what waits (`service.models.lanes`). A fast one has one session, of all
threads where they gain more than the event loop would have made of their cores, else of one. A very fast one is scored
on the event loop itself (`service.models.batching`).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from service.store.rows import Version
from trueodds.bundle import Bundle, BundleError, unloadable
from trueodds.bundle.trial import check as check_bundle
from trueodds.calibrators import Calibrator
from trueodds.inputs import InputError, Inputs

CGROUP = Path("/sys/fs/cgroup")
SLOW_SECONDS = 0.002
"""Time for one input from which each core scores batches of its own. Measured: ResNet-8 .17 ms, ResNet-20 .56, with
twice its width 1.7, ResNet-18 6.7."""
INLINE_SECONDS, ONE_CORE_SECONDS = 0.00004, 0.0003
"""Time for one of many inputs up to which the event loop scores them itself; and where the process has no other core,
so that a thread would overlap nothing: two workers in 2 cores answer an eighth more with ResNet-8, and fewer with
ResNet-20 at 8 clients, whose connections they seldom share evenly."""
BLOCKED_SECONDS = 0.005
"""How long scoring may keep the event loop from all else."""
ANSWER_SECONDS = 0.0002
"""Processor time of an answer beside the model."""
SHARED = 0.85
"""What is left of the gain of several threads where an event loop takes turns with one of them. Measured at 32 clients
in 2 cores, images a second by one thread and by two: ResNet-8 3,690 and 3,440, ResNet-20 1,350 and 1,800."""
ROWS = 16
"""A batch as it comes under load."""
TRIALS, TRIAL_SECONDS = 12, 0.5
"""With 5, one after the other, 2 of 8 starts found no gain in two threads for ResNet-20: its other core was busy. A
model that takes long for one input needs no more trials than go into half a second, or one."""
CPU = "cpu"
OPTIONS = {"CUDAExecutionProvider": {"use_tf32": "0"}}
"""Of providers. TensorFloat-32 keeps 10 bits of a factor: the golden prediction would be missed."""

log = logging.getLogger("trueodds")


@dataclass(frozen=True)
class Scores:
    """The model's outputs for N inputs."""

    logits_NC: npt.NDArray[np.float32]
    """Each row minus its maximum: exactly the calibrator's input."""
    probabilities_NC: npt.NDArray[np.float64]
    index_N: npt.NDArray[np.intp]
    """The most probable class; ties go to the smallest index."""
    raw_confidence_N: npt.NDArray[np.float64]
    """Softmax of the logits at `index_N`: before the calibrator."""
    confidence_N: npt.NDArray[np.float64]


class Model:
    """A checked bundle and its onnxruntime sessions: for a batch among others, and for one that has all cores."""

    def __init__(self, bundle: Bundle, provider: str = CPU) -> None:
        self.bundle, self.provider = bundle, provider
        self.lanes = 1
        """Batches that may be scored at once, each by one thread where they are several."""
        self.inline = 0
        """Inputs that the event loop may score itself at once; 0: none."""
        self._one = self._all = self._session(1)

    @classmethod
    def load(
        cls,
        directory: Path,
        threads: int,
        *,
        adapt: bool = False,
        inline_seconds: float = 0.0,
        providers: Sequence[str] = (CPU,),
    ) -> Self:
        """Load a bundle, check that its model takes what its card says, and try it (`trueodds.bundle.trial`).

        `adapt`: `threads` only for a model that gains by them beside an event loop, else one.
        `inline_seconds`: the time for one of many inputs up to which the event loop scores them. `providers`: the first
        of them that reproduces it; one that does not is logged where another follows.

        Raises:
            BundleError: a damaged bundle, a graph onnxruntime refuses, another input shape, another answer.
        """
        model = cls._by_first(Bundle.load(directory), providers)
        if missing := model.bundle.card.input.missing_packages:
            log.warning("%s: %s", directory, missing)
        if (threads == 1 and not inline_seconds) or model.provider != CPU:
            return model
        row = model.bundle.golden_input()
        if inline_seconds:
            model.inline = model._inline(inline_seconds, model.bundle.card.input.longest(row))
        if threads == 1 or model.inline:
            return model
        (one,) = model._seconds(row, model._one)
        if one >= SLOW_SECONDS:
            model._all, model.lanes = model._session(threads), threads
        elif not adapt or _worth(one, threads):  # else a second session is not even tried
            session = model._session(threads)
            alone, together = model._seconds(model._many(row), model._one, session)
            if not adapt or _worth(alone / ROWS, alone / together):
                model._one = model._all = session
        return model

    @classmethod
    def _by_first(cls, bundle: Bundle, providers: Sequence[str]) -> Self:
        *others, last = providers
        for provider in others:
            try:
                return cls(bundle, provider)
            except BundleError as error:
                log.warning("%s is not run by %s: %s", bundle.directory, provider, error)
        return cls(bundle, last)

    def _session(self, threads: int) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        # Spinning threads win microseconds for one client, and take the cores from HTTP and SQLite under load.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        bundle, name = self.bundle, providers_by_name()[self.provider]
        wanted = list(dict.fromkeys([name, providers_by_name()[CPU]]))
        try:
            session = ort.InferenceSession(
                str(bundle.model_path), options, providers=wanted, provider_options=[OPTIONS.get(n, {}) for n in wanted]
            )
        except Exception as error:  # onnxruntime has a dozen exception types without a common base
            raise BundleError(unloadable.why(bundle.model_path, str(error), ort.__version__)) from None
        if session.get_providers()[0] != name:  # it goes on with the next one, and says so on stderr only
            raise BundleError(f"onnxruntime cannot start {name} here; its libraries or its device are missing")
        infer = functools.partial(_logits, bundle, session)
        check_bundle(bundle, session.get_inputs(), session.get_outputs(), infer)
        return session

    def _inline(self, seconds: float, row: Inputs) -> int:
        """How many inputs the event loop may score at once, if one of many takes no longer than `seconds`."""
        if self._seconds(row, self._one)[0] > BLOCKED_SECONDS:
            return 0
        (many,) = self._seconds(self._many(row), self._one)
        return int(ROWS * BLOCKED_SECONDS / many) if many <= ROWS * seconds else 0

    def _many(self, row: Inputs) -> Inputs:
        return self.bundle.card.input.join([row] * ROWS)

    def _seconds(self, inputs: Inputs, *sessions: ort.InferenceSession) -> list[float]:
        """The shortest time of each, in turns: others may be using the cores."""
        seconds = [math.inf] * len(sessions)
        began = time.perf_counter()
        for trial in range(TRIALS):
            if trial and time.perf_counter() - began > TRIAL_SECONDS:
                break
            for k, session in enumerate(sessions):
                started = time.perf_counter()
                _logits(self.bundle, session, inputs)
                seconds[k] = min(seconds[k], time.perf_counter() - started)
        return seconds

    @property
    def version(self) -> Version:
        card = self.bundle.card
        version, fit = self.bundle.version, self.bundle.calibrator
        classes = tuple(card.classes)
        return Version(
            card.name,
            version,
            classes,
            fit,
            card.metrics,
            card.reference,
            positive=card.positive,
            act_alone=card.act_alone,
        )

    def score(self, inputs: Inputs, *, alone: bool = False) -> Scores:
        """Logits, probabilities and the predicted class of every input; by all threads where nothing else is scored.

        Raises:
            InputError: an input whose logits are not finite.
        """
        raw_NC = _logits(self.bundle, self._all if alone else self._one, inputs)
        top_N1 = raw_NC.max(axis=1, keepdims=True)
        if not np.isfinite(top_N1).all():  # a NaN carries over into the maximum
            row = int(np.isfinite(top_N1[:, 0]).argmin())
            message = f"row {row}: the model gives no finite logits for it ({top_N1[row, 0]:g})"
            raise InputError("not_finite", f"{message}; look for extreme values in it: the model's numbers overflow")
        return of_logits(self.bundle.calibrator, raw_NC - top_N1)

    def logits(self, inputs: Inputs) -> npt.NDArray[np.float32]:
        """The graph's own float32 logits."""
        return _logits(self.bundle, self._one, inputs)


def _worth(seconds: float, gain: float) -> bool:
    """Whether threads that score `gain` times as fast as one do so beside an event loop too.

    With one thread the model takes all of a core, and answers a `seconds`-th. With all, model and event loop share what
    `gain` cores would do.
    """
    return SHARED * gain / (seconds + ANSWER_SECONDS) > 1 / seconds


def _logits(bundle: Bundle, session: ort.InferenceSession, inputs: Inputs) -> npt.NDArray[np.float32]:
    feed = bundle.card.input.feed(inputs, [tensor.name for tensor in session.get_inputs()])
    answer: npt.NDArray[np.float32] = session.run([session.get_outputs()[0].name], feed)[0]
    return answer


def of_logits(calibrator: Calibrator, logits_NC: npt.NDArray[np.float32]) -> Scores:
    """The scores of logits, each row minus its maximum: so that stored ones are answered as they were."""
    probabilities_NC = calibrator(logits_NC)
    rows_N, index_N = np.arange(len(logits_NC)), probabilities_NC.argmax(axis=1)
    odds_NC = np.exp(logits_NC.astype(np.float64))
    raw_confidence_N = odds_NC[rows_N, index_N] / odds_NC.sum(axis=1)
    return Scores(logits_NC, probabilities_NC, index_N, raw_confidence_N, probabilities_NC[rows_N, index_N])


def providers_by_name() -> dict[str, str]:
    """What this onnxruntime can run models with, by the names of the setting `providers`: cpu, cuda, ..."""
    return {name.removesuffix("ExecutionProvider").lower(): name for name in ort.get_available_providers()}


def available_cores(cgroup: Path = CGROUP) -> int:
    """Cores this process may use: its affinity mask, cut to the container's quota, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, math.ceil(_quota(cgroup) or cores)))


def _quota(cgroup: Path) -> float | None:
    """The container's share of the processors, in cores; None where it has no limit, or none that can be read."""
    first = cgroup / "cpu"
    for files in ([cgroup / "cpu.max"], [first / "cpu.cfs_quota_us", first / "cpu.cfs_period_us"]):  # cgroup v2, v1
        with contextlib.suppress(OSError, ValueError):  # v2 says "max" where there is no limit, v1 -1
            quota, period = (int(word) for file in files for word in file.read_text().split())
            return quota / period if quota > 0 else None
    return None
