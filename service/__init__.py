"""Serving: calibrated answers over HTTP, labels, and the live calibration report."""

import trueodds  # noqa: F401  # switches off, before service.models.model imports onnxruntime, its reports
