"""Models, versions and tags: adding them, and the cache of them that each process has."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter

from service.store.rows import OtherOriginError, PredictionBatch, Version, decoding
from service.store.work.statements import Query, Work, lock_of
from service.store.work.sums.deltas import MAX_TAGS, OTHER_KEY, OTHER_TAGS, TOTAL, UNTAGGED_KEY
from service.store.work.sums.period_sums import HOUR
from trueodds import calibrators
from trueodds.bundle import ActAlone, Reference
from trueodds.calibrators.conformal import SetRule
from trueodds.sums.maturity import Maturity
from trueodds.sums.rounding import Resolution

_RULES = TypeAdapter(tuple[SetRule, ...])


@dataclass
class VersionCache:
    """Cache of versions and tags. Only committed rows fill it, so no key in it can change or be rolled back."""

    versions: dict[int, Version] = field(default_factory=dict)
    """Versions by key, in the order in which they were first served."""
    keys: dict[tuple[str, str], int] = field(default_factory=dict)
    """Version key by model and version."""
    model_of: dict[int, int] = field(default_factory=dict)
    """Model key by version key."""
    models: dict[str, int] = field(default_factory=dict)
    tags: dict[int, dict[str, int]] = field(default_factory=dict)
    """Keys of tags by version key and tag."""

    def tag_key(self, version: int, tag: str | None) -> int | None:
        """Return the key under which a tag is summed; None if only the store knows it."""
        if tag is None:
            return UNTAGGED_KEY
        known = self.tags.get(version, {})
        full = tag == OTHER_TAGS or len(known) >= MAX_TAGS
        return known.get(tag, OTHER_KEY if full else None)

    def tag_keys(self, version: int, tags: list[str | None]) -> list[int] | None:
        """Return one key per tag; None if only the store knows one of them."""
        keys = [key for tag in tags if (key := self.tag_key(version, tag)) is not None]
        return keys if len(keys) == len(tags) else None


def load_versions(cache: VersionCache) -> Work[VersionCache]:
    """Read the committed versions and tags. Versions that are in the cache are not read again."""
    versions = dict(cache.versions)
    loaded = VersionCache(versions, dict(cache.keys), dict(cache.model_of), dict(cache.models))
    rows = yield Query(
        "SELECT v.key, v.model, m.name, v.version, v.classes, v.calibrator, v.metrics, v.reference, v.observed,"
        " v.has_logits, v.positive, v.act_alone, v.matures_ms, v.unlabelled_means, v.resolution, v.sets"
        " FROM versions v"
        " LEFT JOIN models m ON m.key = v.model WHERE NOT (v.key = ANY($1)) ORDER BY v.key",
        (list(versions),),
    )
    for key, model, name, version, classes, calibrator, metrics, reference, *rest in rows:
        observed, has_logits, positive, act_alone, matures_ms, unlabelled_means, resolution, sets = rest
        with decoding(f"row {key} of its table versions"):
            if name is None:
                raise ValueError("its model is not in the table models")
            names, ordered = _classes(classes)
            versions[key] = Version(
                name,
                version,
                names,
                calibrators.from_json(json.loads(calibrator)),
                json.loads(metrics),
                reference and Reference.model_validate_json(reference),
                bool(observed),
                bool(has_logits),
                positive,
                act_alone and ActAlone.model_validate_json(act_alone),
                ordered,
                None if matures_ms is None else Maturity(matures_ms, unlabelled_means),
                _resolution(resolution),
                _RULES.validate_json(sets) if sets else (),
            )
        loaded.keys[name, version], loaded.model_of[key], loaded.models[name] = key, model, model
    for version, key, name in (yield Query("SELECT version, key, name FROM tags ORDER BY version, key")):
        loaded.tags.setdefault(version, {})[name] = key
    return (yield from with_resolutions(loaded))


def with_resolutions(cache: VersionCache) -> Work[VersionCache]:
    """Return the cache with resolutions that were decided since. Once decided, they never change."""
    waiting = [key for key, version in cache.versions.items() if version.is_observed and version.resolution is None]
    if not waiting:
        return cache
    rows = yield Query(
        "SELECT key, resolution FROM versions WHERE resolution IS NOT NULL AND key = ANY($1)", (waiting,)
    )
    if not rows:
        return cache
    with decoding("its table versions"):
        decided = {key: replace(cache.versions[key], resolution=_resolution(text)) for key, text in rows}
    return replace(cache, versions={**cache.versions, **decided})


def _resolution(text: str | None) -> Resolution | None:
    return None if text is None else Resolution.from_json(json.loads(text))


def resolution_text(resolution: Resolution | None) -> str | None:
    """Return a resolution as the table versions has it."""
    return None if resolution is None else json.dumps(resolution.to_json())


def _classes(text: str) -> tuple[tuple[str, ...], bool]:
    """Return the class names that a row holds, and whether they are ordered. Ordered ones are an object with `names`.

    Raises:
        ValueError: The row holds something else.
    """
    names = json.loads(text)
    ordered = isinstance(names, dict)
    if ordered:
        if names.keys() != {"names", "ordered"} or names["ordered"] is not True:
            raise ValueError(f"not ordered classes: {text[:50]!r}")
        names = names["names"]
    if not isinstance(names, list) or len(names) < 2 or not all(isinstance(name, str) for name in names):
        raise ValueError(f"not a list of class names: {text[:50]!r}")
    return tuple(names), ordered


def add_version(version: Version) -> Work[None]:
    """Add a version unless it exists.

    Raises:
        OtherOriginError: The name belongs to a version of another origin.
    """
    yield Query("INSERT INTO models (name) VALUES ($1) ON CONFLICT (name) DO NOTHING", (version.model,))
    classes = {"names": version.classes, "ordered": True} if version.ordered else version.classes
    texts = [json.dumps(v) for v in (classes, version.calibrator.to_json(), version.metrics)]
    reference = version.reference and version.reference.model_dump_json()
    promise = version.act_alone and version.act_alone.model_dump_json()
    origin = int(version.is_observed), int(version.has_logits)
    resolution = resolution_text(version.resolution)
    sets = _RULES.dump_json(version.set_rules).decode() if version.set_rules else None
    maturity = version.maturity
    window = (None, None) if maturity is None else (maturity.window_ms, maturity.unlabelled_means)
    yield Query(
        "INSERT INTO versions (model, version, classes, calibrator, metrics, reference, observed, has_logits, positive,"
        " act_alone, matures_ms, unlabelled_means, resolution, sets)"
        " SELECT key, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14 FROM models WHERE name = $1"
        " ON CONFLICT (model, version) DO NOTHING",
        (
            version.model,
            version.version,
            *texts,
            reference,
            *origin,
            version.positive,
            promise,
            *window,
            resolution,
            sets,
        ),
    )
    ((observed,),) = yield Query(
        "SELECT v.observed FROM versions v JOIN models m ON m.key = v.model WHERE m.name = $1 AND v.version = $2",
        version.key,
    )
    if bool(observed) != version.is_observed:
        taken = "another server's answers" if observed else "answers of this service"
        raise OtherOriginError(
            f"the store has {taken} under {version.model}/{version.version}; use another version name for one of them"
        )


def add_tags(version: int, batch: PredictionBatch) -> Work[None]:
    """Give keys to the first hundred tags of a version."""
    yield lock_of(version)
    rows = yield Query("SELECT name FROM tags WHERE version = $1", (version,))
    known = {name for (name,) in rows}
    for tag in dict.fromkeys(batch.tags):
        if tag is not None and tag != OTHER_TAGS and tag not in known and len(known) < MAX_TAGS:
            known.add(tag)
            yield Query("INSERT INTO tags (version, key, name) VALUES ($1, $2, $3)", (version, len(known), tag))


def by_activity() -> Work[list[int]]:
    """Return the keys of all versions: first those with deltas to compact, then by the hour of their last answer."""
    waiting = {key for (key,) in (yield Query("SELECT DISTINCT version FROM moves"))}
    rows = yield Query(
        "SELECT v.key, (SELECT max(s.period) FROM sums s WHERE s.version = v.key AND s.kind = $1 AND s.unit = $2)"
        " FROM versions v",
        (TOTAL, HOUR),
    )
    activity = sorted(((key in waiting, -1 if hour is None else hour, key) for key, hour in rows), reverse=True)
    return [key for *_, key in activity]
