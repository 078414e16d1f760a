"""Publishers that meet a full volume or are killed, beside a service that serves their versions.

A publication succeeds completely or changes nothing: roles and audit logs are as before, or the new version is served.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from benchmarks.faults.disk import BALLAST
from benchmarks.faults.ledger import Ledger, LostError
from benchmarks.faults.process import ROOT, Service
from trueodds.bundle import DEFAULT, Bundle, PublishedModels, open_models
from trueodds.calibrators import Temperature

SWITCH_SECONDS = 10.0
LOOK_SECONDS = 1.2
"""Seconds within which the service looks for models, which it does every second."""
PAGE = 4096


class Variants:
    """Bundles of one net with different temperatures, and therefore different versions."""

    def __init__(self, published: Path, folder: Path) -> None:
        self._source, self._folder, self._count = Bundle.load(published), folder, 0

    def next(self) -> Bundle:
        self._count += 1
        card = self._source.card
        return Bundle.write(
            self._folder / f"variant-{self._count}",
            self._source.model_path,
            Temperature(1 + self._count / 100),
            card,
            golden_input=self._source.golden_input()[0],
            golden_logits=card.golden.logits,
            reference=card.reference,
        )


def start_publishing(bundle: Bundle, models: Path, *options: str) -> subprocess.Popen[str]:
    """Start `trueodds publish` as a process."""
    command = [sys.executable, "-m", "trueodds", "publish", "--bundle", str(bundle.directory), "--models", str(models)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, *options], cwd=ROOT, env=environment, text=True, stdout=pipe, stderr=pipe)


def publish(bundle: Bundle, models: Path, *options: str) -> None:
    """Publish. Raises LostError if it fails or leaves anything over."""
    process = start_publishing(bundle, models, *options)
    _, said = process.communicate(timeout=60)
    if process.returncode:
        raise LostError(f"publishing failed: {said}")
    _check_published(bundle, models, answers=not options)


class FullVolume:
    """A tmpfs that leaves the publisher a given number of bytes."""

    words = "No space left on device", "free some space"

    @contextlib.contextmanager
    def short_of(self, spare: int, models: Path) -> Iterator[Callable[[subprocess.Popen[str]], None]]:
        with (models / f".{BALLAST}").open("wb", buffering=0) as ballast:
            with contextlib.suppress(OSError):
                while True:
                    ballast.write(b"\0" * PAGE)
            ballast.truncate(max(0, ballast.tell() - spare))
        try:
            yield lambda process: None
        finally:
            (models / f".{BALLAST}").unlink()


class LimitOnFiles:
    """RLIMIT_FSIZE of the publisher: none of its files may become larger."""

    words = "File too large", "raise the limit"

    @contextlib.contextmanager
    def short_of(self, spare: int, models: Path) -> Iterator[Callable[[subprocess.Popen[str]], None]]:
        infinite = resource.RLIM_INFINITY

        def limit(process: subprocess.Popen[str]) -> None:
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (spare, infinite))

        yield limit


Volume: TypeAlias = FullVolume | LimitOnFiles


def publish_without_space(
    service: Service, ledger: Ledger, volume: Volume, variants: Variants, times: int, seed: int = 0
) -> dict[str, int]:
    """Publish without enough space `times` times, each time with another amount of it, and then with enough space.

    Every second time the bundle is already copied, so that only roles and audit logs have to be written.

    Raises:
        LostError: A failure without a clear message or with a change; a version that is not served afterwards;
            something acknowledged that is lost; a service that is not ready.
    """
    rng, done = random.Random(seed), {"failed": 0, "copying": 0, "changing_roles": 0, "fitted": 0, "published": 0}
    models = service.models
    service.start().until(200)
    with ledger.load(service, predicting=1, labelling=1):
        while done["failed"] < times:
            bundle = variants.next()
            sizes = [(bundle.directory / name).stat().st_size for name in bundle.files]
            copied = done["failed"] % 2 == 1
            if copied:
                publish(bundle, models, "--role", "none")
            before = _roles_and_logs(models)
            if isinstance(volume, FullVolume):
                spare = PAGE * rng.randrange(3 if copied else sum(size // PAGE + 1 for size in sizes) + 3)
            else:
                logs = [size for name, size in _sizes(models) if name.endswith(".jsonl")]
                spare = rng.randrange(max(logs) + 100 if copied else max(sizes))
            with volume.short_of(spare, models) as limit:
                process = start_publishing(bundle, models)
                limit(process)
                _, said = process.communicate(timeout=60)
                if service.get("/health/ready").status != 200:
                    raise LostError("the service is not ready while the models' volume is full")
            if process.returncode:
                done["failed"] += 1
                done["changing_roles" if copied else "copying"] += 1
                _check_words(said, volume.words, models)
                _check_unchanged(bundle, models, before)
            else:
                done["fitted"] += 1
            publish(bundle, models)
            _until_it_answers(service, bundle)
            done["published"] += 1
    _check_service(service)
    ledger.settle(service)
    return done


MOMENTS = ("at any time", "while copying", "once copied", "once named")


def kill_publishers(service: Service, ledger: Ledger, variants: Variants, times: int, seed: int = 0) -> dict[str, int]:
    """Kill a publisher, ask the service which version it serves, and publish again, `times` times.

    Counts the states that the killed publishers left: nothing, an incomplete copy, a version without its role or
    without its line in the audit log, or a complete publication.

    Raises:
        LostError: An incomplete bundle was published or served, the second publication did not repair everything, the
            audit log is incomplete, or something acknowledged is lost.
    """
    rng, models = random.Random(seed), service.models
    folder = open_models(models)
    done = {"killed": 0, "nothing": 0, "half_copied": 0, "without_role": 0, "without_line": 0, "all": 0}
    service.start().until(200)
    begin = time.monotonic()
    publish(variants.next(), models)
    usual = time.monotonic() - begin
    with ledger.load(service, predicting=1, labelling=1):
        for k in range(times):
            bundle = variants.next()
            watch = _Watch(folder, bundle)
            process = start_publishing(bundle, models)
            _wait_for(watch, MOMENTS[k % len(MOMENTS)], process, rng.uniform(0, usual))
            time.sleep(rng.uniform(0, 0.002))
            done["killed"] += process.poll() is None
            process.kill()
            process.communicate()
            done[watch.left()] += 1
            time.sleep(LOOK_SECONDS)
            _check_service(service)
            for version in folder.versions(bundle.card.name):
                Bundle.load(folder.version_folder(bundle.card.name, version))
            publish(bundle, models)
            _until_it_answers(service, bundle)
    _check_service(service)
    ledger.settle(service)
    return done


@dataclass(frozen=True)
class _Watch:
    """The progress of a publisher so far."""

    folder: PublishedModels
    bundle: Bundle

    def is_copying(self) -> bool:
        return any(path.is_dir() for path in self._place.parent.glob(".publishing-*"))

    def is_copied(self) -> bool:
        return self._place.exists()

    def is_named(self) -> bool:
        return self.folder.version_of(self.bundle.card.name, DEFAULT) == self.bundle.version

    def left(self) -> str:
        """Return what a dead publisher left."""
        if not self.is_copied():
            return "half_copied" if self.is_copying() else "nothing"
        if not self.is_named():
            return "without_role"
        lines = [change.after for change in self.folder.changes(self.bundle.card.name)]
        return "all" if lines[-1:] == [self.bundle.version] else "without_line"

    @property
    def _place(self) -> Path:
        return self.folder.path / self.bundle.card.name / self.bundle.version


def _wait_for(watch: _Watch, moment: str, process: subprocess.Popen[str], seconds: float) -> None:
    """Wait for a moment in the publisher's life, or its end."""
    if moment == MOMENTS[0]:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        return
    has_come = dict(zip(MOMENTS[1:], (watch.is_copying, watch.is_copied, watch.is_named), strict=True))[moment]
    while process.poll() is None and not has_come():
        time.sleep(0.0002)  # and the publisher has the processor


def _sizes(models: Path) -> list[tuple[str, int]]:
    return [(path.name, path.stat().st_size) for path in models.rglob("*") if path.is_file()]


def _roles_and_logs(models: Path) -> dict[str, bytes]:
    """Return every file outside the bundles, without locks, which are empty."""
    files = [path for path in (*models.glob("*"), *models.glob("*/*")) if path.is_file() and path.stat().st_size]
    return {str(path.relative_to(models)): path.read_bytes() for path in files}


def _check_words(said: str, words: tuple[str, ...], models: Path) -> None:
    if said.count("\n") != 1 or not said.startswith("error: ") or not all(w in said for w in (*words, str(models))):
        raise LostError(f"a publisher without space said {said!r}; expected one line with {words} and {models}")


def _check_unchanged(bundle: Bundle, models: Path, before: dict[str, bytes]) -> None:
    """Raise LostError if a failed publication changed a role or a log, or left something incomplete."""
    _check_left_over(bundle, models)
    after = _roles_and_logs(models)
    if changed := sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)):
        raise LostError(f"publishing failed and changed {changed}")
    place = models / bundle.card.name / bundle.version
    if place.exists():
        Bundle.load(place)


def _check_published(bundle: Bundle, models: Path, *, answers: bool) -> None:
    """Raise LostError unless the version is complete, alone, and has its role and one line in the audit log."""
    name, version, folder = bundle.card.name, bundle.version, open_models(models)
    Bundle.load(folder.version_folder(name, version))
    _check_left_over(bundle, models)
    changes = folder.changes(name)
    if not answers:
        return
    if folder.default().name != version or folder.version_of(name, DEFAULT) != version:
        raise LostError(f"{version} was published and does not answer")
    if [change.after for change in changes].count(version) != 1 or changes[-1].after != version:
        raise LostError(f"the audit log does not name {version} once, at its end: {changes[-3:]}")
    if any(later.before != earlier.after for earlier, later in pairwise(changes)):
        raise LostError(f"the audit log has a hole: {changes}")


def _check_left_over(bundle: Bundle, models: Path) -> None:
    hidden = [path for path in (models / bundle.card.name).glob(".*") if path.is_dir() or path.stat().st_size]
    if hidden:
        raise LostError(f"left over: {hidden}")


def _check_service(service: Service) -> None:
    """Raise LostError if the service reports a problem with the models, or has one."""
    tree = service.get("/models").json()
    states = {version["state"] for model in tree["models"] for version in model["versions"]}
    if tree["problems"] or states & {"refused", "altered"} or service.get("/health/ready").status != 200:
        raise LostError(f"the service says of the models: {tree}")
    if "Traceback" in service.log():
        raise LostError(service.log()[-3000:])


def _until_it_answers(service: Service, bundle: Bundle) -> None:
    deadline = time.monotonic() + SWITCH_SECONDS
    while (now := service.get("/models").json()["default"]["version"]) != bundle.version:
        if time.monotonic() > deadline:
            raise LostError(f"{bundle.version} does not answer {SWITCH_SECONDS} s after it was published, but {now}")
        time.sleep(0.05)
