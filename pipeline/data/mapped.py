"""Memory-mapped arrays for data that is larger than memory.

The system keeps a file's pages as long as no process needs the memory, but counts the pages that a process has touched
as that process's own. To train on 4 GB of rows without 4 GB of memory, touched pages are released every 64 MB. Most of
them stay in the system's cache and return in microseconds.
"""

from __future__ import annotations

import mmap
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.data.raw import DataError
from trueodds.files import FileError, atomic_write
from trueodds.files import read_npz as read_whole

Array = npt.NDArray[Any]
MAPPED_FROM = 2**28
"""Size in bytes from which an array is memory-mapped; smaller arrays are held in memory."""
RELEASED_AT = 2**26
"""Bytes of pages of one array that may be touched before they are released."""
AROUND = 2**16
"""Bytes that the system maps around a touched page, which a single random row therefore also touches."""
BLOCK = 2**19
"""Bytes processed at a time."""
_READ_HEADER = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@dataclass
class Pages:
    """The touched pages of an array, released when there are enough of them; no effect for an array in memory.

    Attributes:
        array: The array.
        around: Extra bytes that a row touches: AROUND for rows in random order, 0 for rows in sequence.
        touched_bytes: Bytes touched since the last release.
    """

    array: Array | None = None
    around: int = 0
    touched_bytes: int = field(default=0, init=False)

    def touch(self, rows: int) -> None:
        """Count rows that were read or written."""
        if self.array is None or (mapping := _mapping(self.array)) is None:
            return
        self.touched_bytes += rows * (self.array.nbytes // max(1, len(self.array)) + self.around)
        if self.touched_bytes > RELEASED_AT:
            mapping.madvise(mmap.MADV_DONTNEED)  # pages of a file lose nothing: writes are already its content
            self.touched_bytes = 0


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike, scratch: Path | None) -> Array:
    """Return an array to fill: in memory, or from MAPPED_FROM bytes on in an unnamed temporary file.

    Args:
        shape: Shape of the array.
        dtype: Its dtype.
        scratch: Folder of the file; None means the system's temporary folder.

    Raises:
        DataError: The disk has no room for it.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size < MAPPED_FROM:
        return np.empty(shape, dtype)
    folder = scratch or Path(tempfile.gettempdir())
    if (free := shutil.disk_usage(folder).free) < size:  # writing to a full disk would kill the process
        raise DataError(
            f"{folder} has no room for {size / 1e9:.1f} GB of rows: {free / 1e9:.1f} GB are free; free more disk space"
        )
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(size)
        return np.ndarray(shape, dtype, buffer=mmap.mmap(file.fileno(), size))


def blocks(array: Array) -> Iterator[Array]:
    """Yield the array in order, some rows at a time."""
    pages, rows = Pages(array), _rows_of_a_block(array)
    for begin in range(0, len(array), rows):
        block = array[begin : begin + rows]
        yield block
        pages.touch(len(block))


def take(array: Array, rows: npt.NDArray[np.intp], scratch: Path | None) -> Array:
    """Return `array[rows]`, in memory or memory-mapped as by `empty`."""
    taken = empty((len(rows), *array.shape[1:]), array.dtype, scratch)
    source, target, step = Pages(array, AROUND), Pages(taken), _rows_of_a_block(array)
    for begin in range(0, len(rows), step):
        index = rows[begin : begin + step]
        taken[begin : begin + step] = array[index]
        source.touch(len(index))
        target.touch(len(index))
    return taken


def read_npz(path: Path) -> dict[str, Array]:
    """Read the arrays of an .npz; memory-map uncompressed byte arrays from MAPPED_FROM bytes on.

    Writing to a mapped array copies the page, so the file does not change.

    Raises:
        FileError: As `trueodds.files.read_npz`.
        FileNotFoundError: As `trueodds.files.read_npz`.
    """
    if path.stat().st_size < MAPPED_FROM:
        return read_whole(path)
    arrays: dict[str, Array] = {}
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            for entry in archive.infolist():
                name = entry.filename.removesuffix(".npy")
                if (array := _map(mapping, archive, entry)) is None:
                    with archive.open(entry) as member:
                        array = np.lib.format.read_array(member, allow_pickle=False)
                arrays[name] = array
    except (zipfile.BadZipFile, EOFError, KeyError, TypeError, ValueError) as error:
        cure = "write it with np.savez; if a stage wrote it, run: dvc repro"
        raise FileError(f"{path} is not a whole .npz file without Python objects ({error}); {cure}") from None
    return arrays


def write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write the same bytes as `trueodds.files.write_npz`, block by block."""
    with atomic_write(path) as aside, zipfile.ZipFile(aside, "w") as archive:
        for name, array in arrays.items():
            descr = np.lib.format.dtype_to_descr(array.dtype)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                header = {"descr": descr, "fortran_order": False, "shape": array.shape}
                np.lib.format.write_array_header_1_0(member, header)
                for block in blocks(array):
                    member.write(np.ascontiguousarray(block).data)


def _map(mapping: mmap.mmap, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array | None:
    """Return an entry as a part of its file's mapping; None if it is small or has another form."""
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size < MAPPED_FROM:
        return None
    with archive.open(entry) as member:
        version = np.lib.format.read_magic(member)
        shape, by_columns, dtype = _READ_HEADER[version](member)
        begin = member.tell()
        if dtype != np.uint8 or by_columns or int(np.prod(shape)) != entry.file_size - begin:
            return None
        while member.read(BLOCK):  # at the end zipfile compares the checksum
            pass
    # The content follows a local header, whose name and extra field have variable length.
    header = mapping[entry.header_offset : entry.header_offset + 30]
    content = entry.header_offset + 30 + sum(int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    return np.ndarray(shape, dtype, mapping, content + begin)


def _mapping(array: Array) -> mmap.mmap | None:
    """Return the mapping that an array is a view of; None for an array in memory."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _rows_of_a_block(array: Array) -> int:
    """Return the number of rows in BLOCK bytes."""
    return max(1, BLOCK * len(array) // max(1, array.nbytes))
