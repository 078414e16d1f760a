"""Texts about the versions under judgement: since when, the evidence about each so far, and the net that waits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from pipeline.choices import SLOT_WORDS
from trueodds.errors import UserError
from trueodds.processes.choices import DEFAULT, SHADOW, SLOTS, WAITING, Slot

if TYPE_CHECKING:
    from trueodds.bundle import PublishedModels
    from trueodds.client import Client


@dataclass(frozen=True)
class Standing:
    """A version in a slot of a model."""

    model: str
    slot: Slot
    version: str
    since_ms: int
    """Time from which answers count."""
    evidence: str
    """Evidence as one line, or the reason why it is unknown."""

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC)
        return f"{self.version} is {SLOT_WORDS[self.slot]}, judged since {since:%Y-%m-%d %H:%M} UTC: {self.evidence}"


def standing(models: PublishedModels, name: str, slot: Slot, client: Client | None) -> Standing | None:
    """Return the version in a slot with the evidence about it so far, or None if the slot is empty.

    Without a `client` no service is asked for the evidence.

    Raises:
        BundleError: There is no such model.
        AuditLogError: The log is damaged.
    """
    if (version := models.version_of(name, slot)) is None:
        return None
    since_ms = models.since_ms(name, slot)
    return Standing(name, slot, version, since_ms, _evidence(models, name, slot, client))


def standings(models: PublishedModels, name: str, client: Client | None) -> list[Standing]:
    """List the versions under judgement beside a model's served version. Raises like `standing`."""
    return [one for slot in SLOTS if (one := standing(models, name, slot, client))]


def waiting_text(models: PublishedModels, name: str) -> str:
    """Return the net that waits for the shadow's place as a text; "" without one."""
    version, shadow = models.version_of(name, WAITING), models.version_of(name, SHADOW)
    return f"{version} waits behind {shadow}, the shadow" if version else ""


def slot_texts(models: PublishedModels, client: Client | None) -> list[str]:
    """List the versions under judgement or waiting of all models as texts. Raises like `standing`."""
    return [
        f"{name}: {text}"
        for name in models.names()
        for text in (*map(str, standings(models, name, client)), waiting_text(models, name))
        if text
    ]


def displaced_text(models: PublishedModels, name: str, slot: Slot, version: str | None, client: Client) -> str:
    """Return the evidence that ends when `version`, or none, takes a slot, as a text; "" if none ends."""
    judged = standing(models, name, slot, client) if name in models.names() else None
    if judged is None or judged.version == version:
        return ""
    verb = "ends the evidence about" if version is None else "displaces"
    return f"{verb} {judged.version}: {judged.evidence}"


def publication_text(
    models: PublishedModels, name: str, version: str, role: Literal["default", "displace"], client: Client
) -> str:
    """Return the evidence that ends when a version is published as served or as the shadow, as a text; "" if none."""
    if role == "displace":
        return displaced_text(models, name, SHADOW, version, client)
    if name not in models.names() or models.version_of(name, DEFAULT) == version:
        return ""
    return promotion_text(models, name, version, client)


def promotion_text(models: PublishedModels, name: str, version: str | None, client: Client) -> str:
    """Return the evidence about a version that a person promotes, and the evidence that ends by that; "" without any.

    `version` is None if it is not known yet and not under judgement.
    """
    return "; ".join(
        f"on the evidence: {judged.evidence}"
        if judged.version == version
        else f"ends the evidence about {judged.version}: {judged.evidence}"
        for judged in standings(models, name, client)
    )


def anew_text(models: PublishedModels, name: str, before: str | None) -> str:
    """Return which evidence starts again because another version is served now, as a text; "" if none does.

    `before` is the shadow until now.
    """
    shadow, served = models.version_of(name, SHADOW), models.version_of(name, DEFAULT)
    verb = "stays the shadow, and" if shadow == before else "waited; it is the shadow now, and"
    return f"{name}/{shadow} {verb} is compared with {served} from now on" if shadow else ""


def _evidence(models: PublishedModels, name: str, slot: Slot, client: Client | None) -> str:
    """Return the evidence about the version in a slot, or why it is unknown."""
    if client is None:
        return "ask the service for the evidence (--url)"
    # Evidence needs numpy and scipy. A list of versions without a service does not.
    from pipeline.recalibrate.judging import evidence_about
    from pipeline.recalibrate.model_state import ModelState
    from pipeline.recalibrate.request import Recalibration

    try:
        request = Recalibration(client, models, name)
        state = ModelState.of(request)
        return evidence_about(request, state, state.candidates[slot]).comparison.evidence()
    except (UserError, OSError) as error:
        return f"unknown ({error})"
