"""Servable models: a single bundle (`Bundle`), and the folder or bucket of published bundles (`PublishedModels`).

`Bundle.write` writes a bundle once. Loading checks its hashes. A published bundle answers requests or is a shadow.

Examples:
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from trueodds.bundle import Bundle, Description, open_models
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
    >>> models = open_models(folder / "models")
    >>> models.publish(bundle.directory).name == bundle.version
    True
    >>> models.default_model(), [change.action for change in models.changes("pets")]
    ('pets', ['publish'])
    >>> temporary.cleanup()
"""

from typing import TYPE_CHECKING

from trueodds.processes.lazy import at_first_use

if TYPE_CHECKING:
    from trueodds.bundle.act_alone import ActAlone, Decision
    from trueodds.bundle.audit_log import AuditLogError, Change, Reason, user
    from trueodds.bundle.bundle import Bundle, write_none
    from trueodds.bundle.card import METRICS, POSITIVE_EDGES, Card, Description, Golden, Reference
    from trueodds.bundle.card_measures import CardSets, RiskCoverage, RiskCoveragePoint
    from trueodds.bundle.contents import CALIBRATOR, CARD, MODEL, MODEL_CARD, BundleError, Contents, Key, why_none
    from trueodds.bundle.label_bundle import LabelBundle
    from trueodds.bundle.published import PublishedModels, open_models
    from trueodds.bundle.storage.loading import load_bundle
    from trueodds.bundle.storage.locks import BusyError
    from trueodds.bundle.storage.objects import BucketError
    from trueodds.bundle.stored_bundle import Infer
    from trueodds.processes.choices import DEFAULT, RECALIBRATED, SHADOW, SLOTS, WAITING, Role, Slot
else:
    __getattr__ = at_first_use(
        __name__,
        {
            "trueodds.bundle.act_alone": "ActAlone Decision",
            "trueodds.bundle.audit_log": "AuditLogError Change Reason user",
            "trueodds.bundle.bundle": "Bundle write_none",
            "trueodds.bundle.contents": "CALIBRATOR CARD MODEL MODEL_CARD BundleError Contents Key why_none",
            "trueodds.bundle.card": "METRICS POSITIVE_EDGES Card Description Golden Reference",
            "trueodds.bundle.card_measures": "CardSets RiskCoverage RiskCoveragePoint",
            "trueodds.bundle.label_bundle": "LabelBundle",
            "trueodds.bundle.published": "PublishedModels open_models",
            "trueodds.bundle.storage.loading": "load_bundle",
            "trueodds.bundle.storage.locks": "BusyError",
            "trueodds.bundle.storage.objects": "BucketError",
            "trueodds.bundle.stored_bundle": "Infer",
            "trueodds.processes.choices": "DEFAULT RECALIBRATED SHADOW SLOTS WAITING Role Slot",
        },
    )

    def __dir__() -> list[str]:
        """List the public names alone, for `dir` and tab completion."""
        return __all__


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
    "WAITING",
    "ActAlone",
    "AuditLogError",
    "BucketError",
    "Bundle",
    "BundleError",
    "BusyError",
    "Card",
    "CardSets",
    "Change",
    "Contents",
    "Decision",
    "Description",
    "Golden",
    "Infer",
    "Key",
    "LabelBundle",
    "PublishedModels",
    "Reason",
    "Reference",
    "POSITIVE_EDGES",
    "RiskCoverage",
    "RiskCoveragePoint",
    "Role",
    "Slot",
    "load_bundle",
    "open_models",
    "user",
    "why_none",
    "write_none",
]
