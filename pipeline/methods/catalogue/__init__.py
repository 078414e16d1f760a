"""The names of methods: PARTS and the PRESETS over them, the only place where names live."""

from pipeline.methods.catalogue.parts import PARTS
from pipeline.methods.catalogue.presets import PRESETS

__all__ = ["PARTS", "PRESETS"]
