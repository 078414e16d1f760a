"""The commands of the library itself: what needs neither the pipeline nor the service."""

from trueodds.cli import Command

COMMANDS = {
    "import": Command("trueodds.importing.command", "make a bundle of an ONNX model of your own", "import"),
}
