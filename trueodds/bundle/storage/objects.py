"""Objects under a URL: list, read, and write if nobody else has written meanwhile.

Reading works with any URL that fsspec knows. Conditional writes differ between clouds, and fsspec has no common option
for them. `CONDITIONS` has the option for S3. Google's `ifGenerationMatch` is missing: gcsfs passes on only "if none
exists" (`mode="create"`), and without a condition on the version that was read, two publishers could overwrite each
other. Publishing elsewhere is refused: for file:// (use the folder's path, which has locks) and memory:// (no other
process sees it).
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from trueodds.errors import MissingExtraError, UserError

EXTRA = "s3"
"""Optional dependency for s3 URLs."""
S3 = ("s3", "s3a")
CONNECT_SECONDS, READ_SECONDS = 5, 10
"""Timeouts. With one retry, an unreachable bucket is detected within half a minute."""
_CHANGED = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "412", "409")


class BucketError(UserError, OSError):
    """A bucket cannot be read or written now. The message says which, why, and what to do."""


class MissingPackageError(UserError, ImportError):
    """A package for a kind of URL is not installed. No extra has it."""


class ChangedError(Exception):
    """An object has changed since it was read."""


@dataclass(frozen=True)
class Entry:
    """An object of a listing."""

    etag: str
    """Identity of the content."""
    size: int
    modified_at: float
    """Time of the last write in Unix seconds."""


def is_url(place: str) -> bool:
    """Return whether a place is a URL, which fsspec opens, or a path."""
    return re.match(r"[a-z][a-z0-9+.]+://", place) is not None


def _s3(before: Entry | None) -> dict[str, str]:
    """Return the condition of a write on S3.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
    """
    return {"IfNoneMatch": "*"} if before is None else {"IfMatch": before.etag}


CONDITIONS: dict[str, Callable[[Entry | None], dict[str, str]]] = dict.fromkeys(S3, _s3)
"""Options of fsspec's `pipe_file` for conditional writes, by URL scheme.

They are computed from the entry that the write replaces; None requires that there is none.
"""


_CREATION = {name: _s3(None) for name in S3} | {name: {"mode": "create"} for name in ("gs", "gcs")}
"""Options of fsspec's `pipe_file` for a write that requires that no object exists, by URL scheme."""


@dataclass(frozen=True)
class Objects:
    """Objects under a URL, by names relative to it. The first call imports fsspec and connects.

    Raises:
        BucketError: In every method: the bucket cannot be reached, denies access or does not exist.
    """

    url: str

    @cached_property
    def _file_system(self) -> tuple[Any, str]:
        """fsspec's file system, and the URL's path in it."""
        return self._connect(use_listings_cache=False)

    def _connect(self, **options: Any) -> tuple[Any, str]:
        """Return a new file system of fsspec with more options, and the URL's path in it.

        Raises:
            MissingExtraError: fsspec, or its package for this URL, is not installed.
            MissingPackageError: gcsfs is not installed.
        """
        try:
            from fsspec.core import url_to_fs

            options["skip_instance_cache"] = True
            if self._scheme in S3:
                timeouts = {"connect_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS}
                options["config_kwargs"] = {**timeouts, "retries": {"mode": "standard", "total_max_attempts": 2}}
            files, path = url_to_fs(self.url.rstrip("/"), **options)
        except ImportError as error:
            if self._scheme in ("gs", "gcs"):
                message = f"{self.url} needs the package gcsfs, which is not installed here: pip install gcsfs"
                raise MissingPackageError(message) from None
            raise MissingExtraError(self.url, (error.name or "s3fs").partition(".")[0], EXTRA) from None
        except ValueError as error:
            raise BucketError(f"{self.url}: {error}; expected s3://bucket/prefix, or the path of a folder") from None
        files.retries = 1  # botocore retries already; s3fs would repeat it five times
        return files, path.rstrip("/")

    @property
    def _scheme(self) -> str:
        return self.url.partition("://")[0]

    def check_packages(self) -> None:
        """Check that the packages for this URL are installed.

        Raises:
            MissingExtraError: A package is missing.
        """
        _ = self._file_system

    def list(self) -> dict[str, Entry]:
        """List every object under the URL. One request covers 1,000 of them."""
        files, path = self._file_system
        with self._asking():
            objects = files.find(path, detail=True)
        return {name[len(path) + 1 :]: _entry(info) for name, info in objects.items() if name.startswith(f"{path}/")}

    def match(self) -> dict[str, Entry]:
        """List the objects that the URL names, such as a pattern `s3://bucket/answers/*.parquet`, by their URLs."""
        return {f"{self._scheme}://{name}": _entry(info) for name, info in self._matching().items()}

    def _matching(self) -> dict[str, dict[str, Any]]:
        files, path = self._file_system
        with self._asking():
            if glob.has_magic(path):
                objects = files.glob(path, detail=True)
            else:
                try:
                    objects = {path: files.info(path)}
                except FileNotFoundError as error:
                    if _code(error) == "NoSuchBucket":
                        raise
                    objects = {}
        return {name: info for name, info in objects.items() if info.get("type") == "file"}

    def reader(self, files: Any = None) -> Any:
        """Return a file system of fsspec that reads parts of the objects that the URL names.

        On S3 it takes their sizes and entity tags from one listing. It refuses to read an object that has changed
        since, and finds no other object in their folders.

        Args:
            files: A reader of other objects, to which these are added.
        """
        if files is None:
            # Without the cache, s3fs would read 50 MB ahead: for files that are read from the start.
            s3 = {"default_cache_type": "none"} if self._scheme in S3 else {}
            files, _ = self._connect(use_listings_cache=True, **s3)
        if self._scheme in S3:
            for name, info in self._matching().items():
                folder = name.rpartition("/")[0]
                files.dircache[folder] = [*files.dircache.get(folder, []), info]
        return files

    def blocks(self, size: int = 8 * 2**20) -> Iterator[bytes]:
        """Yield the content of the object that the URL names, in blocks."""
        files, path = self._file_system
        with self._asking(), files.open(path, "rb", block_size=size) as file:
            while block := file.read(size):
                yield block

    def read(self, names: Iterable[str]) -> dict[str, bytes]:
        """Read small objects at once. Objects deleted meanwhile are left out."""
        files, path = self._file_system
        paths = {f"{path}/{name}": name for name in names}
        if not paths:
            return {}
        with self._asking():
            contents = files.cat(list(paths), on_error="return")
            for content in contents.values():
                if isinstance(content, Exception) and not isinstance(content, FileNotFoundError):
                    raise content
        return {paths[key]: data for key, data in contents.items() if isinstance(data, bytes)}

    def download(self, name: str, target: Path) -> None:
        """Download an object of any size to a file.

        Raises:
            FileNotFoundError: The object no longer exists.
        """
        files, path = self._file_system
        with self._asking(f"/{name}"):
            try:
                files.get_file(f"{path}/{name}", str(target))
            except FileNotFoundError as error:
                if _code(error) == "NoSuchBucket":
                    raise
                raise _GoneError from None

    def upload(self, source: Path, name: str) -> None:
        """Upload a file of any size. The object is complete or missing."""
        files, path = self._writable()
        with self._asking(f"/{name}"):
            files.put_file(str(source), f"{path}/{name}")

    def put(self, name: str, data: bytes, before: Entry | None) -> None:
        """Write a small object that replaces `before`, or, if that is None, only if none exists.

        Raises:
            ChangedError: Another object exists.
            BucketError: The store has no conditional writes.
        """
        files, path = self._writable()
        condition = CONDITIONS[self._scheme](before)
        with self._asking(f"/{name}"):
            try:
                files.pipe_file(f"{path}/{name}", data, **condition)
            except _errors() as error:
                code = _code(error)
                if code == "NotImplemented":
                    raise BucketError(
                        f"{self.url}: this store has no conditional writes (If-Match), without which two publishers"
                        " could overwrite each other; publish to a folder, or to a store of a release that has them"
                    ) from None
                if code in _CHANGED:
                    # If an answer is lost, the request is repeated, and then the existing object is our own
                    # write. Every line of a log has a time, so equal contents are ours.
                    if files.exists(f"{path}/{name}") and files.cat_file(f"{path}/{name}") == data:
                        return
                    raise ChangedError(name) from None
                raise

    def create(self, name: str, data: bytes) -> bool:
        """Write an object, unless one exists. Return whether it was written; the existing one stays as it is.

        Raises:
            BucketError: The store cannot be written, or this kind of store has no conditional writes.
        """
        files, path = self._file_system
        if self._scheme not in _CREATION:
            allowed = ", ".join(f"{scheme}://" for scheme in _CREATION)
            raise BucketError(f"{self.url}: writes that keep what exists need {allowed} or a folder")
        with self._asking(f"/{name}"):
            try:
                # In one request: s3fs drops the condition from an upload in parts.
                whole = {"chunksize": max(len(data), 1)} if self._scheme in S3 else {}
                files.pipe_file(f"{path}/{name}", data, **_CREATION[self._scheme], **whole)
            except _errors() as error:
                if isinstance(error, FileExistsError) or _code(error) in _CHANGED:
                    return False
                raise
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Write a small object, whether one exists or not."""
        files, path = self._file_system
        with self._asking(f"/{name}"):
            files.pipe_file(f"{path}/{name}", data)

    def ignores_conditions(self, name: str) -> bool:
        """Return whether the store overwrites an object although the write requires that none exists."""
        files, path = self._writable()
        with self._asking(f"/{name}"):
            try:
                files.pipe_file(f"{path}/{name}", files.cat_file(f"{path}/{name}"), **CONDITIONS[self._scheme](None))
            except _errors() as error:
                if _code(error) in _CHANGED:
                    return False
                raise
        return True

    def delete(self, name: str) -> None:
        """Delete an object if it exists."""
        files, path = self._writable()
        with self._asking(f"/{name}"):
            try:
                files.rm_file(f"{path}/{name}")
            except FileNotFoundError:
                return

    def _writable(self) -> tuple[Any, str]:
        """Return the file system of a URL that supports publishing."""
        if self._scheme not in CONDITIONS:
            raise BucketError(f"{self.url} can only be read; models are published to s3://bucket/prefix or to a folder")
        return self._file_system

    @contextmanager
    def _asking(self, name: str = "") -> Iterator[None]:
        """Convert errors of the store to BucketError."""
        try:
            yield
        except _GoneError:
            raise FileNotFoundError(f"{self.url}{name} is missing") from None
        except BucketError:
            raise
        except _errors() as error:
            if isinstance(error, OSError) and error.filename is not None and not _code(error):
                raise  # about a file on this machine: a full disk, missing permission
            raise BucketError(f"{self.url}{name} {_words(error)}") from None


class _GoneError(Exception):
    """A listed object no longer exists."""


def _entry(info: dict[str, Any]) -> Entry:
    modified = info.get("LastModified") or info.get("mtime") or info.get("created") or 0.0
    seconds = modified.timestamp() if isinstance(modified, datetime) else float(modified)
    etag = info.get("ETag") or info.get("etag") or f"{seconds}-{info.get('ino', '')}-{info['size']}"
    return Entry(str(etag), int(info["size"]), seconds)


def _errors() -> tuple[type[Exception], ...]:
    """Return the exception types of fsspec, and of s3fs if it is installed. s3fs is already imported by then."""
    try:
        from aiohttp import ClientError
        from botocore.exceptions import BotoCoreError
        from botocore.exceptions import ClientError as AnswerError
    except ImportError:
        return (OSError, TimeoutError)
    return (OSError, TimeoutError, BotoCoreError, ClientError, AnswerError)


def _code(error: BaseException) -> str:
    """Return S3's code of an error; "" if there is none."""
    for one in (error, error.__cause__):
        response = getattr(one, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
    return ""


def _words(error: BaseException) -> str:
    """Describe an error without the store's details about accounts, because parts of it are shown to everybody."""
    code = _code(error)
    if code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"):
        return f"refuses the credentials ({code}); check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    if isinstance(error, PermissionError):
        return f"denies access ({code or 'permission'}); reading needs s3:ListBucket and s3:GetObject, publishing" + (
            " s3:PutObject and s3:DeleteObject as well"
        )
    if code == "NoSuchBucket":
        return "is in a bucket that does not exist; create it, or check AWS_ENDPOINT_URL"
    if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError"):
        return "cannot be read without credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
    if code:
        return f"cannot be used now: the store answers {code}"
    return f"cannot be reached: {' '.join(str(error).split()) or type(error).__name__}"
