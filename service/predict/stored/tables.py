"""Stored predictions as a table, CSV or Parquet, written block by block. Only one block is in memory."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from typing import Any, Literal, Protocol

import numpy as np

from service.errors import ServiceError
from service.predict.stored.stored_schemas import acting_of_row, columns_of_row, set_of_row
from service.store.rows import StoredPrediction, Version
from trueodds.inputs.table import escape

CSV, PARQUET = "text/csv", "application/vnd.apache.parquet"
Kind = Literal["text", "time", "number", "flag", "texts"]
COLUMNS: dict[str, Kind] = {
    "id": "text",
    "time": "time",
    "model": "text",
    "version": "text",
    "tag": "text",
    "predicted": "text",
    "confidence": "number",
    "label": "text",
    "label_time": "time",
    "corrected": "flag",
    "import_id": "text",
    "propensity": "number",
    "confidence_source": "text",
    "judge_label": "text",
}
"""Names, order and kinds of `columns_of_row`."""
ACTING: dict[str, Kind] = {"decision": "text", "audit": "flag"}
"""Columns of versions with a promise to act alone."""
SET: dict[str, Kind] = {"set": "texts"}
"""Column of versions whose conformal sets another server gives."""

Row = list[Any]


class TableWriter(Protocol):
    """Encoder of rows as a table."""

    media_type: str

    def block(self, rows: list[Row]) -> bytes:
        """Return the bytes of the next rows."""

    def end(self) -> bytes:
        """Return the bytes after the last row."""


class CsvWriter:
    """CSV in UTF-8 with a header. A missing value is an empty cell; times are ISO 8601 in UTC; a set is a JSON list.

    Texts are `escape`, so that spreadsheets do not run them as formulas.
    """

    media_type = f"{CSV}; charset=utf-8"

    def __init__(self, columns: dict[str, Kind]) -> None:
        self._lines = io.StringIO(newline="")
        self._csv = csv.writer(self._lines, lineterminator="\n")
        self._csv.writerow(map(escape, columns))

    def block(self, rows: list[Row]) -> bytes:
        self._csv.writerows([_text(value) for value in row] for row in rows)
        return self.end()

    def end(self) -> bytes:
        text = self._lines.getvalue()
        self._lines.seek(0)
        self._lines.truncate()
        return text.encode()


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z") if isinstance(value, datetime) else value


class ParquetWriter:
    """Parquet with times in UTC and one row group per block (extra `table`: pyarrow)."""

    media_type = PARQUET

    def __init__(self, columns: dict[str, Kind]) -> None:
        """Open the table. Raise ServiceError 422 if pyarrow is missing."""
        try:
            import pyarrow
            from pyarrow import parquet
        except ModuleNotFoundError:
            message = (
                "this service cannot write Parquet, because pyarrow is missing (pip install 'trueodds[serve,table]')"
            )
            raise ServiceError(422, "invalid_parameter", f"format = parquet: {message}. Use format=csv") from None
        self._arrow, self._sink = pyarrow, _Sink()
        types = {
            "text": pyarrow.string(),
            "time": pyarrow.timestamp("ms", "UTC"),
            "number": pyarrow.float64(),
            "flag": pyarrow.bool_(),
            "texts": pyarrow.list_(pyarrow.string()),
        }
        self._schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
        self._parquet = parquet.ParquetWriter(pyarrow.PythonFile(self._sink, mode="w"), self._schema)

    def block(self, rows: list[Row]) -> bytes:
        columns = [
            self._arrow.array(values, field.type)
            for values, field in zip(zip(*rows, strict=True), self._schema, strict=True)
        ]
        self._parquet.write_table(self._arrow.Table.from_arrays(columns, schema=self._schema))
        return self._sink.drain()

    def end(self) -> bytes:
        self._parquet.close()
        return self._sink.drain()


class _Sink(io.BytesIO):
    """File whose content is repeatedly taken away."""

    _taken = 0

    def tell(self) -> int:
        return self._taken + super().tell()

    def close(self) -> None:
        """Do nothing, because the last bytes still have to be taken."""

    def drain(self) -> bytes:
        data = self.getvalue()
        self.seek(0)
        self.truncate()
        self._taken += len(data)
        return data


WRITERS: dict[str, type[CsvWriter] | type[ParquetWriter]] = {"csv": CsvWriter, "parquet": ParquetWriter}


def columns_beside(version: Version) -> dict[str, Kind]:
    """Return the names and kinds of the columns before the probabilities."""
    return {**COLUMNS, **(ACTING if version.act_alone else {}), **(SET if version.has_given_sets else {})}


def has_class_columns(version: Version) -> bool:
    """Return whether the archive's files of a version have a column for each class.

    They have none if only confidences are known, or if a class has the name of another column.
    """
    taken = {*COLUMNS, *ACTING, *columns_beside(version)} & set(version.classes)
    return version.has_logits and not taken


def columns_of(version: Version, *, probabilities: bool) -> dict[str, Kind]:
    """Return the names and kinds of the columns.

    Raises:
        ServiceError: 422 if a class has the name of another column, or if probabilities are unknown.
    """
    columns = columns_beside(version)
    if not probabilities:
        return columns
    if not version.has_logits:
        message = f"{version.model}/{version.version} has no probabilities, only confidences; leave probabilities out"
        raise ServiceError(422, "invalid_parameter", message)
    if clash := sorted(set(columns) & set(version.classes)):
        message = f"the class {clash[0]!r} has the same name as a column; leave probabilities out"
        raise ServiceError(422, "invalid_parameter", message)
    return {**columns, **dict.fromkeys(version.classes, "number")}


def rows_of(
    block: list[StoredPrediction], version: Version, *, probabilities: bool, audit_share: float = 0.0
) -> list[Row]:
    """Return the rows of a block in the order of the columns. `audit_share` is that of answers that act alone."""
    classes = version.classes
    rows: list[Row] = [list(columns_of_row(p, version).values()) for p in block]
    if version.act_alone:
        for row, p in zip(rows, block, strict=True):
            acting = acting_of_row(p, version, audit_share)
            row += [acting["decision"], acting.get("audit")]
    if version.has_given_sets:
        for row, p in zip(rows, block, strict=True):
            row.append(set_of_row(p, version))
    if probabilities:
        logits_NC = np.frombuffer(b"".join(p.logits for p in block), "<f4").reshape(len(block), len(classes))
        probabilities_NC = version.calibrator(logits_NC, groups=[p.tag for p in block])
        for row, beside in zip(rows, probabilities_NC.tolist(), strict=True):
            row += beside
    return rows
