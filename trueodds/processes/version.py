"""The one place for the version: packages, images, manifests and pages take it from here."""

VERSION = "0.1.0"
"""Version of all packages."""
