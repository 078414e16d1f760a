"""docker/: what can be held without an engine. Linted, checked by Compose, and read."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from threading import Thread
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT, run
from trueodds.processes import privacy

DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
PROMETHEUS = yaml.safe_load((DOCKER / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
SCALE_FILE = "compose.scale.yaml"
GPU = yaml.safe_load((DOCKER / "compose.gpu.yaml").read_text(encoding="utf-8"))

each_dockerfile = pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.stem)


def instructions(file: Path) -> list[tuple[str, str]]:
    """(instruction, the rest) of each line, comments left out and continued lines joined."""
    lines = re.sub(r"^\s*#.*\n", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    joined = re.sub(r"\\\n\s*", "", lines).splitlines()
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in joined if line.strip()]


def last_stage(file: Path) -> list[tuple[str, str]]:
    """The instructions from the last FROM on."""
    lines = instructions(file)
    return lines[max(at for at, (word, _) in enumerate(lines) if word == "FROM") :]


def copied(file: Path) -> set[str]:
    """What the image takes from the build context."""
    rest = [rest.split() for word, rest in instructions(file) if word == "COPY"]
    return {name for words in rest for name in [word for word in words if not word.startswith("--")][:-1]}


def test_both_images_are_there() -> None:
    assert [file.name for file in DOCKERFILES] == ["serve.Dockerfile", "train.Dockerfile"]


@each_dockerfile
def test_hadolint_finds_nothing(file: Path) -> None:
    done = subprocess.run([Path(sys.executable).with_name("hadolint"), file], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout, f"{done.stdout}{done.stderr}"
    assert "hadolint ignore" not in file.read_text(encoding="utf-8")


@each_dockerfile
def test_the_base_is_an_argument_and_no_frontend_is_fetched(file: Path) -> None:
    assert instructions(file)[0] == ("ARG", "BASE=python:3.11-slim-bookworm")
    assert {rest.split()[0] for word, rest in instructions(file) if word == "FROM"} == {"${BASE}"}
    assert not re.search(r"^#\s*syntax\s*=", file.read_text(encoding="utf-8"), re.MULTILINE)


@each_dockerfile
def test_it_does_not_run_as_root(file: Path) -> None:
    users = [rest for word, rest in last_stage(file) if word == "USER"]
    assert users and users[-1] not in ("root", "0", "0:0")


@each_dockerfile
def test_code_comes_after_the_dependencies(file: Path) -> None:
    stage = last_stage(file)
    install = max(at for at, (_, rest) in enumerate(stage) if re.search("pip install.* -[cr] ", rest))
    taken = [name for word, rest in stage[:install] if word == "COPY" for name in rest.split()[:-1]]
    assert taken and all(re.fullmatch(r"docker/\w+\.txt", name) for name in taken)


@each_dockerfile
def test_what_is_copied_exists_and_is_in_the_build_context(file: Path) -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    lines = [line for line in ignored if line and not line.startswith("#")]
    assert lines[0] == "*", "everything is left out but what is named"
    for name in copied(file):
        assert (ROOT / name).exists(), name
        assert f"!{name}" in lines, f"{name} is not in the build context"


def test_the_build_context_holds_what_the_images_copy_and_no_more() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in lines if line.startswith("!")} == set.union(*(copied(file) for file in DOCKERFILES))


def installed(file: Path) -> list[str]:
    """Each call of `pip install`, of every stage, without what stands before and after it."""
    calls = [re.findall("pip install ([^&]+)", rest) for word, rest in instructions(file) if word == "RUN"]
    return [call.strip() for several in calls for call in several]


def test_what_is_installed_is_pinned() -> None:
    """Each file with hashes, torch by the constraints; tests/test_constraints.py looks into the files."""
    builder, hashed, wheel = installed(DOCKER / "serve.Dockerfile")
    assert (builder, hashed) == ("-c /tmp/constraints.txt setuptools", "--no-deps --require-hashes -r /tmp/serve.txt")
    assert wheel == "--no-deps /wheels/*.whl"
    hashed, torch, editable = installed(DOCKER / "train.Dockerfile")
    assert hashed == "--no-deps --require-hashes -r /tmp/train.txt"
    assert torch.endswith("-c /tmp/constraints.txt torch torchvision")
    assert editable == "--no-deps --no-build-isolation --editable ."


@each_dockerfile
def test_the_whole_distribution_is_installed(file: Path) -> None:
    """So that `trueodds` is there, and each command works or says what it needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = {name.removesuffix("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert packages | {"pyproject.toml", project["project"]["readme"]} <= copied(file)


def test_the_service_is_started_by_its_command() -> None:
    (command,) = [json.loads(rest) for word, rest in last_stage(DOCKER / "serve.Dockerfile") if word == "CMD"]
    assert command[0] in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert command[1:] == ["serve"]


def test_the_training_image_holds_all_that_the_graph_runs_on() -> None:
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    deps = {dep for stage in stages.values() for dep in stage["deps"] if not dep.startswith(("artifacts/", "${"))}
    taken = {PurePosixPath(name) for name in copied(DOCKER / "train.Dockerfile")}
    assert all(taken & {PurePosixPath(dep), *PurePosixPath(dep).parents} for dep in deps)


def environment_of(file: Path) -> dict[str, str]:
    """What ENV sets in the image."""
    words = [word for name, rest in last_stage(file) if name == "ENV" for word in rest.split()]
    return dict(word.split("=", 1) for word in words)


def test_prefect_is_set_as_pyproject_sets_it() -> None:
    set_there = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["prefect"]
    set_here = environment_of(DOCKER / "train.Dockerfile")

    def leaves(tree: dict[str, Any], prefix: str) -> dict[str, str]:
        values: dict[str, str] = {}
        for key, value in tree.items():
            name = f"{prefix}_{key.upper()}"
            values |= leaves(value, name) if isinstance(value, dict) else {name: str(value)}
        return values

    for name, value in leaves(set_there, "PREFECT").items():
        if name != "PREFECT_API_URL":  # of a server on this machine
            assert set_here[name].lower() == value.lower(), name


@each_dockerfile
def test_nothing_in_it_reports_to_its_vendor(file: Path) -> None:
    """For what runs there without our code: `prefect`, `dvc`, a debugger's python."""
    dependencies = ["ORT_DISABLE_TELEMETRY"] if file.stem == "serve" else list(privacy.SWITCHES)
    assert {name: environment_of(file).get(name) for name in dependencies} == {
        name: privacy.SWITCHES[name] for name in dependencies
    }


def test_volumes_are_mounted_where_the_images_made_folders_for_their_user() -> None:
    for name in ("server", "worker", "service"):
        file = DOCKER / ("serve.Dockerfile" if name == "service" else "train.Dockerfile")
        (made,) = [rest for word, rest in last_stage(file) if word == "RUN" and "mkdir" in rest]
        for mount in COMPOSE["services"][name]["volumes"]:
            source, target = mount.split(":")[:2]
            assert source not in COMPOSE["volumes"] or re.search(rf"mkdir -p .*{re.escape(target)}( |$)", made), target
    train, serve = (environment_of(DOCKER / f"{name}.Dockerfile") for name in ("train", "serve"))
    assert train["TRUEODDS_MODELS"] == serve["TRUEODDS_MODELS"] == "/models"
    assert "models:/models" in COMPOSE["services"]["worker"]["volumes"]
    assert "models:/models:ro" in COMPOSE["services"]["service"]["volumes"]


def test_health_is_asked_for_where_the_service_listens() -> None:
    (check,) = [rest for word, rest in last_stage(DOCKER / "serve.Dockerfile") if word == "HEALTHCHECK"]
    port = environment_of(DOCKER / "serve.Dockerfile")["TRUEODDS_PORT"]
    assert check.endswith(f'CMD ["healthy", "{port}", "health/ready"]')
    assert [mount.rsplit(":", 1)[1] for mount in COMPOSE["services"]["service"]["ports"]] == [port]


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (204, True), (503, False), (404, False), (None, False)])
def test_health_is_a_success_and_nothing_else(status: int | None, healthy: bool) -> None:
    asked = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Host"]))
            self.send_response(status or 0)
            self.end_headers()
            self.wfile.write(b"" if status == 204 else b"x" * 100_000)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        port = str(server.server_address[1])
        if status is None:
            server.server_close()  # nobody listens
        else:
            Thread(target=server.serve_forever, daemon=True).start()
        done = subprocess.run([str(DOCKER / "healthy"), port, "health/ready"], capture_output=True, timeout=20)
        if status:
            server.shutdown()
    assert (done.returncode == 0) == healthy, done
    assert asked == ([("/health/ready", "127.0.0.1")] if status else [])


def test_ports_are_open_to_this_machine_only() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 4 and all(port.startswith("127.0.0.1:") for port in ports)


def test_grafana_shows_and_changes_nothing() -> None:
    grafana = COMPOSE["services"]["grafana"]
    switches = grafana["environment"]
    assert switches["GF_AUTH_ANONYMOUS_ENABLED"] == "true" and switches["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert switches["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true", "no account with a known password"
    targets = {mount.split(":")[1]: DOCKER / mount.split(":")[0] for mount in grafana["volumes"] if mount[0] == "."}
    assert all(mount.endswith(":ro") for mount in grafana["volumes"])
    home = PurePosixPath(switches["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (targets[str(home.parent)] / home.name).is_file()
    provisioning = targets["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "trueodds.yml").read_text())["providers"]
    assert provider["options"]["path"] == str(home.parent) and provider["allowUiUpdates"] is False
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090" and "prometheus" in COMPOSE["services"]


def test_images_that_others_make_are_pinned() -> None:
    for name, service in COMPOSE["services"].items():
        if not service["image"].startswith("trueodds-"):
            assert re.fullmatch(r"[\w./-]+:v?\d+[\w.-]*", service["image"]), name


def test_services_come_back_and_reap_their_children() -> None:
    for name, service in COMPOSE["services"].items():
        assert service["init"] is True, name
        assert service["restart"] == ("no" if name == "register" else "unless-stopped"), (
            "what runs once is not restarted"
        )


def test_the_override_moves_every_user_of_the_training_image() -> None:
    """A tag of its own in one place only would leave the others with an image that nothing builds."""
    users = {name for name, service in COMPOSE["services"].items() if service.get("image") == "trueodds-train"}
    assert {name for name, service in GPU["services"].items() if "image" in service} == users
    assert len({service["image"] for service in GPU["services"].values()}) == 1
    (arguments,) = [service["build"]["args"] for service in GPU["services"].values() if "build" in service]
    (train,) = [rest for word, rest in last_stage(DOCKER / "train.Dockerfile") if word == "ARG"]
    assert set(arguments) == {train.split("=")[0]}


def test_every_container_is_confined() -> None:
    """A read-only file system, no capability, a limit to memory and to the log."""
    for name, service in COMPOSE["services"].items():
        assert service["read_only"] is True and "/tmp" in service["tmpfs"], name
        assert service["cap_drop"] == ["ALL"] and "cap_add" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"] and "privileged" not in service, name
        assert service["mem_limit"] and service["logging"]["options"].keys() == {"max-size", "max-file"}, name
    assert "healthcheck" in COMPOSE["services"]["worker"]


@each_dockerfile
def test_the_code_is_roots_and_compiled(file: Path) -> None:
    """What runs cannot change what runs next, and could not write bytecode on a read-only file system."""
    text = file.read_text(encoding="utf-8")
    assert "--chown" not in text and "PYTHONDONTWRITEBYTECODE" not in text and "--no-compile" not in text
    owned = {word for given in re.findall(r"chown 1000:1000 ([^\n&]+)", text) for word in given.split()}
    assert owned and not owned & {"/app", ".", "trueodds", "pipeline", "service"}
    if "--editable" in text:  # pip compiles what it installs, and leaves this to us
        assert "python -m compileall -q trueodds pipeline service" in text
    stage = last_stage(file)
    root = stage[: next(at for at, (word, _) in enumerate(stage) if word == "USER")]
    assert not [rest for word, rest in stage[len(root) :] if word in ("RUN", "COPY")], "made by root"


@pytest.fixture(scope="module")
def compose() -> list[str]:
    """Compose, as docker's plugin or by itself; no engine is asked."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and not subprocess.run([*command, "version"], capture_output=True).returncode:
            return command
    pytest.skip("neither `docker compose` nor docker-compose is here: compose.yaml is read, but not checked by Compose")


def test_compose_has_prometheus_for_those_who_ask(compose: list[str]) -> None:
    command = [*compose, "-f", str(DOCKER / "compose.yaml"), "--profile", "monitoring", "config", "--format", "json"]
    service = json.loads(run(command, ROOT).stdout)["services"]["prometheus"]
    assert {
        "type": "bind",
        "source": str(DOCKER / "prometheus"),
        "target": "/etc/prometheus",
        "read_only": True,
    }.items() <= (service["volumes"][0].items())
    (found,) = PROMETHEUS["scrape_configs"][0]["dns_sd_configs"]
    assert (found["names"], found["type"]) == (["service"], "A"), "the addresses of all replicas"
    assert str(found["port"]) == environment_of(DOCKER / "serve.Dockerfile")["TRUEODDS_PORT"]


def test_the_service_can_be_scaled(compose: list[str]) -> None:
    """A port for each replica, one store for all, and no file that two of them write."""
    command = [
        *compose,
        "-f",
        str(DOCKER / "compose.yaml"),
        "-f",
        str(DOCKER / SCALE_FILE),
        "config",
        "--format",
        "json",
    ]
    services = json.loads(run(command, ROOT).stdout)["services"]
    service, store, database = services["service"], services["store"], services["database"]
    (port,) = service["ports"]
    first, last = map(int, port["published"].split("-"))
    assert last - first == 9 and port["host_ip"] == "127.0.0.1"
    assert [mount["source"] for mount in service["volumes"]] == ["models"] and service["volumes"][0]["read_only"]
    assert service["environment"]["TRUEODDS_STORE"].startswith("postgresql://trueodds:trueodds@store:5432/")
    assert service["depends_on"]["store"]["condition"] == "service_healthy"
    own = ("volumes", "environment", "healthcheck")
    assert {k: v for k, v in store.items() if k not in own} == {k: v for k, v in database.items() if k not in own}
    assert not {v["source"] for v in store["volumes"]} & {v["source"] for v in database["volumes"]}


@pytest.mark.parametrize("files", [["compose.yaml"], ["compose.yaml", "compose.gpu.yaml"]], ids=["cpu", "gpu"])
def test_compose_accepts_it(compose: list[str], files: list[str]) -> None:
    named = [word for file in files for word in ("-f", str(DOCKER / file))]
    config: dict[str, Any] = json.loads(run([*compose, *named, "config", "--format", "json"], ROOT).stdout)
    assert Path(config["services"]["server"]["build"]["context"]) == ROOT
    worker = config["services"]["worker"]
    assert any(mount.get("source") == str(ROOT / "datasets") for mount in worker["volumes"])
    devices = worker.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
    assert bool(devices) == (len(files) == 2)
    assert "prometheus" not in config["services"], "only where its profile is asked for"
