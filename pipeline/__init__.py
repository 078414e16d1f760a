"""Training: from data to a bundle that a service can serve."""

import trueodds  # noqa: F401  # switches off the telemetry of the libraries that the modules below import
