"""Keeps dependencies from reporting to their vendors, by the environment variables that they read when first imported.

Importing `pipeline` or `service` is enough, for this process and those it starts. A variable that is set already stays:
ORT_DISABLE_TELEMETRY=0 lets onnxruntime report.
"""

import os

SWITCHES = {
    # From 1.29 on it writes a device id below ~/.cache and calls its vendor, on Linux too. The first report is on its
    # way before disable_telemetry_events() can be called.
    "ORT_DISABLE_TELEMETRY": "1",
    "DVC_NO_ANALYTICS": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",  # Prefect's client asks for this one
}


def switch_off() -> None:
    """Set the variables that are not set."""
    for name, value in SWITCHES.items():
        os.environ.setdefault(name, value)
