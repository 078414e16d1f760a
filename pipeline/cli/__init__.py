"""The pipeline's commands: `trueodds COMMAND`, or `python -m pipeline COMMAND` in a checkout."""

from trueodds.cli import Command

COMMANDS = {
    "init": Command("pipeline.starter.command", "write params.yaml and dvc.yaml here, for dvc repro"),
    "code": Command("pipeline.starter.command", "write hashes of the installed code, for that dvc.yaml"),
    "fetch": Command("pipeline.cli.stages", "load the data set and split it", "train"),
    "plan": Command("pipeline.cli.stages", "resolve the training settings and hash the code that they use", "train"),
    "train": Command("pipeline.cli.stages", "train the network", "train"),
    "shift": Command("pipeline.cli.stages", "corrupt the test images and pass them through the network", "train"),
    "fit": Command("pipeline.cli.stages", "fit a calibrator on the validation rows", "train"),
    "evaluate": Command("pipeline.cli.stages", "measure and draw the calibration of the test rows", "train"),
    "export": Command("pipeline.cli.stages", "write the bundle that the service loads", "train"),
    "all": Command("pipeline.cli.stages", "run these seven stages in order, without DVC", "train"),
    "repro": Command("pipeline.cli.repro", "run the stages that are out of date, in .run/workspace", "train,workflow"),
    "data": Command("pipeline.published_data.command", "download published predictions with their outcomes"),
    "study": Command("pipeline.studies.command", "run many settings and tabulate the results", "train,workflow"),
    "params": Command("pipeline.cli.params", "print every parameter with its value"),
    "methods": Command("pipeline.cli.tables", "list the training methods and their options", "train"),
    "nets": Command("pipeline.cli.nets", "list the nets with their sizes and, on request, their speed here", "train"),
    "recipes": Command("pipeline.cli.tables", "list the training recipes", "train"),
    "calibrators": Command("pipeline.cli.tables", "list the calibrators and their options"),
    "curves": Command("pipeline.cli.curves", "draw the epochs of the last training run", "train"),
    "gamma-curve": Command("pipeline.cli.curves", "draw how focal loss changes the gradient", "train"),
    "demo": Command("pipeline.cli.demo", "serve the trained model, label its answers, check the report", "train,serve"),
    "publish": Command("pipeline.cli.publish", "copy a bundle to the model directory"),
    "versions": Command("pipeline.cli.versions", "list published versions, their roles, and every change"),
    "promote": Command("pipeline.cli.roles", "make a published version the served one"),
    "rollback": Command("pipeline.cli.roles", "serve the previous version again"),
    "shadow": Command("pipeline.cli.roles", "score a version on the same inputs without serving it"),
    "default": Command("pipeline.cli.roles", "choose the model for calls that name no model"),
    "recalibrate": Command("pipeline.cli.recalibrate", "fit a calibrator on live labels and put it under judgement"),
    "judge": Command("pipeline.cli.judge", "compare candidates with the served version on later labels"),
    "doctor": Command("pipeline.cli.doctor", "check that versions, folders, schedules and alarms agree", "workflow"),
}
STAGE_COMMANDS = {
    "calibrate": Command("pipeline.cli.stages", "fit a calibrator on the validation rows", "train"),
}
"""Commands of `python -m pipeline` only. `trueodds calibrate` is the library's; `trueodds fit` is this stage."""
