"""Settings: environment variables TRUEODDS_* and the options of `trueodds serve`, which take precedence."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.choices import STORE
from trueodds.errors import UserError
from trueodds.processes.choices import ALERT_THRESHOLD
from trueodds.sums.maturity import EXAMPLE, Matures, read_matures

Network = IPv4Network | IPv6Network
_KEY = "SHA-256 hash of the key for {}. Make one with `trueodds key`. Give several with commas, or as @FILE."
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PREFECT = "prefect+"
DEPLOYMENT = "/deployments/name/"
"""Part of a Prefect deployment's URL that precedes the names of its flow and of the deployment."""
SHORTEST_SECRET = 16
"""Least number of characters of a key."""
SCHEMES = ("s3", "s3a", "gs", "gcs")
"""Schemes of the buckets that can hold an archive: those whose writes can require that no object exists."""
OFF = "off"
"""Value of `archive` for a service that removes predictions of a store with an archive without a copy."""
CENTURY_DAYS = 36_525
"""Longest retention in days. A longer one overflows a 64-bit number of milliseconds and would stop housekeeping."""


def read_hashes(text: str) -> tuple[str, ...]:
    """Read the key hashes of a setting.

    Args:
        text: Hashes separated by commas, or `@FILE` with one hash per line.

    Raises:
        ValueError: The file cannot be read, or a value is not a SHA-256 hash in hex. The message does not repeat the
            value, which may be a key.
    """
    source, words = "it", text.split(",") if text.strip() else []
    if text.startswith("@"):
        source = text[1:]
        try:
            words = Path(source).read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"the file of key hashes cannot be read: {error}") from None
        if not words:  # an empty file must not open what it was meant to lock
            raise ValueError(f"{source} holds no key hash; write one hash per line")
    hashes = tuple(word.strip().lower() for word in words)
    if not all(_SHA256.fullmatch(word) for word in hashes):
        raise ValueError(
            f"a value of {source} is not a SHA-256 hash (64 hex digits); give the hash and not the key itself."
            " `trueodds key` makes a key and prints both"
        )
    return hashes


@dataclass(frozen=True)
class Webhook:
    """URL that receives the messages of an alarm."""

    url: str
    starts_run: bool
    """Whether the URL names a Prefect deployment, which then starts a run."""

    @property
    def key(self) -> str:
        """Return the webhook's name in the store. It is a hash, because the URL may contain secrets."""
        return hashlib.sha256(f"{self.starts_run} {self.url}".encode()).hexdigest()[:16]

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def read_secret(text: str) -> str:
    """Read the secret of a setting: a text, or `@FILE` for the file that holds it.

    Raises:
        ValueError: The file cannot be read, or the secret is too short to be one. The message does not repeat it.
    """
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"the file of the key cannot be read: {error}") from None
    elif not text:
        return ""
    if len(text) < SHORTEST_SECRET:
        raise ValueError(
            f"the key has {len(text)} characters; expected at least {SHORTEST_SECRET}. Make one: openssl rand -hex 32"
        )
    return text


def read_webhooks(text: str) -> tuple[Webhook, ...]:
    """Read the webhooks of a setting.

    Raises:
        ValueError: A URL is not valid. The message gives its number and does not repeat it, since it may hold a secret.
    """
    webhooks = []
    for number, word in enumerate(filter(None, map(str.strip, text.split(","))), 1):
        url = word.removeprefix(_PREFECT)
        try:
            parts = urlsplit(url)
            sound = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
        except ValueError:  # the port is not a number
            sound = False
        if not sound:
            raise ValueError(
                f"webhook {number} is not a URL; allowed are http://, https://, prefect+http://, prefect+https://"
            )
        prefect = word != url
        if prefect and not (DEPLOYMENT in parts.path and len(parts.path.partition(DEPLOYMENT)[2].split("/")) == 2):
            example = "prefect+http://127.0.0.1:4200/api/deployments/name/recalibrate/live"
            raise ValueError(f"webhook {number} names no deployment; expected a URL such as {example}")
        webhooks.append(Webhook(url, prefect))
    return tuple(webhooks)


def read_providers(text: str) -> tuple[str, ...]:
    """Read the execution providers of a setting, in order of preference.

    Raises:
        ValueError: The installed onnxruntime lacks one of the providers.
    """
    import onnxruntime  # its import takes 40 ms, which other commands need not wait for

    known = [n.removesuffix("ExecutionProvider").lower() for n in onnxruntime.get_available_providers()]
    names = tuple(dict.fromkeys(filter(None, (word.strip().lower() for word in text.split(",")))))
    if not names or (unknown := [name for name in names if name not in known]):
        problem = f"{unknown[0]!r} is not available" if names else "no provider is given"
        cure = "; for cuda, install onnxruntime-gpu instead of onnxruntime" if "cuda" not in known else ""
        raise ValueError(f"{problem}; the installed onnxruntime has {', '.join(sorted(known))}{cure}")
    return names


def read_networks(text: str) -> tuple[Network, ...]:
    """Read the networks of a setting. A single address counts as a network of its own.

    Raises:
        ValueError: A value is neither an address nor a network. The message names it.
    """
    networks = []
    for word in filter(None, map(str.strip, text.split(","))):
        try:
            networks.append(ip_network(word))
        except ValueError as error:
            raise ValueError(f"{error}; allowed are addresses and networks such as 10.0.0.7 or 10.0.0.0/8") from None
    return tuple(networks)


def _from_text(read: Callable[[str], object]) -> BeforeValidator:
    """Return a validator that reads text with `read`. It passes other values, such as the default, through."""
    return BeforeValidator(lambda value: read(value) if isinstance(value, str) else value)


KeyHashes = Annotated[tuple[str, ...], NoDecode, _from_text(read_hashes)]
Providers = Annotated[tuple[str, ...], NoDecode, _from_text(read_providers)]
Networks = Annotated[tuple[Network, ...], NoDecode, _from_text(read_networks)]
Webhooks = Annotated[tuple[Webhook, ...], NoDecode, _from_text(read_webhooks)]
Windows = Annotated[Matures, NoDecode, _from_text(read_matures)]


class Settings(BaseSettings):
    """Settings of the service. The defaults suit one machine; raise the limits where you need more."""

    model_config = SettingsConfigDict(env_prefix="TRUEODDS_", frozen=True)

    host: str = Field("127.0.0.1", description="Address to listen on. 0.0.0.0 means every interface.")
    port: int = Field(8000, ge=0, le=65_535, description="Port to listen on. 0 takes a free port.")
    url_file: Path | None = Field(None, description="File that receives the URL once the service is listening.")
    workers: int = Field(1, ge=1, le=64, description="Processes that share the port. Each loads the models.")
    models: Annotated[str, BeforeValidator(str)] = Field(
        "models", description="Folder of published bundles, or s3://bucket/prefix."
    )
    models_cache: Path | None = Field(
        None,
        description="Folder that caches models from a bucket. Default: `trueodds` in the user's cache folder.",
    )
    models_seconds: float = Field(10.0, gt=0, description="Seconds between two listings of a bucket of models.")
    bundle: Path | None = Field(
        None,
        description="Folder of a single bundle, served instead of `models`. A KServe storage initialiser mounts it.",
    )
    store: Annotated[str, BeforeValidator(str)] = Field(
        STORE, description="SQLite file or postgresql:// URL that holds predictions, labels and sums."
    )

    read_only: bool = Field(
        False,
        description="Serve reports only. The PostgreSQL store is only read (it may be a standby), and no model is"
        " loaded.",
    )
    root_path: str = Field(
        "",
        description="Path below which a proxy serves this service, such as /odds, if the proxy removes it. Links,"
        " redirects and /docs then begin with it.",
    )
    predict_key_hash: KeyHashes = Field((), description=_KEY.format("/predict, /v2 inference, /observe and /kserve"))
    feedback_key_hash: KeyHashes = Field((), description=_KEY.format("/feedback"))
    read_key_hash: KeyHashes = Field(
        (), description=_KEY.format("/calibration-report, /models, /metrics and GET /predictions")
    )
    admin_key_hash: KeyHashes = Field(
        (), description=_KEY.format("/admin, DELETE /predictions and every route of the other keys")
    )

    max_instances: int = Field(256, ge=1, description="Largest number of inputs in one /predict call.")
    max_labels: int = Field(10_000, ge=1, description="Largest number of labels in one /feedback call.")
    max_body_bytes: int = Field(16 * 1024**2, ge=1024, description="Largest size of one request body, in bytes.")
    max_json_values: int = Field(
        2_000_000,
        ge=1024,
        description="Largest number of values in one JSON body. Send more numbers as .npy, base64 or raw bytes.",
    )
    max_pixels: int = Field(
        4 * 4096 * 4096, ge=1, description="Largest total of pixels in the encoded images of one call, before resizing."
    )
    body_seconds: float = Field(30.0, gt=0, description="Seconds within which a request body must arrive.")
    body_rate: int = Field(
        100,
        ge=0,
        description="Lowest rate of a bulk body, in bytes per second over each `body_seconds`. 0 sets no limit.",
    )
    write_seconds: float = Field(
        30.0, gt=0, description="Seconds after which a client that reads nothing of its answer is disconnected."
    )
    max_connections: int = Field(
        1000,
        ge=1,
        description="Largest number of open connections per address. It is at most three quarters of `ulimit -n`.",
    )
    max_pipelined: int = Field(
        4, ge=1, description="Requests of one connection that are processed at once. Later requests wait unread."
    )
    proxies: Networks = Field(
        (), description="Addresses or networks of proxies, separated by commas. Their connections are not limited."
    )
    answer_seconds: float = Field(
        30.0, gt=0, description="Seconds after a request arrives at which /predict gives up and answers 503."
    )

    max_batch: int = Field(64, ge=1, description="Largest batch that the model scores at once, in inputs.")
    max_waiting: int = Field(
        1024, ge=1, description="Inputs that may wait for one model. Beyond that, /predict answers 503."
    )
    max_pinned: int = Field(4, ge=1, description="Versions kept loaded because a request named them explicitly.")
    max_observed: int = Field(
        1000, ge=0, description="Versions of models on other servers that /observe may add. 0 turns /observe off."
    )
    keep_inputs: bool = Field(
        False,
        description="Store the inputs of decision models that /observe/decisions receives, as they were sent. Otherwise"
        " only a keyed hash of each input is stored, by which a repeated input is recognised.",
    )
    input_key: Annotated[str, _from_text(read_secret)] = Field(
        "",
        description="Key of that hash: a text, or @FILE. By default the store makes a key and keeps it. Then somebody"
        " who has the store can test guesses of short inputs.",
    )
    threads: int | None = Field(
        None,
        ge=1,
        description="Threads per model. Default: one, or for a slow model the worker's share of the cores. With several"
        " threads the model is in memory twice. A very fast model runs on the event loop with one thread.",
    )

    providers: Providers = Field(
        ("cpu",),
        description="ONNX Runtime providers in order of preference, separated by commas. The service uses the first one"
        " that reproduces the bundle's golden prediction. cuda needs onnxruntime-gpu.",
    )

    retention_days: int | None = Field(
        None,
        ge=1,
        le=CENTURY_DAYS,
        description="Days for which predictions and labels are kept. Default: for ever. Sums are always kept.",
    )
    archive: str = Field(
        "",
        description="Folder or bucket (s3://bucket/prefix, gs://bucket/prefix) for older predictions. They are written"
        " there as Parquet and read back before the store removes them. It needs `retention_days` and the extra"
        " `table`; a bucket also needs the extra `s3`, or gcsfs. Default: they are removed without a copy, unless the"
        " store has archived before. `off` removes them without a copy in any case.",
    )
    hold_hours: int = Field(
        72,
        ge=1,
        le=24 * CENTURY_DAYS,
        description="Hours for which a label with the caller's own id waits for its prediction.",
    )
    matures: Windows = Field(
        (),
        description=f"Maturity windows of models with late labels, separated by commas. {EXAMPLE} counts each answer of"
        " model `fraud` 45 days after it was given. If it has no label by then, it counts as class `ok`. A version"
        " keeps the window that it began with.",
    )
    database_connections: int = Field(
        8, ge=2, description="Largest number of connections to PostgreSQL that one process opens."
    )

    alarm_tolerance: float = Field(
        0.02,
        ge=0,
        lt=0.5,
        description="Largest acceptable calibration error (ECE). The alarm collects evidence that the ECE is larger.",
    )
    alarm_ratio_tolerance: float = Field(
        1.2,
        gt=1,
        le=100,
        description="Largest acceptable ratio of expected to observed positives, or of observed to expected.",
    )
    alert_threshold: float = Field(
        ALERT_THRESHOLD,
        ge=0,
        le=1,
        description="p(positive) above which an alert is given, for models with a positive class. The report and"
        " /metrics give the expected precision and recall at it before labels come.",
    )
    alarm_alpha: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="False alarm rate: the largest share of calibrated versions that ever alarm. The alarm fires at"
        " evidence 1/alpha.",
    )
    alarm_run_length: int | None = Field(
        None,
        ge=20,
        description="Also run a faster alarm that allows one false alarm in this many labels. Default: off.",
    )
    alarm_levels: bool = Field(
        False,
        description="Also watch the levels of ordered classes: the alarm then collects evidence that the ECE of the"
        ' probability of some "at least level k" is larger than the tolerance.',
    )
    alarm_groups: bool = Field(
        False,
        description="Also call the webhooks when a tag or a predicted class is marked for good. The report shows marks"
        " in any case.",
    )
    alarm_propensity_floor: float = Field(
        0.05,
        gt=0,
        le=1,
        description="Smallest propensity that the weighted evidence includes. Predictions with a smaller one are left"
        " out.",
    )
    audit_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the answers that act alone for which a label is requested (`audit: true`). They are drawn"
        " at random, and the share is stored as their propensity. 0 requests none. A share below the propensity floor"
        " lowers the floor's default to it.",
    )
    alarm_webhook: Webhooks = Field(
        (),
        description="URLs that receive an alarm, separated by commas: http(s)://, or prefect+http(s):// to start a"
        " deployment.",
    )
    alarm_url: str = Field("", description="Public address of this service for links. Default: http://host:port.")

    @model_validator(mode="before")
    @classmethod
    def _floor(cls, values: Any) -> Any:
        """Lower the default propensity floor to the audit share. Otherwise audited answers would be left out."""
        if isinstance(values, dict) and "audit_share" in values and "alarm_propensity_floor" not in values:
            try:
                share = float(values["audit_share"])
            except (TypeError, ValueError):
                return values  # the field's own validator explains the problem
            if 0 < share < cls.model_fields["alarm_propensity_floor"].default:
                return {**values, "alarm_propensity_floor": share}
        return values

    @field_validator("predict_key_hash", "feedback_key_hash", "read_key_hash", "admin_key_hash")
    @classmethod
    def _check_hashes(cls, hashes: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """Refuse to serve a role without a key if the environment holds the key itself instead of its hash."""
        own = f"TRUEODDS_{info.field_name}".upper()
        plain = own.removesuffix("_HASH")
        if not hashes and os.environ.get(plain):
            raise ValueError(
                f"{plain} is set, but the service reads only hashes of keys: set {own} to the hash, or unset {plain} to"
                " serve without this key"
            )
        return hashes

    @field_validator("root_path")
    @classmethod
    def _below(cls, path: str) -> str:
        """Allow a path that needs no quoting in an address, in HTML and in a header."""
        if path and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", path):
            raise ValueError(
                "allowed is a path of letters, digits and . _ ~ - that begins with / and does not end with /"
            )
        return path

    @field_validator("models")
    @classmethod
    def _readable(cls, place: str) -> str:
        from trueodds.bundle.storage.objects import Objects, is_url

        if is_url(place):
            try:
                Objects(place).check_packages()
            except UserError as error:
                raise ValueError(str(error)) from None
        return place

    @field_validator("archive")
    @classmethod
    def _archivable(cls, address: str) -> str:
        from trueodds.bundle.storage.objects import Objects

        if address in ("", OFF):
            return address
        if find_spec("pyarrow") is None:
            raise ValueError("an archive needs pyarrow, which is missing (pip install 'trueodds[serve,table]')")
        if "://" in address:  # also S3://, which would otherwise be a folder of this machine
            if address.partition("://")[0] not in SCHEMES or not address.partition("://")[2].strip("/"):
                raise ValueError("allowed are s3://bucket/prefix, gs://bucket/prefix and the path of a folder")
            try:
                Objects(address).check_packages()
            except UserError as error:
                raise ValueError(str(error)) from None
        return address

    @model_validator(mode="after")
    def _has_retention(self) -> Self:
        if self.archives and self.retention_days is None:
            raise ValueError(
                f"archive is {self.archive!r}, but retention_days is not set, so nothing would ever be archived; set"
                " --retention-days (TRUEODDS_RETENTION_DAYS) too"
            )
        return self

    @property
    def archives(self) -> bool:
        """Whether old predictions go to an archive."""
        return self.archive not in ("", OFF)

    @field_validator("alarm_url")
    @classmethod
    def _address(cls, text: str) -> str:
        parts = urlsplit(text)
        if text and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment):
            raise ValueError("expected an address such as https://odds.example.org")
        return text.rstrip("/")

    @property
    def address(self) -> str:
        """Address at which people reach the service, as far as the service knows it."""
        host = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host
        return self.alarm_url or f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
