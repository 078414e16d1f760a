"""A line of `trueodds doctor`, and the lines about what is under judgement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pipeline.recalibrate import Client
from pipeline.recalibrate.standing import standings, waiting_text
from trueodds.bundle import ModelFolder
from trueodds.errors import UserError


@dataclass(frozen=True)
class Finding:
    """One line."""

    what: str
    state: Literal["ok", "skipped", "wrong"]
    words: str
    cure: str = ""

    def __str__(self) -> str:
        mark = {"ok": "ok", "skipped": "-", "wrong": "WRONG"}[self.state]
        return f"{mark:<6}{self.what:<11}{self.words}{f'. Cure: {self.cure}' if self.cure else ''}"


def slots(client: Client | None, models: ModelFolder) -> Iterator[Finding]:
    """Says of every model what is under judgement or waits, and for what."""
    try:
        texts = [
            f"{name}: {text}"
            for name in models.names()
            for text in (*map(str, standings(models, name, client)), waiting_text(models, name))
            if text
        ]
    except (UserError, OSError) as error:
        yield Finding("slots", "wrong", str(error))
        return
    if not texts:
        yield Finding("slots", "ok", "nothing is under judgement, and nothing waits")
    for text in texts:
        yield Finding("slots", "ok", text)
