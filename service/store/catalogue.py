"""Models, versions and tags as a process knows them; what is committed never changes its key."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from service.store.moves import MAX_TAGS, NO_TAG, OTHER_KEY, OTHER_TAGS
from service.store.records import PredictionBatch, Version
from service.store.steps import Lock, Rows, Work
from trueodds import calibrators
from trueodds.bundle.bundle import Reference

SELECT = (
    "SELECT v.key, v.model, m.name, v.version, v.classes, v.calibrator, v.metrics, {reference} FROM versions v"
    " JOIN models m ON m.key = v.model WHERE NOT (v.key = ANY($1)) ORDER BY v.key"
)


@dataclass
class Catalogue:
    """Filled by reads of what is committed, so that no key in it can be rolled back."""

    versions: dict[int, Version] = field(default_factory=dict)
    """By key, in the order in which they were first served."""
    keys: dict[tuple[str, str], int] = field(default_factory=dict)
    """By model and version."""
    model_of: dict[int, int] = field(default_factory=dict)
    """Version key -> model key."""
    models: dict[str, int] = field(default_factory=dict)
    tags: dict[int, dict[str, int]] = field(default_factory=dict)
    """By version key: tag -> key."""

    def tag_key(self, version: int, tag: str | None) -> int | None:
        """The key under which a tag is summed; None if the store must be asked."""
        if tag is None:
            return NO_TAG
        known = self.tags.get(version, {})
        found = known.get(tag)
        full = tag == OTHER_TAGS or len(known) >= MAX_TAGS
        return OTHER_KEY if found is None and full else found

    def tag_keys(self, version: int, tags: list[str | None]) -> list[int] | None:
        """One key for each tag; None if the store must be asked for any."""
        found = [self.tag_key(version, tag) for tag in tags]
        known = [key for key in found if key is not None]
        return known if len(known) == len(found) else None


def load(known: Catalogue, *, reference: str = "v.reference") -> Work[Catalogue]:
    """What is committed; versions that are known already are not read again.

    `reference`: the column; NULL while a migration is at a schema that has none.
    """
    versions = dict(known.versions)
    found = Catalogue(versions, dict(known.keys), dict(known.model_of), dict(known.models))
    rows = yield Rows(SELECT.format(reference=reference), (list(versions),))
    for key, model, name, version, classes, fit, metrics, confidences in rows:
        versions[key] = Version(
            name,
            version,
            tuple(json.loads(classes)),
            calibrators.from_json(json.loads(fit)),
            json.loads(metrics),
            confidences and Reference.model_validate_json(confidences),
        )
        found.keys[name, version], found.model_of[key], found.models[name] = key, model, model
    for version, key, name in (yield Rows("SELECT version, key, name FROM tags ORDER BY version, key")):
        found.tags.setdefault(version, {})[name] = key
    return found


def add_version(version: Version) -> Work[None]:
    """Make a version known, once."""
    yield Rows("INSERT INTO models (name) VALUES ($1) ON CONFLICT (name) DO NOTHING", (version.model,))
    texts = [json.dumps(v) for v in (version.classes, version.calibrator.to_json(), version.metrics)]
    yield Rows(
        "INSERT INTO versions (model, version, classes, calibrator, metrics, reference)"
        " SELECT key, $2, $3, $4, $5, $6 FROM models WHERE name = $1 ON CONFLICT (model, version) DO NOTHING",
        (version.model, version.version, *texts, version.reference and version.reference.model_dump_json()),
    )


def add_tags(version: int, batch: PredictionBatch) -> Work[None]:
    """Give the first hundred tags of a version their keys."""
    yield Lock("SELECT key FROM versions WHERE key = $1 FOR NO KEY UPDATE", (version,))
    rows = yield Rows("SELECT name FROM tags WHERE version = $1", (version,))
    known = {name for (name,) in rows}
    for tag in dict.fromkeys(batch.tags):
        if tag is not None and tag != OTHER_TAGS and tag not in known and len(known) < MAX_TAGS:
            known.add(tag)
            yield Rows("INSERT INTO tags (version, key, name) VALUES ($1, $2, $3)", (version, len(known), tag))
