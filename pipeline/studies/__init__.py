"""Many runs as one question: what varies, what is held, each run done once, and a table with what chance explains."""

from pathlib import Path

OUT = Path("studies")
"""The folder of tables, figures and pages by default."""
