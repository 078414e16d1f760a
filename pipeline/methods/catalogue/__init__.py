"""Names of methods: the table PARTS, and the table PRESETS of published combinations.

`parts` and `presets` add those that other distributions register in the entry-point group `trueodds.methods`.
"""

from __future__ import annotations

from pipeline.methods.catalogue.parts import PARTS
from pipeline.methods.catalogue.presets import PRESETS
from pipeline.methods.compose import Part, Preset
from trueodds.processes import extensions
from trueodds.texts import short

__all__ = ["PARTS", "PRESETS", "parts", "presets"]


def parts() -> dict[str, Part]:
    """Return PARTS and the registered parts by name.

    Raises:
        ExtensionError: A registered object cannot be used, or its name is not its own.
    """
    return PARTS | {name: value for name, value in _extension_values().items() if isinstance(value, Part)}


def presets() -> dict[str, Preset]:
    """Return PRESETS and the registered presets by name.

    Raises:
        ExtensionError: As in `parts`.
    """
    return PRESETS | {name: value for name, value in _extension_values().items() if isinstance(value, Preset)}


def _extension_values() -> dict[str, Part | Preset]:
    values: dict[str, Part | Preset] = {}
    for extension in extensions.listing("methods", {*PARTS, *PRESETS}):
        value = extension.load()
        if not isinstance(value, Part | Preset):
            raise extension.error(f"is {short(value)}; allowed are a Part and a Preset of pipeline.methods")
        values[extension.name] = value
    return values
