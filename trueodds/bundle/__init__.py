"""Servable models: one bundle (`Bundle`) and the folder, or the bucket, in which many are published (`ModelFolder`,
`open_models`).

A bundle is written once, by `Bundle.write`, and loaded by its hashes. Published, it answers or shadows:

>>> import tempfile
>>> from pathlib import Path
>>> import numpy as np
>>> from trueodds.bundle import Bundle, Description, ModelFolder
>>> from trueodds.calibrators import Temperature
>>> from trueodds.inputs import ImageInput
>>> temporary = tempfile.TemporaryDirectory()
>>> folder = Path(temporary.name)
>>> _ = (folder / "graph.onnx").write_bytes(b"the graph that your framework exported")
>>> bundle = Bundle.write(
...     folder / "bundle",
...     folder / "graph.onnx",
...     Temperature(1.5),
...     Description(
...         name="pets",
...         classes=["cat", "dog"],
...         input=ImageInput(height=2, width=2, channels=1),
...         method="ce",
...         training={},
...         metrics={},
...         data_sha256="",
...         code_sha256="",
...     ),
...     golden_input=np.zeros((2, 2, 1), np.uint8),
...     golden_logits=[0.5, -0.5],
... )
>>> models = ModelFolder(folder / "models")
>>> models.publish(bundle.directory).name == bundle.version
True
>>> models.default_model(), [change.action for change in models.changes("pets")]
('pets', ['publish'])
>>> temporary.cleanup()
"""

from trueodds.bundle.act_alone import ActAlone, Decision
from trueodds.bundle.audit_log import AuditLogError, Change, Reason, user
from trueodds.bundle.bucket.cached import CachedModels
from trueodds.bundle.bucket.models import BucketModels
from trueodds.bundle.bucket.objects import BucketError
from trueodds.bundle.bundle import CALIBRATOR, CARD, MODEL, MODEL_CARD, Bundle, BundleError, Infer, why_none, write_none
from trueodds.bundle.card import METRICS, Card, Description, Golden, Reference
from trueodds.bundle.contents import DEFAULT, RECALIBRATED, SHADOW, WAITING, Contents, Key, Role
from trueodds.bundle.locks import BusyError
from trueodds.bundle.model_folder import ModelFolder
from trueodds.bundle.opening import open_models
from trueodds.bundle.published import VARIABLE, PublishedModels
from trueodds.bundle.risk_coverage import RiskCoverage, RiskCoveragePoint
from trueodds.bundle.shadows import SLOTS, Slot
from trueodds.bundle.single import SingleBundle

__all__ = [
    "CALIBRATOR",
    "CARD",
    "DEFAULT",
    "METRICS",
    "MODEL",
    "MODEL_CARD",
    "RECALIBRATED",
    "SHADOW",
    "SLOTS",
    "VARIABLE",
    "WAITING",
    "ActAlone",
    "AuditLogError",
    "BucketError",
    "BucketModels",
    "Bundle",
    "BundleError",
    "BusyError",
    "CachedModels",
    "Card",
    "Change",
    "Contents",
    "Decision",
    "Description",
    "Golden",
    "Infer",
    "Key",
    "ModelFolder",
    "PublishedModels",
    "Reason",
    "Reference",
    "RiskCoverage",
    "RiskCoveragePoint",
    "Role",
    "SingleBundle",
    "Slot",
    "open_models",
    "why_none",
    "write_none",
    "user",
]
