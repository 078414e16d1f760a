"""A loaded bundle: onnxruntime for the logits, the bundle's calibrator for the probabilities.

A slow model has two sessions, and its weights are in memory twice. onnxruntime fixes the number of threads when it
loads a model, and the better number depends on the queue (`service.models.lanes`). A fast model has one session: with
all threads if they gain more than the event loop could with their cores, else with one. A very fast model is scored on
the event loop (`service.models.batching`).
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
from typing import Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from service.store.rows import Version
from trueodds.bundle import Bundle, BundleError, LabelBundle, trial
from trueodds.calibrators import Calibrator
from trueodds.inputs import InputError, Inputs

CGROUP = Path("/sys/fs/cgroup")
SLOW_SECONDS = 0.002
"""Time for one input from which each core scores its own batches.

Measured: ResNet-8 .17 ms, ResNet-20 .56, ResNet-20 of twice the width 1.7, ResNet-18 6.7.
"""
INLINE_SECONDS, ONE_CORE_SECONDS = 0.00004, 0.0003
"""Time per input in a batch up to which the event loop scores; the second value applies without another core.

Without another core a thread would overlap nothing. Two workers on 2 cores answer an eighth more with ResNet-8. They
answer fewer with ResNet-20 and 8 clients, because the clients' connections are seldom shared evenly.
"""
BLOCKED_SECONDS = 0.005
"""Longest time for which scoring may block the event loop."""
ANSWER_SECONDS = 0.0002
"""Processor time of an answer without the model."""
SHARED = 0.85
"""Share of the gain of several threads that remains while an event loop takes turns with one of them.

Measured with 32 clients on 2 cores, in images per second with one thread and two: ResNet-8 3,690 and 3,440, ResNet-20
1,350 and 1,800.
"""
ROWS = 16
"""Size of a typical batch under load."""
TRIALS, TRIAL_SECONDS = 12, 0.5
"""Number of timings, and their total time. A slow model gets only as many as fit into it, at least one.

With 5 timings per session, one session after the other, 2 of 8 starts found no gain in two threads for ResNet-20,
because its other core was busy.
"""
CPU = "cpu"
OPTIONS = {"CUDAExecutionProvider": {"use_tf32": "0"}}
"""Options by provider. TensorFloat-32 keeps 10 bits of a factor, too few to reproduce the golden prediction."""

log = logging.getLogger("trueodds")


@dataclass(frozen=True)
class Scores:
    """Outputs of the model for N inputs."""

    logits_NC: npt.NDArray[np.float32]
    """Logits, each row minus its maximum: exactly the calibrator's input."""
    probabilities_NC: npt.NDArray[np.float64]
    index_N: npt.NDArray[np.intp]
    """Most probable class. Ties are broken by the smallest index."""
    raw_confidence_N: npt.NDArray[np.float64]
    """Softmax of the logits at `index_N`, before calibration."""
    confidence_N: npt.NDArray[np.float64]


Loaded = TypeVar("Loaded", Bundle, LabelBundle)


class RunnableModel(Generic[Loaded]):
    """Checked bundle with its onnxruntime sessions: one for batches that share the cores, one for a batch with all."""

    bundle: Loaded

    def __init__(self, bundle: Loaded, provider: str = CPU) -> None:
        self.bundle, self.provider = bundle, provider
        self.lanes = 1
        """Number of batches that may be scored at once. With several, each uses one thread."""
        self.inline = 0
        """Number of inputs that the event loop may score at once; 0 for none."""
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
        """Load a bundle, check that its model accepts the card's input, and try it (`trueodds.bundle.trial`).

        Args:
            directory: Folder of the bundle.
            threads: Number of threads.
            adapt: Use several threads only if the model gains from them beside an event loop.
            inline_seconds: Time per input in a batch up to which the event loop scores.
            providers: Execution providers. The first that reproduces the golden prediction is used; failures before it
                are logged.

        Raises:
            BundleError: A damaged bundle, a graph that onnxruntime refuses, another input shape, or another golden
                prediction.
        """
        model = cls._by_first(cls._read(directory), providers)
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
        elif not adapt or _worth(one, threads):  # otherwise a second session cannot pay off
            session = model._session(threads)
            alone, together = model._seconds(model._many(row), model._one, session)
            if not adapt or _worth(alone / ROWS, alone / together):
                model._one = model._all = session
        return model

    @classmethod
    def _read(cls, directory: Path) -> Loaded:
        """Read the bundle of a folder."""
        raise NotImplementedError

    @classmethod
    def _by_first(cls, bundle: Loaded, providers: Sequence[str]) -> Self:
        *others, last = providers
        for provider in others:
            try:
                return cls(bundle, provider)
            except BundleError as error:
                log.warning("%s cannot run on %s: %s", bundle.directory, provider, error)
        return cls(bundle, last)

    def _session(self, threads: int) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        # Spinning threads save microseconds for one client, but take cores from HTTP and SQLite under load.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        bundle, name = self.bundle, providers_by_name()[self.provider]
        wanted = list(dict.fromkeys([name, providers_by_name()[CPU]]))
        try:
            session = ort.InferenceSession(
                str(bundle.model_path), options, providers=wanted, provider_options=[OPTIONS.get(n, {}) for n in wanted]
            )
        except Exception as error:  # onnxruntime has a dozen exception types without a common base
            raise BundleError(trial.reason_to_refuse(bundle.model_path, str(error), ort.__version__)) from None
        if session.get_providers()[0] != name:  # it falls back to the next one and reports that on stderr only
            raise BundleError(f"onnxruntime cannot start {name}; its libraries or its device are missing")
        self._inputs = [tensor.name for tensor in session.get_inputs()]
        self._outputs = [session.get_outputs()[0].name]
        """Names in the graph. onnxruntime makes new objects whenever it is asked for them."""
        infer = functools.partial(self._run, session)
        trial.check(bundle, session.get_inputs(), session.get_outputs(), infer)
        return session

    def _inline(self, seconds: float, row: Inputs) -> int:
        """Return how many inputs the event loop may score at once; 0 if one in a batch takes longer than `seconds`."""
        if self._seconds(row, self._one)[0] > BLOCKED_SECONDS:
            return 0
        (many,) = self._seconds(self._many(row), self._one)
        return int(ROWS * BLOCKED_SECONDS / many) if many <= ROWS * seconds else 0

    def _many(self, row: Inputs) -> Inputs:
        return self.bundle.card.input.join([row] * ROWS)

    def _seconds(self, inputs: Inputs, *sessions: ort.InferenceSession) -> list[float]:
        """Return the shortest time of each session. They take turns, because other processes may use the cores.

        The time of a session alone, which has one thread, is that thread's processor time. For ResNet-8 on busy cores,
        26 of 48 timings by the clock were above .3 ms an image, and none of 48 by processor time (.23 to .24 ms). A
        processor time of 0 comes from a system that counts it in coarse steps. The clock's time then counts.
        """
        seconds, own = [math.inf] * len(sessions), math.inf
        began = time.perf_counter()
        for turn in range(TRIALS):
            if turn and time.perf_counter() - began > TRIAL_SECONDS:
                break
            for k, session in enumerate(sessions):
                started, own_started = time.perf_counter(), time.thread_time()
                self._run(session, inputs)
                own = min(own, time.thread_time() - own_started)
                seconds[k] = min(seconds[k], time.perf_counter() - started)
        if len(sessions) == 1 and own > 0:
            return [own]
        return seconds

    def _run(self, session: ort.InferenceSession, inputs: Inputs) -> npt.NDArray[np.float32]:
        answer: npt.NDArray[np.float32] = session.run(self._outputs, self.bundle.card.input.feed(inputs, self._inputs))[
            0
        ]
        return answer

    def logits(self, inputs: Inputs, *, alone: bool = False) -> npt.NDArray[np.float32]:
        """Return the float32 logits of the graph, unchanged. `alone`: use all threads."""
        return self._run(self._all if alone else self._one, inputs)

    def finite_logits(self, inputs: Inputs, *, alone: bool = False) -> npt.NDArray[np.float32]:
        """Return the logits of the graph.

        Raises:
            InputError: The logits of an input are not finite.
        """
        raw_NC = self.logits(inputs, alone=alone)
        if not (finite_NC := np.isfinite(raw_NC)).all():
            row, column = np.argwhere(~finite_NC)[0].tolist()
            message = f"row {row}: the model's logits are not finite ({raw_NC[row, column]:g})"
            raise InputError(
                "not_finite", f"{message}; check the input for extreme values, which overflow in the model"
            )
        return raw_NC


class Model(RunnableModel[Bundle]):
    """Model of exclusive classes."""

    @classmethod
    def _read(cls, directory: Path) -> Bundle:
        return Bundle.load(directory)

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
            ordered=card.ordered,
            act_alone=card.act_alone,
            set_rules=() if card.sets is None else card.sets.rules,
        )

    def score(self, inputs: Inputs, tags: Sequence[str | None] | None = None, *, alone: bool = False) -> Scores:
        """Return logits, probabilities and predicted class of every input.

        Args:
            inputs: The inputs.
            tags: Tag of each input. It is the group of a calibrator by group.
            alone: Use all threads.

        Raises:
            InputError: The logits of an input are not finite.
        """
        raw_NC = self.finite_logits(inputs, alone=alone)
        return of_logits(self.bundle.calibrator, raw_NC - raw_NC.max(axis=1, keepdims=True), tags)


def _worth(seconds: float, gain: float) -> bool:
    """Return whether `gain` times the speed of one thread pays off beside an event loop.

    With one thread, the model uses all of a core and answers every `seconds`. With all threads, model and event loop
    share the power of `gain` cores.
    """
    return SHARED * gain / (seconds + ANSWER_SECONDS) > 1 / seconds


def of_logits(
    calibrator: Calibrator, logits_NC: npt.NDArray[np.float32], tags: Sequence[str | None] | None = None
) -> Scores:
    """Return the scores of logits (each row minus its maximum). Stored logits and tags give the same answer again."""
    probabilities_NC = calibrator(logits_NC, groups=tags)
    rows_N, index_N = np.arange(len(logits_NC)), probabilities_NC.argmax(axis=1)
    odds_NC = np.exp(logits_NC.astype(np.float64))
    raw_confidence_N = odds_NC[rows_N, index_N] / odds_NC.sum(axis=1)
    return Scores(logits_NC, probabilities_NC, index_N, raw_confidence_N, probabilities_NC[rows_N, index_N])


def providers_by_name() -> dict[str, str]:
    """Return the execution providers of this onnxruntime by their names in the setting `providers`: cpu, cuda, ..."""
    return {name.removesuffix("ExecutionProvider").lower(): name for name in ort.get_available_providers()}


def available_cores(cgroup: Path = CGROUP) -> int:
    """Return the number of cores that this process may use: its affinity mask, limited by the container, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, math.ceil(_quota(cgroup) or cores)))


def _quota(cgroup: Path) -> float | None:
    """Return the container's processor quota in cores; None if there is no readable limit."""
    first = cgroup / "cpu"
    for files in ([cgroup / "cpu.max"], [first / "cpu.cfs_quota_us", first / "cpu.cfs_period_us"]):  # cgroup v2, v1
        with contextlib.suppress(OSError, ValueError):  # without a limit, v2 has "max" and v1 has -1
            quota, period = (int(word) for file in files for word in file.read_text().split())
            return quota / period if quota > 0 else None
    return None
