"""Files that are written completely or not at all: each is written to a temporary file, then renamed."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trueodds.errors import UserError

if TYPE_CHECKING:  # commands that read no arrays start without numpy
    import numpy.typing as npt


def sha256(path: Path) -> str:
    """Compute the SHA-256 hash of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def class_folders(folder: Path) -> tuple[str, ...]:
    """List the names of the folders in a folder, sorted. Hidden ones, as notebooks write them, are no classes."""
    return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir() and not _is_hidden(path.name)))


def files_below(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """List the files at any depth below a folder, sorted; none if the folder does not exist.

    Args:
        folder: The folder.
        suffixes: Suffixes in lower case. Those of the files may have any case.

    Returns:
        The files, without hidden ones and those in hidden folders: macOS writes `._1.png` beside `1.png`.
    """
    found = (path for path in folder.rglob("*") if path.suffix.lower() in suffixes and path.is_file())
    return sorted(path for path in found if not any(map(_is_hidden, path.relative_to(folder).parts)))


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


class FileError(UserError, ValueError):
    """Error for a file that exists and cannot be read."""


class FileChangedError(FileError):
    """Error for a file that changed while it was read. Reading it again may succeed."""


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        FileError: The file is not JSON.
        FileNotFoundError: The file does not exist.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileError(
            f"{path} is not complete JSON ({error}); write it again, or run dvc repro if a stage wrote it"
        ) from None


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read all arrays of an .npz file without Python objects.

    Raises:
        FileError: The file is not such an .npz file.
        FileNotFoundError: The file does not exist.
    """
    with _npz(path) as file:
        return dict(file)


def npz_names(path: Path) -> list[str]:
    """Return the names of the arrays of an .npz file, without reading them.

    Raises:
        FileError: The file is not an .npz file.
        FileNotFoundError: The file does not exist.
    """
    with _npz(path) as file:
        return list(file)


@contextmanager
def _npz(path: Path) -> Iterator[Any]:
    import numpy as np

    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            yield file
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, TypeError, ValueError) as error:
        cure = "write it with np.savez, text as array.astype(str); run dvc repro if a stage wrote it"
        raise FileError(f"{path} is not a complete .npz file without Python objects ({error}); {cure}") from None


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`, which replaces `path` at the end.

    If the block raises, `path` stays unchanged.

    Raises:
        OSError: The file cannot be written (see `naming`).
    """
    is_device = path.exists() and not path.is_file()  # /dev/stdout, say
    aside = path if is_device else path.with_name(path.name + ".part")
    try:
        with naming(path, aside):
            yield aside
            if not is_device:
                aside.replace(path)
    finally:
        if not is_device:
            aside.unlink(missing_ok=True)


@contextmanager
def naming(path: Path, aside: Path | None = None) -> Iterator[None]:
    """Make an error of writing name `path` instead of a temporary file, even if another error hides it.

    Args:
        path: File or folder that the block writes, as the user knows it.
        aside: Temporary file or folder that replaces it later, if the block only writes it.

    Raises:
        OSError: With `path` as its filename, if the disk is full, or if the error names no file or one inside `aside`.
            An error that names another file stays unchanged; one that cannot be read, for example.
    """
    try:
        yield
    except Exception as error:
        cause = _of_system(error)
        if cause is None or not (is_full(cause) or (aside is not None and _is_of(error, cause, aside))):
            raise
        raise OSError(cause.errno, cause.strerror, str(path)) from None


def is_full(error: OSError) -> bool:
    """Return whether an error means that a disk, a quota or the largest file size is used up."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _is_of(error: Exception, cause: OSError, aside: Path) -> bool:
    """Return whether an error that is not a UserError names no file or one inside `aside`."""
    name = cause.filename
    return not isinstance(error, UserError) and (not isinstance(name, str) or Path(name).is_relative_to(aside))


def _of_system(error: BaseException | None) -> OSError | None:
    """Find the error of the operating system behind an error; torch raises a RuntimeError after it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None and type(error).__module__ == "builtins":
            return error
        error = error.__cause__ or error.__context__
    return None


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text without changing its line ends.

    Raises:
        OSError: The file cannot be written.
    """
    with atomic_write(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="")


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes.

    Raises:
        OSError: The file cannot be written.
    """
    with atomic_write(path) as aside:
        aside.write_bytes(data)


def copy(source: Path, target: Path) -> None:
    """Copy the bytes of a file.

    Raises:
        OSError: The source cannot be read, or the target cannot be written.
    """
    with atomic_write(target) as aside:
        shutil.copyfile(source, aside)


def write_json(path: Path, tree: Any) -> None:
    """Write indented JSON in the order of the keys. NaN and infinity are refused, because JSON has no such numbers.

    Raises:
        ValueError: The tree holds NaN or infinity.
        OSError: The file cannot be written.
    """
    write_text(path, json.dumps(tree, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_npz(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Write an uncompressed .npz without Python objects. Equal arrays give equal bytes.

    Raises:
        OSError: The file cannot be written.
    """
    import numpy as np

    with atomic_write(path) as aside, aside.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
