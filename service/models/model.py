"""A bundle ready to answer: onnxruntime for the logits, the bundle's calibrator for the probabilities.

A model that is worth several threads has two sessions, and its weights are in memory twice: onnxruntime fixes the
number of threads when it loads a model, and which is better depends on what waits (`service.models.batching`).
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from service.store.records import Version
from trueodds.bundle.bundle import Bundle, BundleError
from trueodds.calibrators import Calibrator
from trueodds.inputs.pictures import Pixels

CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
SHARED_SECONDS = 0.002
"""Time for one image from which several threads are worth their hand-overs. Measured, one thread and two: ResNet-8 .17
and .19 ms, ResNet-20 .56 and .69, with twice its width 1.7 and 1.6, ResNet-18 6.7 and 4.1; and two threads take up to
1.6 times the processor time, which a busy service has not."""
TRIALS = 5


@dataclass(frozen=True)
class Scores:
    """The model's outputs for N images."""

    logits_NC: npt.NDArray[np.float32]
    """Each row minus its maximum: exactly the calibrator's input."""
    probabilities_NC: npt.NDArray[np.float64]
    index_N: npt.NDArray[np.intp]
    """The most probable class; ties go to the smallest index."""
    raw_confidence_N: npt.NDArray[np.float64]
    """Softmax of the logits at `index_N`: before the calibrator."""
    confidence_N: npt.NDArray[np.float64]


class Model:
    """A checked bundle and its onnxruntime sessions: one of a single thread, and one of `threads` if they are more."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.threads = 1
        """Batches that may be scored at once, each by one of them."""
        self._one = self._all = self._session(1)

    @classmethod
    def load(cls, directory: Path, threads: int, *, adapt: bool = False) -> Self:
        """Load a bundle, check that its model takes what its card says, and reproduce its golden prediction.

        `adapt`: `threads` only for a model that is slow enough to gain by them, else one.

        Raises:
            BundleError: a damaged bundle, a graph onnxruntime refuses, another input shape, another answer.
        """
        model = cls(Bundle.load(directory))
        if threads > 1 and not (adapt and model._seconds() < SHARED_SECONDS):
            model._all, model.threads = model._session(threads), threads
        return model

    def _session(self, threads: int) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        # Spinning threads win microseconds for one client, and take the cores from HTTP and SQLite under load.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        bundle = self.bundle
        try:
            session = ort.InferenceSession(str(bundle.model_path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has a dozen exception types without a common base
            raise BundleError(f"{bundle.model_path}: onnxruntime cannot load it: {error}") from None
        _check_signature(bundle, session)
        try:
            bundle.check_golden(lambda images_NHWC: _logits(session, images_NHWC))
        except BundleError:
            raise
        except Exception as error:
            raise BundleError(f"{bundle.model_path}: the golden input cannot be run: {error}") from None
        return session

    def _seconds(self) -> float:
        """The shortest time for one image: others may be using the cores."""
        image_NHWC, seconds = np.zeros((1, *self.bundle.card.input.shape), np.uint8), list[float]()
        for _ in range(TRIALS):
            started = time.perf_counter()
            self.logits(image_NHWC)
            seconds.append(time.perf_counter() - started)
        return min(seconds)

    @property
    def version(self) -> Version:
        card = self.bundle.card
        version, fit = self.bundle.version, self.bundle.calibrator
        return Version(card.name, version, tuple(card.classes), fit, card.metrics, card.reference)

    def score(self, images_NHWC: Pixels, *, alone: bool = False) -> Scores:
        """Logits, probabilities and the predicted class of every image; by all threads where nothing else is scored."""
        raw_NC = _logits(self._all if alone else self._one, images_NHWC)
        logits_NC = raw_NC - raw_NC.max(axis=1, keepdims=True)
        return of_logits(self.bundle.calibrator, logits_NC)

    def logits(self, images_NHWC: Pixels) -> npt.NDArray[np.float32]:
        """The graph's own float32 logits."""
        return _logits(self._one, images_NHWC)


def _logits(session: ort.InferenceSession, images_NHWC: Pixels) -> npt.NDArray[np.float32]:
    (images, *_), (logits, *_) = session.get_inputs(), session.get_outputs()
    answer: npt.NDArray[np.float32] = session.run([logits.name], {images.name: images_NHWC})[0]
    return answer


def of_logits(calibrator: Calibrator, logits_NC: npt.NDArray[np.float32]) -> Scores:
    """The scores of logits, each row minus its maximum: so that stored ones are answered as they were."""
    probabilities_NC = calibrator(logits_NC)
    rows_N, index_N = np.arange(len(logits_NC)), probabilities_NC.argmax(axis=1)
    odds_NC = np.exp(logits_NC.astype(np.float64))
    raw_confidence_N = odds_NC[rows_N, index_N] / odds_NC.sum(axis=1)
    return Scores(logits_NC, probabilities_NC, index_N, raw_confidence_N, probabilities_NC[rows_N, index_N])


def available_cores(cpu_max: Path = CPU_MAX) -> int:
    """Cores this process may use: its affinity mask, cut to the container's quota (cgroup v2), at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = cpu_max.read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, math.ceil(int(quota) / int(period))))


def _check_signature(bundle: Bundle, session: ort.InferenceSession) -> None:
    inputs, outputs = session.get_inputs(), session.get_outputs()
    expected = ["N", *bundle.card.input.shape]
    if len(inputs) != 1 or inputs[0].type != "tensor(uint8)" or len(inputs[0].shape) != 4:
        signature = ", ".join(f"{i.name}: {i.type} {i.shape}" for i in inputs)
        raise BundleError(f"{bundle.model_path} takes ({signature}); expected one uint8 input of shape {expected}")
    batch, *sizes = inputs[0].shape
    fixed = [(size, want) for size, want in zip(sizes, expected[1:], strict=True) if isinstance(size, int)]
    if isinstance(batch, int) or any(size != want for size, want in fixed):
        problem = f"{bundle.model_path}: input {inputs[0].name!r} has shape {inputs[0].shape}"
        raise BundleError(f"{problem}, its card says {expected} with any number N of images")
    if outputs[0].type != "tensor(float)":
        raise BundleError(
            f"{bundle.model_path}: output {outputs[0].name!r} is {outputs[0].type}; expected float32 logits"
        )
