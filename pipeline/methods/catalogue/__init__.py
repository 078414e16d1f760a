"""Names of methods: the table PARTS, and the table PRESETS of published combinations."""

from pipeline.methods.catalogue.parts import PARTS
from pipeline.methods.catalogue.presets import PRESETS

__all__ = ["PARTS", "PRESETS"]
