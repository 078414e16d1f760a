"""Published models in a bucket: moto's S3 behind a real port, with its conditional writes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import fsspec
import pytest

from benchmarks.faults.buckets import URL, Store
from pipeline.__main__ import main
from tests.service.label_bundle import write_labels
from tests.service.tiny_bundle import write_bundle
from tests.test_bundle import make_bundle
from trueodds.bundle import MODEL, BucketError, Bundle, BundleError, load_bundle, open_models
from trueodds.bundle.storage.bucket import Bucket
from trueodds.bundle.storage.cached import CachedBucket
from trueodds.bundle.storage.folder import PUBLISHING
from trueodds.bundle.storage.objects import Objects
from trueodds.calibrators.conformal import SetSettings


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    with Store() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("TRUEODDS_MODELS_CACHE", str(tmp_path / "cache"))
        yield store


@pytest.fixture
def bundles(tmp_path: Path) -> list[Path]:
    def method(name: str) -> Path:
        return make_bundle(tmp_path / name, lambda card: card.update(method=name))

    return [method(name) for name in ("ce", "focal", "mix")]


@pytest.mark.full
def test_every_verb_and_what_it_leaves(
    store: Store,
    bundles: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same calls on a folder and on a bucket: the same roles, logs but for their times, and files."""
    monkeypatch.setenv("TRUEODDS_MODELS", URL)
    local, remote = open_models(tmp_path / "models"), open_models()
    assert isinstance(remote.storage, Bucket)
    one, two, three = (Bundle.load(bundle).version for bundle in bundles)
    for models in (local, remote):
        models.publish(bundles[0])
        models.publish(bundles[1], "shadow")
        models.publish(bundles[2], None)
        assert (models.version_of("tiny", "default"), models.version_of("tiny", "shadow")) == (one, two)
        models.promote("tiny", two, why="better", who="me")
        models.promote("tiny", three, who="me")
        assert models.roll_back("tiny", who="me") == two
        models.shadow("tiny", one, who="me", since_ms=2**52)
        assert models.since_ms("tiny", "shadow") == 2**52 and models.since_ms("tiny", "recalibrated") == 0
        models.shadow("tiny", one, slot="recalibrated", who="me")
        models.publish(bundles[2], "shadow", who="me")
        assert [models.version_of("tiny", role) for role in ("shadow", "recalibrated", "waiting")] == [one, one, three]
        models.withdraw("tiny", who="me")
        assert [models.version_of("tiny", role) for role in ("shadow", "waiting")] == [three, None]
        models.publish(bundles[0], "shadow", displace=True, who="me")
        models.withdraw("tiny", "recalibrated", who="me")
        models.publish(bundles[2], "shadow", who="me")
        assert models.set_default("tiny") == two
        assert models.default().name == two and set(models.versions("tiny")) == {one, two, three}
        assert Bundle.load(models.version_folder("tiny", three)).version == three
        with pytest.raises(
            BundleError, match=f"has the versions '.*{three}.*: give one in full, or publish the bundle f"
        ):
            models.promote("tiny", three[:4])
    for name in ("tiny", None):
        lines = [[(c.action, c.before, c.after, c.why) for c in m.changes(name)] for m in (local, remote)]
        assert lines[0] == lines[1] and lines[0]
    names = {p.relative_to(local.path).as_posix() for p in local.path.rglob("*") if p.is_file()}
    names.remove(f"tiny/{PUBLISHING}")  # a lock
    assert names == Objects(URL).list().keys(), "the bucket can be copied to a folder, and back"
    assert open_models(home=tmp_path).given_place == URL, "where flows publish"
    roles = ("default", "tiny/default", "tiny/shadow", "tiny/waiting")
    assert Objects(URL).read(roles) == {name: (local.path / name).read_bytes() for name in roles}
    assert main(["versions", "--models", URL]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(URL) and f"{two}  served" in printed and "temperature, mix" in printed


@pytest.mark.full
def test_publishers_at_once_lose_nothing(store: Store, bundles: list[Path]) -> None:
    open_models(URL).publish(bundles[0])
    versions = [Bundle.load(bundle).version for bundle in bundles]

    def publish(k: int) -> None:
        models = open_models(URL)
        for bundle in bundles[k:] + bundles[:k]:
            models.publish(bundle, who=f"publisher {k}")

    threads = [threading.Thread(target=publish, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    models = open_models(URL)
    changes = models.changes("tiny")
    assert changes[0].before is None
    assert all(then.before == now.after for now, then in pairwise(changes)), "a chain"
    assert len({change.who for change in changes}) > 2, "each publisher's changes are there"
    role = Objects(URL).read(["tiny/default", "default"])
    assert role["tiny/default"].decode().strip() == changes[-1].after == models.version_of("tiny", "default")
    assert role["default"].decode().strip() == f"tiny/{changes[-1].after}" and changes[-1].after in versions


@pytest.mark.full
def test_half_of_it(store: Store, bundles: list[Path], tmp_path: Path) -> None:
    """A publisher that was killed before its card, between the log and the role, and files that went later."""
    models, first, second = open_models(URL), *(Bundle.load(bundle) for bundle in bundles[:2])
    models.publish(bundles[0])
    service = CachedBucket(URL, tmp_path / "service", 0.0)
    there = Objects(URL)
    there.upload(second.model_path, f"tiny/{second.version}/{MODEL}")
    assert service.contents().models["tiny"].versions == {first.version}
    assert service.fetch(("tiny", first.version)) == tmp_path / "service" / "tiny" / first.version
    assert not list((tmp_path / "service").glob("*/*/../.fetching-*"))
    open_models(URL).publish(bundles[1])
    for name in ("tiny/default", "default"):  # as if it had been killed after the log
        there.put(name, first.version.encode() if "/" in name else f"tiny/{first.version}".encode(), there.list()[name])
    assert service.contents().default == ("tiny", second.version) and not service.contents().problems
    there.delete(f"tiny/{second.version}/{MODEL}")
    service.contents()
    with pytest.raises(BundleError, match=rf"^s3://.*/{MODEL} is missing: .*: half-uploaded or altered; publish it"):
        service.fetch(("tiny", second.version))
    open_models(URL).publish(bundles[1])
    service.contents()
    assert Bundle.load(service.fetch(("tiny", second.version))).version == second.version
    assert there.read(["tiny/default"])["tiny/default"].decode().strip() == second.version


@pytest.mark.full
def test_a_look_asks_once_and_a_bucket_that_is_away_costs_nothing(
    store: Store, bundles: list[Path], tmp_path: Path
) -> None:
    open_models(URL).publish(bundles[0])
    service = CachedBucket(URL, tmp_path / "service", 0.0)
    contents = service.contents()
    key = contents.default
    assert key
    service.fetch(key)
    store.requests.clear()
    assert service.contents() == contents
    assert store.requests == ["GET /bucket"], "one listing"
    store.fault = "denies"
    problem = service.contents().problems[0]
    assert (
        problem.startswith(f"{URL} denies access (AccessDenied)")
        and "the versions fetched before are served" in problem
    )
    store.stop()
    assert "cannot be reached" in service.contents().problems[0] and service.contents().default == key
    again = CachedBucket(URL, tmp_path / "service", 0.0)  # another process, from the same cache
    assert again.contents().default == key and Bundle.load(again.fetch(key)).version == key[1]
    empty = CachedBucket(URL, tmp_path / "empty", 0.0)
    assert empty.contents().default is None and "nothing was fetched before" in empty.contents().problems[0]
    with pytest.raises(BucketError, match="cannot be reached"):
        open_models(URL).publish(bundles[0])
    store.heal()
    assert service.contents().problems == ()


def test_words(store: Store, bundles: list[Path], tmp_path: Path) -> None:
    with pytest.raises(BucketError, match="is in a bucket that does not exist"):
        open_models("s3://nowhere/models").publish(bundles[0])
    for url in ("memory://models", f"file://{tmp_path}/models"):
        with pytest.raises(BucketError, match="can only be read; models are published to s3://"):
            open_models(url).publish(bundles[0])
    with pytest.raises(BucketError, match="expected s3://bucket/prefix, or the path of a folder"):
        open_models("nothing://models").names()
    with pytest.raises(BundleError, match=f"there is no model 'tiny' in {URL}"):
        open_models(URL).versions("tiny")


def test_any_url_is_read(tmp_path: Path, bundles: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """file:// and memory:// take the same way as s3://, without its conditions."""
    monkeypatch.setenv("TRUEODDS_MODELS_CACHE", str(tmp_path / "cache"))
    version = open_models(tmp_path / "models").publish(bundles[0]).name
    service = CachedBucket(f"file://{tmp_path}/models", tmp_path / "service", 0.0)
    assert service.contents().default == ("tiny", version)
    assert json.loads((service.fetch(("tiny", version)) / "card.json").read_text())["method"] == "ce"
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "models"), "/any/models", recursive=True)
    models = open_models("memory://any/models")
    assert models.contents().default == ("tiny", version) and models.summary("tiny", version)[0].method == "ce"
    assert [change.after for change in models.changes("tiny")] == [version]
    assert Bundle.load(models.version_folder("tiny", version)).version == version
    with pytest.raises(BucketError, match="can only be read"):
        models.publish(bundles[1])


def test_a_bundle_with_sets_and_one_of_labels(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file that some kind of bundle has comes from a bucket to a machine that never had it."""
    models = open_models(URL)
    monkeypatch.setenv("TRUEODDS_MODELS_CACHE", str(tmp_path / "elsewhere"))
    with_sets = write_bundle(tmp_path / "sets", sets=SetSettings.of("lac", {"levels": [0.9]}))
    for folder in (with_sets, write_labels(tmp_path / "labels").directory):
        version = models.publish(folder).name
        there = load_bundle(open_models(URL).version_folder(load_bundle(folder).card.name, version))
        assert there.version == version
        assert {file.name for file in there.directory.iterdir()} >= {file.name for file in folder.iterdir()}
        assert models.summary(there.card.name, version) == (there.card, there.calibrator)
