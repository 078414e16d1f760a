"""Names of methods: the table PARTS, and the table PRESETS of published combinations.

`parts` and `presets` add those that other distributions register.
"""

from pipeline.methods.catalogue.parts import PARTS
from pipeline.methods.catalogue.presets import PRESETS
from pipeline.methods.catalogue.registered import parts, presets

__all__ = ["PARTS", "PRESETS", "parts", "presets"]
