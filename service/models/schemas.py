"""The answer of GET /models: every published version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, NotRequired, get_args

from pydantic import Field
from typing_extensions import TypedDict

from service.store.rows import Version
from trueodds.bundle import ActAlone
from trueodds.bundle.contents import shadowed_by, slot_of

Role = Literal["default", "shadow", "recalibrated"]
ROLES: tuple[Role, ...] = get_args(Role)
State = Literal["loaded", "altered", "refused", "published", "stored"]


class PublishedVersion(TypedDict):
    version: str
    state: Annotated[
        State,
        Field(
            description="altered: loaded and answering, but its files have changed since, and a restart would refuse"
            " it; published: loaded when it is asked for; stored: this service only reads, and the store has answers"
            " of it"
        ),
    ]
    meant_as: list[Role]
    reason: Annotated[str | None, Field(description="why it is refused, or how its files differ")]
    act_alone: NotRequired[
        Annotated[ActAlone, Field(description="of a version that is loaded: its promise to act alone, if it has one")]
    ]


class PublishedModel(TypedDict):
    model: str
    default: Annotated[str | None, Field(description="the version that answers now")]
    shadow: Annotated[
        str | None, Field(description="the version that is scored on the same inputs, without being answered")
    ]
    recalibrated: Annotated[
        str | None,
        Field(description="the version whose calibrator is applied to the same logits, without being answered"),
    ]
    versions: list[PublishedVersion]


class ObservedModel(TypedDict):
    model: str
    versions: list[str]


class Answering(TypedDict):
    model: str
    version: str


class Models(TypedDict):
    """Every published version, which of them serve or shadow, and why one is refused."""

    default: Annotated[Answering | None, Field(description="who answers when nothing is named")]
    folder: Annotated[
        str | None, Field(description="id of the model directory, from its file .id: tells it from any other")
    ]
    models: list[PublishedModel]
    observed: Annotated[
        list[ObservedModel], Field(description="models that another server answers for, and what of them is sent here")
    ]
    problems: Annotated[
        list[str], Field(description="names that lead nowhere, and bundles that are refused or altered")
    ]


def stored_models(versions: Iterable[Version]) -> list[PublishedModel]:
    """The versions that services with models have answered, as far as a store tells: not which of them answer now."""
    models: dict[str, dict[str, PublishedVersion]] = {}
    for version in versions:
        if not version.is_observed:
            of_model = models.setdefault(shadowed_by(version.model), {})
            row = of_model.setdefault(
                version.version,
                {"version": version.version, "state": "stored", "meant_as": [], "reason": None},
            )
            if slot := slot_of(version.model):
                row["meant_as"] = [slot]
            elif version.act_alone:
                row["act_alone"] = version.act_alone
    return [
        {"model": model, "default": None, "shadow": None, "recalibrated": None, "versions": list(rows.values())}
        for model, rows in models.items()
    ]
