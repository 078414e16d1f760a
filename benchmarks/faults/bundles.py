"""Bundles damaged in transport. Each must be refused with a message, and none may stop the service."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks.faults.process import Service
from trueodds.bundle import CALIBRATOR, CARD, DEFAULT, MODEL, open_models


def _flip(folder: Path, rng: random.Random, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    (folder / name).write_bytes(data)


def _cut(folder: Path, rng: random.Random, name: str) -> None:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: rng.randrange(len(data))])


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _card(folder: Path, change: Callable[[dict[str, object]], object]) -> None:
    card = json.loads((folder / CARD).read_text(encoding="utf-8"))
    change(card)
    (folder / CARD).write_text(json.dumps(card), encoding="utf-8")


DAMAGES: dict[str, Callable[[Path, random.Random], object]] = {
    "model flipped": lambda folder, rng: _flip(folder, rng, MODEL),
    "model cut": lambda folder, rng: _cut(folder, rng, MODEL),
    "model missing": lambda folder, _: (folder / MODEL).unlink(),
    "model a folder": lambda folder, _: _folder(folder / MODEL),
    "calibrator flipped": lambda folder, rng: _flip(folder, rng, CALIBRATOR),
    "calibrator cut": lambda folder, rng: _cut(folder, rng, CALIBRATOR),
    "card cut": lambda folder, rng: _cut(folder, rng, CARD),
    "card empty": lambda folder, _: (folder / CARD).write_bytes(b""),
    "card noise": lambda folder, rng: (folder / CARD).write_bytes(rng.randbytes(500)),
    "classes fewer": lambda folder, _: _card(folder, lambda card: card.update(classes=["one"])),
    "other shape": lambda folder, _: _card(folder, lambda card: card["input"].update(height=99)),  # type: ignore[attr-defined]
    "other golden answer": lambda folder, _: _card(folder, lambda card: card["golden"]["logits"].reverse()),  # type: ignore[index]
}


def damage(models: Path, kind: str, seed: int) -> Path:
    """Put a damaged copy of the default bundle beside it, make it the default, and return its folder."""
    good = open_models(models).default()
    bad = good.parent / f"damaged-{len(list(good.parent.iterdir()))}"
    shutil.copytree(good, bad)
    DAMAGES[kind](bad, random.Random(seed))
    aside = models / ".next"
    aside.write_text(f"{bad.parent.name}/{bad.name}\n", encoding="utf-8")
    aside.replace(models / DEFAULT)
    return bad


def refused_at_start(service: Service, kind: str, seed: int = 0) -> str:
    """Start with a damaged default (not ready but alive), then with the good one (ready). Returns the reason.

    Raises:
        RuntimeError: The service became ready with the damaged bundle, or not with the good one.
    """
    good = open_models(service.models).default()
    bad = damage(service.models, kind, seed)
    service.start().until(200, "/health/live")
    with service.client() as client:
        answer = client.get("/health/ready")
        if answer.status != 503 or client.get("/metrics").status != 200:
            raise RuntimeError(f"{kind}: /health/ready answers {answer.status} {answer.body!r}")
    (service.models / DEFAULT).write_text(f"{good.parent.name}/{good.name}\n", encoding="utf-8")
    service.until(200)
    service.stop()
    shutil.rmtree(bad)
    return str(answer.json()["error"]["message"])
