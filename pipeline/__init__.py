"""Training: from data to a bundle that can be served."""

import trueodds  # noqa: F401  # switches off, before any module below imports it, what would report to a vendor
