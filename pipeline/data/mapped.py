"""Arrays that are too large to be held: mapped from a file, with few of their pages in memory at a time.

The system keeps a file's pages as long as nobody else needs the memory, and counts those that a process has touched as
its own. So that training on 4 GB of rows takes no 4 GB, touched pages are given back every 64 MB; most of them stay in
the system's cache, from which they come again in microseconds.
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
"""Bytes of an array; a smaller one is held in memory."""
KEPT = 2**26
"""Bytes of pages, of each split, that may have been touched before they are given back."""
AROUND = 2**16
"""Bytes that the system maps around a page that is touched: what a row that is drawn alone brings along."""
BLOCK = 2**19
"""Bytes that are worked on at a time."""
_READ_HEADER = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@dataclass
class Pages:
    """The pages of an array, where it is mapped: given back when enough of them have been touched.

    around: bytes beside a row's own that it brings along: AROUND where rows are drawn, 0 where they come in order.
    """

    array: Array | None = None
    around: int = 0
    touched: int = field(default=0, init=False)

    def touch(self, rows: int) -> None:
        """Counts rows that were read or written; of an array in memory nothing happens."""
        if self.array is None or (mapping := _mapping(self.array)) is None:
            return
        self.touched += rows * (self.array.nbytes // max(1, len(self.array)) + self.around)
        if self.touched > KEPT:
            mapping.madvise(mmap.MADV_DONTNEED)  # of a file's pages nothing is lost: what was written is its content
            self.touched = 0


def empty(shape: tuple[int, ...], dtype: npt.DTypeLike, scratch: Path | None) -> Array:
    """An array to be filled: in memory, or from MAPPED_FROM on in a file without a name that goes with the array.

    scratch: the folder of that file; None: the system's for temporary files.

    Raises:
        DataError: the disk has no room for it.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size < MAPPED_FROM:
        return np.empty(shape, dtype)
    folder = scratch or Path(tempfile.gettempdir())
    if (free := shutil.disk_usage(folder).free) < size:  # a disk that fills up kills the process where it writes
        raise DataError(
            f"{folder} has no room for {size / 1e9:.1f} GB of rows: {free / 1e9:.1f} GB are free; free more"
        )
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(size)
        return np.ndarray(shape, dtype, buffer=mmap.mmap(file.fileno(), size))


def blocks(array: Array) -> Iterator[Array]:
    """The array in order, some rows at a time."""
    pages, rows = Pages(array), _rows_of_a_block(array)
    for begin in range(0, len(array), rows):
        block = array[begin : begin + rows]
        yield block
        pages.touch(len(block))


def take(array: Array, rows: npt.NDArray[np.intp], scratch: Path | None) -> Array:
    """`array[rows]`, in memory or mapped as `empty`."""
    taken = empty((len(rows), *array.shape[1:]), array.dtype, scratch)
    source, target, step = Pages(array, AROUND), Pages(taken), _rows_of_a_block(array)
    for begin in range(0, len(rows), step):
        index = rows[begin : begin + step]
        taken[begin : begin + step] = array[index]
        source.touch(len(index))
        target.touch(len(index))
    return taken


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays of an .npz; those of bytes from MAPPED_FROM on are mapped, if they are not compressed.

    A copy is made of a page that is written to, so that the file stays as it is.

    Raises:
        FileError, FileNotFoundError: as `trueodds.files.read_npz`.
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
        cure = "write it with np.savez, for a stage's file: dvc repro"
        raise FileError(f"{path} is not a whole .npz file without Python objects ({error}); {cure}") from None
    return arrays


def write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """What `trueodds.files.write_npz` writes, to the byte, block by block."""
    with atomic_write(path) as aside, zipfile.ZipFile(aside, "w") as archive:
        for name, array in arrays.items():
            descr = np.lib.format.dtype_to_descr(array.dtype)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                header = {"descr": descr, "fortran_order": False, "shape": array.shape}
                np.lib.format.write_array_header_1_0(member, header)
                for block in blocks(array):
                    member.write(np.ascontiguousarray(block).data)


def _map(mapping: mmap.mmap, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array | None:
    """An entry as a part of its file's mapping; None for what is small or of another form."""
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size < MAPPED_FROM:
        return None
    with archive.open(entry) as member:
        version = np.lib.format.read_magic(member)
        shape, by_columns, dtype = _READ_HEADER[version](member)
        begin = member.tell()
        if dtype != np.uint8 or by_columns or int(np.prod(shape)) != entry.file_size - begin:
            return None
        while member.read(BLOCK):  # zipfile holds the checksum against what is read
            pass
    # The content comes after a local header, whose name and extra field vary.
    header = mapping[entry.header_offset : entry.header_offset + 30]
    content = entry.header_offset + 30 + sum(int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    return np.ndarray(shape, dtype, mapping, content + begin)


def _mapping(array: Array) -> mmap.mmap | None:
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _rows_of_a_block(array: Array) -> int:
    return max(1, BLOCK * len(array) // max(1, array.nbytes))
