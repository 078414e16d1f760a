"""Choices and defaults of options. The help of commands shows them, so this module imports no other package."""

from __future__ import annotations

from typing import Literal

STORE = "store.sqlite"
"""Store of a service if no other is named."""
Meaning = Literal["as_stored", "as_names", "void"]
"""Meaning of doubtful labels: the stored class; the class whose name the stored index is; or unknown."""
