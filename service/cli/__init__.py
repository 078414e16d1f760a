"""Commands of the service: `trueodds COMMAND`, or `python -m service COMMAND` in a checkout."""

from trueodds.cli import Command

COMMANDS = {
    "serve": Command("service.cli.serve", "serve the published models over HTTP", "serve"),
    "key": Command("service.cli.key", "make a key and the hash that the service needs", "serve"),
    "store": Command("service.cli.store", "upgrade a store, settle doubtful labels, set maturity windows", "serve"),
}

STORE_READER = "service.predict.stored.copies:StoreCopies"
"""Class that reads stores for `trueodds report --store`, as `module:name`."""
