"""The settings: environment variables TRUEODDS_*, and options of `trueodds serve`, which win."""

from __future__ import annotations

import hashlib
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from trueodds.bundle.storage.objects import Objects, is_url
from trueodds.errors import UserError
from trueodds.inputs.image.pictures import MAX_PIXELS
from trueodds.sums.maturity import EXAMPLE, Matures, read_matures

Network = IPv4Network | IPv6Network
_KEY = "SHA-256 of the key that {} needs (trueodds key makes one), several with commas, or @FILE of them"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PREFECT = "prefect+"
DEPLOYMENT = "/deployments/name/"
"""Of the URL of a Prefect deployment: before the names of its flow and its own."""
CENTURY_DAYS = 36_525
"""The longest retention. A time in milliseconds that is no 64-bit number would end housekeeping, without a word."""


def read_hashes(text: str) -> tuple[str, ...]:
    """The hashes of a setting: separated by commas, or @FILE with one a line.

    Raises:
        ValueError: a file that cannot be read, or what is no SHA-256 in hex. The text is not repeated: it may be a key.
    """
    source, words = "it", text.split(",") if text.strip() else []
    if text.startswith("@"):
        source = text[1:]
        try:
            words = Path(source).read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"the file of key hashes cannot be read: {error}") from None
        if not words:  # an empty file must not open what it was meant to lock
            raise ValueError(f"{source} holds no key hash; write one a line")
    hashes = tuple(word.strip().lower() for word in words)
    if not all(_SHA256.fullmatch(word) for word in hashes):
        raise ValueError(f"{source} holds what is not a SHA-256 (64 hex digits); trueodds key makes one")
    return hashes


@dataclass(frozen=True)
class Webhook:
    """The address that an alarm's news go to."""

    url: str
    starts_run: bool
    """The URL is that of a Prefect deployment by its name."""

    @property
    def key(self) -> str:
        """Names it in the store, where its secrets have no place."""
        return hashlib.sha256(f"{self.starts_run} {self.url}".encode()).hexdigest()[:16]

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def read_webhooks(text: str) -> tuple[Webhook, ...]:
    """The webhooks of a setting.

    Raises:
        ValueError: naming the number of the URL that is none; the text is not repeated, for it may hold a secret.
    """
    webhooks = []
    for number, word in enumerate(filter(None, map(str.strip, text.split(","))), 1):
        url = word.removeprefix(_PREFECT)
        try:
            parts = urlsplit(url)
            sound = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
        except ValueError:  # a port that is none
            sound = False
        if not sound:
            raise ValueError(
                f"webhook {number} is no URL; allowed are http://, https://, prefect+http://, prefect+https://"
            )
        prefect = word != url
        if prefect and not (DEPLOYMENT in parts.path and len(parts.path.partition(DEPLOYMENT)[2].split("/")) == 2):
            example = "prefect+http://127.0.0.1:4200/api/deployments/name/recalibrate/live"
            raise ValueError(f"webhook {number} names no deployment; expected a URL such as {example}")
        webhooks.append(Webhook(url, prefect))
    return tuple(webhooks)


def read_providers(text: str) -> tuple[str, ...]:
    """The providers of a setting, the first choice first.

    Raises:
        ValueError: one that the installed onnxruntime does not have.
    """
    import onnxruntime  # 40 ms that only the service's own process has to wait

    known = [n.removesuffix("ExecutionProvider").lower() for n in onnxruntime.get_available_providers()]
    names = tuple(dict.fromkeys(filter(None, (word.strip().lower() for word in text.split(",")))))
    if not names or (unknown := [name for name in names if name not in known]):
        problem = f"{unknown[0]!r} is none of them" if names else "none is named"
        cure = "; cuda comes with onnxruntime-gpu in onnxruntime's place" if "cuda" not in known else ""
        raise ValueError(f"{problem}; the installed onnxruntime has {', '.join(sorted(known))}{cure}")
    return names


def read_networks(text: str) -> tuple[Network, ...]:
    """The networks of a setting; an address is one of its own.

    Raises:
        ValueError: naming what is neither an address nor a network.
    """
    networks = []
    for word in filter(None, map(str.strip, text.split(","))):
        try:
            networks.append(ip_network(word))
        except ValueError as error:
            raise ValueError(f"{error}; allowed are addresses and networks such as 10.0.0.7 or 10.0.0.0/8") from None
    return tuple(networks)


def _from_text(read: Callable[[str], object]) -> BeforeValidator:
    """Reads a text with `read`; what is read already, such as the default, stays."""
    return BeforeValidator(lambda value: read(value) if isinstance(value, str) else value)


KeyHashes = Annotated[tuple[str, ...], NoDecode, _from_text(read_hashes)]
Providers = Annotated[tuple[str, ...], NoDecode, _from_text(read_providers)]
Networks = Annotated[tuple[Network, ...], NoDecode, _from_text(read_networks)]
Webhooks = Annotated[tuple[Webhook, ...], NoDecode, _from_text(read_webhooks)]
Windows = Annotated[Matures, NoDecode, _from_text(read_matures)]


class Settings(BaseSettings):
    """Every setting has a default that suits one machine; limits are there to be raised."""

    model_config = SettingsConfigDict(env_prefix="TRUEODDS_", frozen=True)

    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0 is every interface")
    port: int = Field(8000, ge=0, le=65_535, description="port to listen on; 0 takes a free one")
    url_file: Path | None = Field(None, description="file that gets the URL once the service is listening")
    workers: int = Field(1, ge=1, le=64, description="processes that share the port; each loads the models")
    models: Annotated[str, BeforeValidator(str)] = Field(
        "models", description="folder of published bundles, or s3://bucket/prefix (docs/how-to/use-a-bucket.md)"
    )
    models_cache: Path | None = Field(
        None,
        description="folder that keeps what came from a bucket; left out: trueodds in the user's cache folder",
    )
    models_seconds: float = Field(10.0, gt=0, description="time between two looks into a bucket of models")
    bundle: Path | None = Field(
        None, description="folder of one bundle, served alone in place of `models`, as a storage initialiser mounts it"
    )
    store: Annotated[str, BeforeValidator(str)] = Field(
        "store.sqlite", description="SQLite file, or postgresql:// URL, for predictions, labels and sums"
    )

    read_only: bool = Field(
        False,
        description="only report: the PostgreSQL store is read, it may be a standby, and no model is loaded",
    )
    predict_key: KeyHashes = Field((), description=_KEY.format("/predict, /v2 inference, /observe and /kserve"))
    feedback_key: KeyHashes = Field((), description=_KEY.format("/feedback"))
    read_key: KeyHashes = Field(
        (), description=_KEY.format("/calibration-report, /models, /metrics and GET /predictions")
    )
    admin_key: KeyHashes = Field(
        (), description=_KEY.format("/admin, DELETE /predictions and what any other key opens")
    )

    max_instances: int = Field(256, ge=1, description="inputs in one /predict call")
    max_labels: int = Field(10_000, ge=1, description="labels in one /feedback call")
    max_body_bytes: int = Field(16 * 1024**2, ge=1024, description="bytes in one request body")
    max_json_values: int = Field(
        2_000_000, ge=1024, description="values in one JSON body; numbers beyond go as .npy, base64 or raw bytes"
    )
    max_pixels: int = Field(
        4 * MAX_PIXELS, ge=1, description="pixels in all encoded images of one call, before any resizing"
    )
    body_seconds: float = Field(30.0, gt=0, description="time in which a request's body must arrive")
    body_rate: int = Field(
        100, ge=0, description="bytes a second that a body in bulk must bring, over `body_seconds` each; 0: as it comes"
    )
    write_seconds: float = Field(
        30.0, gt=0, description="time after which a client that takes nothing of its answer is cut off"
    )
    max_connections: int = Field(
        1000, ge=1, description="open connections of one address, at most three quarters of what `ulimit -n` allows"
    )
    max_pipelined: int = Field(
        4, ge=1, description="requests that one connection may have in work; later ones wait unread"
    )
    proxies: Networks = Field(
        (), description="addresses or networks of proxies, with commas, whose connections are not limited"
    )
    answer_seconds: float = Field(
        30.0, gt=0, description="time from a request's arrival on, after which /predict gives up and answers 503"
    )

    max_batch: int = Field(64, ge=1, description="inputs the model takes at once")
    max_waiting: int = Field(1024, ge=1, description="inputs that may wait for a model before /predict answers 503")
    max_pinned: int = Field(4, ge=1, description="versions kept loaded only because they were asked for by name")
    max_observed: int = Field(
        1000, ge=0, description="versions of other servers' models that /observe makes known; 0: it takes none"
    )
    threads: int | None = Field(
        None,
        ge=1,
        description="threads of each model; left out: one, for a slow one the worker's share of the cores."
        " With several, the model is in memory twice. A very fast one is scored between two requests, with one",
    )

    providers: Providers = Field(
        ("cpu",),
        description="what runs the models, with commas: the first that reproduces a bundle's golden prediction; cuda"
        " needs onnxruntime-gpu",
    )

    retention_days: int | None = Field(
        None,
        ge=1,
        le=CENTURY_DAYS,
        description="days that predictions and labels are kept; left out: for ever. Sums always are",
    )
    hold_hours: int = Field(
        72, ge=1, le=24 * CENTURY_DAYS, description="hours that a label waits for a prediction with the caller's own id"
    )
    matures: Windows = Field(
        (),
        description=f"windows of models whose labels come late, with commas: {EXAMPLE} counts each answer of fraud 45"
        " days after it was given, as ok if it has no label then. A version keeps the window it began with",
    )
    database_connections: int = Field(8, ge=2, description="connections to PostgreSQL that one process opens at most")

    alarm_tolerance: float = Field(0.02, ge=0, lt=0.5, description="calibration error that is put up with")
    alarm_ratio_tolerance: float = Field(
        1.2, gt=1, le=100, description="expected / observed positives that is put up with, or observed / expected"
    )
    alarm_alpha: float = Field(
        0.05, gt=0, lt=1, description="share of sound versions that may alarm falsely, ever; it fires at 1/alpha"
    )
    alarm_run_length: int | None = Field(
        None, ge=20, description="fire sooner, too, at the price of one false alarm in so many labels; left out: no"
    )
    alarm_propensity_floor: float = Field(
        0.05,
        gt=0,
        le=1,
        description="smallest propensity that predictions come with; below, they are left out of the weighted evidence",
    )
    audit_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="of the answers that act alone, the share whose labels are asked for (`audit: true`), drawn at"
        " random and stored as their propensity; 0: none. Below the propensity floor, it becomes the floor's default",
    )
    alarm_webhook: Webhooks = Field(
        (), description="URLs that get an alarm, with commas: http(s)://, or prefect+http(s):// to start a deployment"
    )
    alarm_url: str = Field("", description="public address of this service, for links; left out: http://host:port")

    @model_validator(mode="before")
    @classmethod
    def _floor(cls, given: Any) -> Any:
        """Lower the default of the propensity floor to the audit's share, else audited answers would be left out."""
        if isinstance(given, dict) and "audit_share" in given and "alarm_propensity_floor" not in given:
            try:
                share = float(given["audit_share"])
            except (TypeError, ValueError):
                return given  # the field's own check says why
            if 0 < share < cls.model_fields["alarm_propensity_floor"].default:
                return {**given, "alarm_propensity_floor": share}
        return given

    @field_validator("models")
    @classmethod
    def _readable(cls, place: str) -> str:
        if is_url(place):
            try:
                Objects(place).check_packages()
            except UserError as error:
                raise ValueError(str(error)) from None
        return place

    @field_validator("alarm_url")
    @classmethod
    def _address(cls, text: str) -> str:
        parts = urlsplit(text)
        if text and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment):
            raise ValueError("expected an address such as https://odds.example.org")
        return text.rstrip("/")

    @property
    def address(self) -> str:
        """Where people reach the service, as far as it can know."""
        host = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host
        return self.alarm_url or f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
