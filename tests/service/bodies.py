"""Bodies of calls that are not JSON."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
from pyarrow import parquet

HEAD = "inference-header-content-length"


def parquet_of(columns: dict[str, Any] | pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    parquet.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), file, **options)
    return file.getvalue()


def binary(head: Any, data: bytes, **headers: str) -> dict[str, Any]:
    """Content and headers of an inference request whose tensors follow its JSON; no content type unless given."""
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return {"content": text + data, "headers": {HEAD: str(len(text)), **headers}}


def without_data(tensor: dict[str, Any], size: int) -> dict[str, Any]:
    """A tensor whose values, so many bytes, follow the JSON."""
    return {k: v for k, v in tensor.items() if k != "data"} | {"parameters": {"binary_data_size": size}}
