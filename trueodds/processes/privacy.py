"""Disables telemetry of dependencies, by the environment variables that they read at their first import.

Importing `trueodds`, `pipeline` or `service` is enough, for this process and its children. A variable that is already
set keeps its value: ORT_DISABLE_TELEMETRY=0 allows onnxruntime to report.
"""

import os

SWITCHES = {
    # From version 1.29 on, onnxruntime writes a device id below ~/.cache and calls its vendor, also on Linux. It sends
    # the first report before disable_telemetry_events() can be called.
    "ORT_DISABLE_TELEMETRY": "1",
    "DVC_NO_ANALYTICS": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",  # read by Prefect's client
}


def switch_off() -> None:
    """Set the variables that are not set."""
    for name, value in SWITCHES.items():
        os.environ.setdefault(name, value)
