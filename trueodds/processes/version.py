"""The version of TrueOdds: the one place from which packages, images, manifests and pages take it."""

__version__ = "0.1.0"
