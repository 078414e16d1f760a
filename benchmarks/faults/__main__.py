"""Fault tolerance of the service: kills, full disks, clocks, databases, publishers, bundles, bodies and clients.

    python -m benchmarks.faults                                # 300 kills, 10,000 bodies, ...: half an hour
    python -m benchmarks.faults --only kills --kills 20        # the result keeps its other faults
    python -m benchmarks.faults --store postgresql://...       # adds kills over a database, and cuts of its network

It uses real processes and sockets and the tests' own code (tests/service/test_faults.py does a dozen of each). After
every fault the service is asked for everything that a client knows. Each acknowledged prediction takes its label, each
acknowledged label counts once, and the report's numbers equal those of the client's own ledger. The first difference
ends the run with an error, so a result means that there was none.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks import untrained
from benchmarks.faults import (
    buckets,
    bundles,
    clock,
    connections,
    crowds,
    damaged_files,
    database,
    disk,
    floods,
    hostile,
    kills,
    postgres,
    publishing,
    replicas,
    restarts,
)
from benchmarks.faults.ledger import Ledger
from benchmarks.faults.process import Service
from benchmarks.faults.report import markdown
from benchmarks.faults.watch import watched
from benchmarks.record import RESULTS, Run, circumstances, options_parser, write
from trueodds.bundle import open_models

RESULT = RESULTS / "faults.json"
CLASSES = 10
FILES = 256
"""Number of open files that a restricted service may have."""
MOST_WAIT_MS, MOST_RECOVERY = 500, 10
"""Longest time of a health probe beside a crowd in milliseconds, and until it is answered after one in seconds."""
SHAPE = (untrained.SIZE, untrained.SIZE, untrained.CHANNELS)
Found = dict[str, Any]
NO_STORE: Found = {"skipped": "no --store postgresql://..."}


class Faults:
    """One folder and one small net for all faults. Every fault gets a service and a store of its own."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder, self.models = options, folder, folder / "models"
        untrained.publish("resnet8", self.models, classes=CLASSES, temperature=1.5, width=4)

    def _service(
        self,
        name: str,
        *options: str,
        environment: dict[str, str] | None = None,
        store: str | None = None,
        models: Path | None = None,
    ) -> Service:
        return Service(self._folder(name), models or self.models, *options, store=store, environment=environment)

    def _folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def _variants(self, name: str) -> publishing.Variants:
        """Return bundles to publish, in a folder of their own that has the first of them."""
        variants = publishing.Variants(open_models(self.models).default(), self.folder / f"{name}-bundles")
        open_models(self.folder / f"{name}-models").publish(variants.next().directory)
        return variants

    def _ledger(self) -> Ledger:
        return Ledger(self.options.seed, CLASSES, SHAPE)

    def _schema(self, name: str) -> str:
        """Return an empty schema of the database, which serves as a store of its own."""
        schema = f"{name}_{secrets.token_hex(4)}"

        async def create() -> None:
            connection = await asyncpg.connect(self.options.store)
            await connection.execute(f"CREATE SCHEMA {schema}")
            await connection.close()

        asyncio.run(create())
        return f"{self.options.store}{'&' if '?' in self.options.store else '?'}search_path={schema}"

    def kills(self) -> Found:
        return self._kill("kills", None)

    def kills_postgresql(self) -> Found:
        if not self.options.store:
            return NO_STORE
        return self._kill("kills_postgresql", self._schema("kills"))

    def _kill(self, name: str, store: str | None) -> Found:
        ledger = self._ledger()
        with self._service(name, store=store) as service:
            done = kills.kill_at_random(service, ledger, self.options.kills, self.options.seed)
        return {**done, **_kept(ledger)}

    def disk(self) -> Found:
        found: Found = {}
        ledger = self._ledger()
        with self._service("limit") as service:
            done = disk.fill_and_free(service, ledger, disk.FileLimit(), self.options.times)
        found["limit on files"] = {**done, **_kept(ledger)}
        if disk.may_mount():
            ledger = self._ledger()
            with disk.tmpfs(self.folder / "small", 64) as folder, Service(folder, self.models) as service:
                done = disk.fill_and_free(service, ledger, disk.SmallFileSystem(), self.options.times)
            found["full file system"] = {**done, **_kept(ledger)}
        return found

    def clock(self) -> Found:
        folder, ledger = self.folder / "clock", self._ledger()
        folder.mkdir()
        wall = clock.Clock(folder)
        with self._service("clock", environment=wall.environment) as service:
            done = clock.jump(service, ledger, wall, 3 * self.options.times, self.options.seed)
        return {**done, **_kept(ledger)}

    def bundles(self) -> Found:
        with self._service("bundles") as service:
            reasons = {kind: bundles.refused_at_start(service, kind, self.options.seed) for kind in bundles.DAMAGES}
        return {"refused": len(reasons), "kinds": list(reasons)}

    def buckets(self) -> Found:
        folder, ledger = self.folder / "buckets", self._ledger()
        folder.mkdir()
        pair = tuple(
            untrained.publish("resnet8", folder / f"{t}", classes=CLASSES, temperature=t, width=4) for t in (1.5, 3.0)
        )
        options = ("--models-cache", str(folder / "cache"), "--models-seconds", "0.5")
        with (
            buckets.Store() as store,
            Service(folder, buckets.URL, *options, environment=store.environment) as service,
        ):
            done = buckets.interrupt(
                service, ledger, store, (pair[0], pair[1]), folder / "mine", self.options.times, self.options.seed
            )
        return {**done, **_kept(ledger)}

    def bodies(self) -> Found:
        return self._attacked("bodies", hostile.make)

    def damaged_files(self) -> Found:
        return self._attacked("damaged_files", damaged_files.make)

    def _attacked(self, name: str, make: Callable[[int, tuple[int, int, int]], hostile.Body]) -> Found:
        with self._service(name) as service:
            service.start().until(200)
            made = hostile.attack(service, self.options.bodies, SHAPE, of=make)
            # Not asdict: it makes a Counter of pairs out of a Counter.
            counts = {"statuses": dict(sorted(made.statuses.items())), "kinds": dict(made.kinds)}
            found: Found = {**vars(made), **counts, "watched": asdict(made.watched)}
            found["still_answers"] = service.post("/predict", connections.question(SHAPE)).status
        if found["server_errors"] or found["odd_errors"] or found["still_answers"] != 200:
            raise SystemExit("\n".join([*found["server_errors"][:20], *found["odd_errors"][:20], str(found)]))
        return found

    def clients(self) -> Found:
        body = json.dumps(connections.question(SHAPE)).encode()
        with self._service("clients") as service:
            service.start().until(200)
            files = service.open_files()
            with watched(service) as beside:
                cut = connections.cut_bodies(service, self.options.bodies // 5, body, self.options.seed)
                with connections.slow_bodies(service, 500, body) as slow:
                    sent, closed = connections.drip(slow, body, 20)
            left = connections.until_files_closed(service, files) - files
        if left > 2 or cut["answered_2xx"] or beside.probes_failed:
            raise SystemExit(f"{left} files left open, {cut}, {beside}")
        return {"cut": cut, "slow": {"clients": 500, "bytes": sent, "closed": closed}, "watched": asdict(beside)}

    def floods(self) -> Found:
        found: Found = {}
        for kind in floods.FLOODS:
            with self._service("floods") as service:
                service.start().until(200)
                done = floods.flood(service, kind, self.options.flood_seconds)
                if done.watched.probes_failed or service.get("/health/live").status != 200:
                    raise SystemExit(f"{kind}: {done}")
            found[kind] = {**vars(done), "statuses": dict(done.statuses), "watched": asdict(done.watched)}
        return {"kinds": found}

    def crowds(self) -> Found:
        found: Found = {}
        for name, kind in crowds.KINDS.items():
            with self._service("crowds") as service:
                service.start().until(200)
                done = crowds.crowd(service, kind, 45)
                answered = kind.reads and done.answers < kind.connections * kind.requests
                if done.watched.probes_failed or answered or done.watched.worst_ms > MOST_WAIT_MS:
                    raise SystemExit(f"{name}: {done}")
            found[name] = {**vars(done), "watched": asdict(done.watched)}
        with self._service("few_files") as service:
            with crowds.few_files(FILES):
                service.start().until(200)
            alone = crowds.crowd(service, crowds.KINDS["never read"], 10)
            if alone.watched.probes_failed or (seconds := crowds.recovery(service, 300, 10)) > MOST_RECOVERY:
                raise SystemExit(f"{FILES} files: {alone}")
        return {"kinds": found, "few files": {"files": FILES, "recovered_seconds": seconds, **asdict(alone)}}

    def database(self) -> Found:
        if not self.options.store:
            return NO_STORE
        ledger = self._ledger()
        with database.Network(self._schema("cuts")) as network, self._service("db", store=network.url) as service:
            done = database.interrupt(service, ledger, network, self.options.times)
        return {**done, **_kept(ledger)}

    def full_volume(self) -> Found:
        found: Found = {}
        kinds: dict[str, publishing.Volume] = {"limit on files": publishing.LimitOnFiles()}
        if disk.may_mount():
            kinds["full volume"] = publishing.FullVolume()
        for kind, volume in kinds.items():
            name, ledger = kind.replace(" ", "_"), self._ledger()
            models = self.folder / f"{name}-models"
            is_full = isinstance(volume, publishing.FullVolume)
            with disk.tmpfs(models, 16) if is_full else contextlib.nullcontext():
                variants = self._variants(name)
                with self._service(name, models=models) as service:
                    done = publishing.publish_without_space(
                        service, ledger, volume, variants, self.options.times // 2, self.options.seed
                    )
            found[kind] = {**done, **_kept(ledger)}
        return found

    def publishers(self) -> Found:
        ledger, variants = self._ledger(), self._variants("publishers")
        with self._service("publishers", models=self.folder / "publishers-models") as service:
            done = publishing.kill_publishers(service, ledger, variants, 6 * self.options.times // 5, self.options.seed)
        return {**done, **_kept(ledger)}

    def replicas(self) -> Found:
        if reason := postgres.missing():
            return {"skipped": reason}
        ledger = self._ledger()
        with postgres.Cluster() as cluster, replicas.Hook() as hook, contextlib.ExitStack() as stack:
            store, names = cluster.database(), ("replica-1", "replica-2")
            clocks = tuple(clock.Clock(self._folder(name)) for name in names)
            one, other = (
                stack.enter_context(self._service(name, *hook.options, environment=wall.environment, store=store))
                for name, wall in zip(names, clocks, strict=True)
            )
            done = replicas.run_apart((one, other), (clocks[0], clocks[1]), ledger, hook, 4)
        return {**done, **_kept(ledger)}

    def restarts(self) -> Found:
        if reason := postgres.missing():
            return {"skipped": reason}
        ledger = self._ledger()
        with postgres.Cluster() as cluster, contextlib.ExitStack() as stack:
            store = cluster.database()
            both = tuple(stack.enter_context(self._service(f"restarts-{k}", store=store)) for k in range(2))
            done = restarts.restart(both, ledger, cluster, self.options.times // 2)
        return {**done, **_kept(ledger)}


def _kept(ledger: Ledger) -> Found:
    counted = {k: v for k, v in ledger.counts.items() if not k.endswith("_checked")}
    return {"predictions": len(ledger.probabilities), "labels": len(ledger.labels), **counted}


def main() -> None:
    names = [name for name in vars(Faults) if not name.startswith("_")]
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--bodies", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=10, help="full disks, thirds of clock jumps, database cuts")
    parser.add_argument("--flood-seconds", type=float, default=5, help="of each kind of flood")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", help="postgresql://..., where schemas may be made, for kills and cuts")
    options = parser.parse_args()
    run, found = Run(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        faults = Faults(options, Path(folder))
        for name in options.only:
            fault: Callable[[], Found] = getattr(faults, name)
            own = Run()
            found[name] = {**fault(), "seconds": own.seconds}
            run.say(f"{name}: {found[name]}")
    how = {
        **circumstances(),
        "cores": len(os.sched_getaffinity(0)),
        "seconds": run.seconds,
    }
    if options.only is not names and options.out.exists():
        result = json.loads(options.out.read_text(encoding="utf-8"))
        result["faults"] |= {name: {**done, "run": how} for name, done in found.items()}
    else:
        result = {**how, "faults": found}
    write(options.out, result)
    print(markdown(result))


if __name__ == "__main__":
    main()
