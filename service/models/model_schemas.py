"""Answer of GET /models: every published version."""

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
            description="loaded: ready to answer. altered: loaded and answering, but its files have changed since, and"
            " a restart would refuse it. refused: see `reason`. published: loaded when a request names it. stored: this"
            " service is read-only, and the store holds answers of the version."
        ),
    ]
    meant_as: list[Role]
    reason: Annotated[str | None, Field(description="Why the version is refused, or how its files differ.")]
    act_alone: NotRequired[
        Annotated[ActAlone, Field(description="Promise to act alone of a loaded version, if it has one.")]
    ]


class PublishedModel(TypedDict):
    model: str
    default: Annotated[str | None, Field(description="Version that answers requests that name no version.")]
    shadow: Annotated[
        str | None, Field(description="Version that scores the same inputs, but whose answers are not returned.")
    ]
    recalibrated: Annotated[
        str | None,
        Field(
            description="Version whose calibrator is applied to the same logits, but whose answers are not returned."
        ),
    ]
    versions: list[PublishedVersion]


class ObservedModel(TypedDict):
    model: str
    versions: list[str]


class Answering(TypedDict):
    model: str
    version: str


class Models(TypedDict):
    """Every published version, which of them serve or shadow, and why any is refused."""

    default: Annotated[Answering | None, Field(description="Version that answers requests that name no model.")]
    folder: Annotated[
        str | None, Field(description="Id of the model directory, read from its file .id. No other directory has it.")
    ]
    models: list[PublishedModel]
    observed: Annotated[
        list[ObservedModel], Field(description="Models on other servers whose answers are sent to /observe.")
    ]
    problems: Annotated[
        list[str], Field(description="Role files that name missing versions, and bundles that are refused or altered.")
    ]


def stored_models(versions: Iterable[Version]) -> list[PublishedModel]:
    """Return the versions that have answers in the store. The store does not tell which of them answer now."""
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
