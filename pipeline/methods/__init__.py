"""How to train for calibration, by name: `build("focal", gamma=2).loss(logits_NC, labels_N)`.

A method is a primary loss, penalties added to it, changes to labels and batches, and options of all of them. PARTS and
PRESETS below are the only place where names live; `build`, the check of params.yaml, `trueodds methods` and
the tests read them. To add a loss, write a function that returns one value per sample, in a module of its own, and
enter it into PARTS: a net is trained anew when a module of its own method changes (`pipeline.training.provenance`).
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.config import OptionValue
from pipeline.methods import labels, losses, meta, penalties
from pipeline.methods.adafocal import AdaFocal
from pipeline.methods.augmix import AugMix
from pipeline.methods.compose import Part, Preset, compose
from pipeline.methods.composition import Composition
from pipeline.methods.gamma import RULES, SCHEDULES, exponent, gamma_star
from pipeline.methods.meta.gamma_net import POSITIVE as POSITIVE_FORMS
from pipeline.methods.meta.learner import MetaLearner
from pipeline.methods.method import Method, Moment
from pipeline.nets.net import Net

GAMMA = {"gamma": tuple(RULES)}
VARIANT = {"variant": ("paper", "official")}
POSITIVE = (1e-6, 1e6)
BINS = (1, 10_000)
PUBLISHED_MMCE: dict[str, OptionValue] = {"weighted": True, "variant": "official"}
COMBINED: tuple[tuple[str, str, dict[str, OptionValue]], ...] = (
    ("", "ce", {}),
    ("focal_", "focal", {"gamma": 2.0}),
    ("mse_", "mse", {}),
)
DUAL_FOCAL_GAMMAS = (
    ("cifar10_resnet50", "CIFAR-10, ResNet-50", 5.0),
    ("cifar10_resnet110", "CIFAR-10, ResNet-110", 4.5),
    ("cifar10_wrn", "CIFAR-10, Wide ResNet-26-10", 2.6),
    ("cifar10_densenet", "CIFAR-10, DenseNet-121", 5.0),
    ("cifar100_resnet50", "CIFAR-100, ResNet-50", 5.0),
    ("cifar100_resnet110", "CIFAR-100, ResNet-110", 6.1),
    ("cifar100_wrn", "CIFAR-100, Wide ResNet-26-10", 3.9),
    ("cifar100_densenet", "CIFAR-100, DenseNet-121", 3.4),
    ("tiny", "Tiny-ImageNet, ResNet-50", 2.3),
)
"""Setting, what it is, and the gamma that the paper chose for it on validation rows."""

PARTS = {
    "ce": Part(losses.cross_entropy, "cross entropy"),
    "mse": Part(losses.mse, "Brier 1950, sum over classes; BL of the BSCE-GRA paper"),
    "focal": Part(
        losses.focal,
        "Lin et al. 2017; Mukhoti et al. 2020, section 4",
        limits={"gamma": (0, 50), "alpha": (0, 100), "first_change": (0, 1), "second_change": (0, 1)},
        choices=GAMMA,
        exponent=exponent,
        needs={"first_change": ("gamma", SCHEDULES), "second_change": ("gamma", SCHEDULES)},
    ),
    "inverse_focal": Part(
        losses.inverse_focal, "Wang et al. 2021", limits={"gamma": (0, 50)}, choices=GAMMA, exponent=exponent
    ),
    "dual_focal": Part(
        losses.dual_focal,
        "Tao et al. 2023; BSCE-GRA paper, eq. 5",
        limits={"gamma": (0, 50), "alpha": (0, 100)},
        choices={**GAMMA, "variant": ("paper", "official", "survey")},
        exponent=exponent,
    ),
    "bsce": Part(
        losses.bsce, "BSCE-GRA paper, eqs. 6 and 11", limits={"gamma": (0, 50), "norm": (1, 50)}, exponent=exponent
    ),
    "consistency": Part(
        losses.Consistency,
        "BSCE-GRA paper, section 16.1; Tao et al. 2024; variant official learns from the validation rows",
        limits={"count": (1, 1000), "noise": (0, 1000), "gamma": (0, 50), "start": (0, 1)},
        choices={"variant": ("mean", "vote", "official"), "search": ("fine", "grid")},
    ),
    "adafocal": Part(
        AdaFocal,
        "Ghosh et al. 2022; learns from the validation rows",
        limits={"gamma": (0.2, 20), "bins": (1, 1000), "rate": (0, 100), "every": (0, 1_000_000)},
    ),
    "ece_ce": Part(
        losses.EceCE,
        "the BSCE-GRA paper's public code; learns from the training rows",
        limits={"bins": (1, 1000), "classwise": (0, 100)},
        choices={"split": ("train", "val")},
    ),
    "smoothing": Part(labels.Smoothing, "Szegedy et al. 2016", role="labels", limits={"epsilon": (0, 1)}),
    "class_smoothing": Part(
        labels.ClassSmoothing,
        "survey, Label smoothing; learns from the validation rows",
        role="labels",
        limits={"epsilon": (0, 1)},
    ),
    "confidence_smoothing": Part(
        labels.ConfidenceSmoothing, "survey, Label smoothing", role="labels", limits={"epsilon": (0, 1)}
    ),
    "mixup": Part(labels.Mixup, "Zhang et al. 2018", role="labels", limits={"alpha": (0.01, 100)}),
    "augmix": Part(
        AugMix,
        "Hendrycks et al. 2020",
        role="views",
        limits={"jsd": (0, 1e6), "severity": (1, 10), "width": (1, 100), "group": (1, 65_536)},
    ),
    "mmce": Part(penalties.mmce, "Kumar et al. 2018", role="penalty", limits={"bandwidth": POSITIVE}, choices=VARIANT),
    "mdca": Part(penalties.mdca, "Hebbalaguppe et al. 2022", role="penalty"),
    "dca": Part(penalties.dca, "Liang et al. 2020", role="penalty"),
    "avuc": Part(penalties.avuc, "Krishnan and Tickoo 2020", role="penalty", limits={"kappa": POSITIVE}),
    "avuc_gs": Part(penalties.avuc_gs, "Karandikar et al. 2021, D", role="penalty", limits={"kappa": POSITIVE}),
    "s_avuc": Part(
        penalties.s_avuc,
        "Karandikar et al. 2021, eq. 15",
        role="penalty",
        limits={"kappa": (1e-6, 1 - 1e-6), "temperature": POSITIVE},
    ),
    "sb_ece": Part(
        penalties.sb_ece,
        "Karandikar et al. 2021, eqs. 11 and 12; membership sigmoid: survey",
        role="penalty",
        limits={"bins": BINS, "temperature": POSITIVE, "order": (1, 10)},
        choices={**VARIANT, "kind": ("label", "bin"), "membership": ("gaussian", "sigmoid")},
    ),
    "dece": Part(penalties.dece, "Bohdal et al. 2021", role="penalty", limits={"bins": BINS, "temperature": POSITIVE}),
    "sece": Part(
        penalties.sece,
        "gamma-net paper, eqs. 7, 8 and 13",
        role="penalty",
        limits={"bandwidth": POSITIVE},
        choices={"variant": ("soft", "hard")},
    ),
    "ks": Part(
        penalties.ks,
        "Gupta et al. 2021",
        role="penalty",
        limits={"bins": BINS},
        choices={"variant": ("plain", "spline")},
    ),
    "entropy": Part(penalties.entropy, "Pereyra et al. 2017, confidence penalty", role="penalty"),
    "margin": Part(
        penalties.margin, "Liu et al. 2022, MbLS", role="penalty", limits={"margin": (0, 1e6)}, choices=VARIANT
    ),
    "cpc": Part(
        penalties.cpc,
        "Cheng and Vasconcelos 2022, BDC and BEC",
        role="penalty",
        limits={"bdc": (0, 1e6), "bec": (0, 1e6)},
    ),
    "brier_reliability": Part(
        penalties.brier_reliability, "Murphy 1973; survey", role="penalty", limits={"bins": BINS}
    ),
    "soft_histogram": Part(penalties.soft_histogram, "Wang et al. 2016; survey", role="penalty", limits={"bins": BINS}),
    "beta_joint": Part(penalties.beta_joint, "Kull et al. 2017; survey", role="penalty"),
    "gamma_net": Part(
        meta.GammaNet,
        "gamma-net paper, eqs. 4 and 5",
        role="meta",
        limits={"tau": POSITIVE, "cap": (1, 1000)},
        choices={"positive": tuple(POSITIVE_FORMS)},
        gives_gamma=True,
        defaults={"rate": 1e-4},
        learner=MetaLearner,
    ),
    "unit_l2": Part(meta.UnitL2, "Bohdal et al. 2021, unit-wise L2", role="meta", learner=MetaLearner),
    "learned_smoothing": Part(
        meta.LearnedSmoothing,
        "Bohdal et al. 2021, learned label smoothing",
        role="meta",
        limits={"epsilon": (0, 0.5)},
        choices={"per": ("scalar", "class")},
        learner=MetaLearner,
    ),
}
PRESETS = {
    "brier": Preset(
        "mse",
        "Mukhoti et al. 2020, baseline Brier loss: the batch mean, where their code sums every other loss",
        recipe={"reduction": "mean"},
    ),
    "fl1": Preset("focal", "Mukhoti et al. 2020, FL-1", {"gamma": 1.0}),
    "fl2": Preset("focal", "Mukhoti et al. 2020, FL-2", {"gamma": 2.0}),
    "fl3": Preset("focal", "Mukhoti et al. 2020, FL-3", {"gamma": 3.0}),
    "fls531": Preset("focal", "Mukhoti et al. 2020, FLS-531: changes at 2/7 and 5/7", {"gamma": "fls531"}),
    "fls532": Preset("focal", "Mukhoti et al. 2020, FLS-532: changes at 2/7 and 5/7", {"gamma": "fls532"}),
    **{
        f"{schedule}_tiny": Preset(
            "focal",
            f"{schedule} as their code runs it: Tiny-ImageNet, epochs 30 and 70 of 100; SST, 3 and 7 of 10",
            {"gamma": schedule, "first_change": 0.3, "second_change": 0.7},
        )
        for schedule in SCHEDULES
    },
    "fla53": Preset("focal", "Mukhoti et al. 2020, FLA-53: 5 for p <= .19, else 3", {"gamma": "fla53"}),
    "flsd53": Preset("focal", "Mukhoti et al. 2020, FLSD-53 of the code: 5 for p < .2, else 3", {"gamma": "flsd53"}),
    "fla532": Preset("focal", "Mukhoti et al. 2020, FLA-532: 5 to .19, 3 to .5, else 2", {"gamma": "fla532"}),
    "flsd52": Preset(
        "focal", "Mukhoti et al. 2020, FLSD-52 of the code: 5 for p < .2, 3 for p < .5, else 2", {"gamma": "flsd52"}
    ),
    "focal_lambert": Preset("focal", "Mukhoti et al. 2020, proposition 2, at most 20", {"gamma": "lambert"}),
    "dfl": Preset("dual_focal", "BSCE-GRA paper, eq. 5: one gamma for all nets", {"gamma": 5.0}),
    **{
        f"dfl_{setting}": Preset("dual_focal", f"Tao et al. 2023, {title}", {"gamma": gamma})
        for setting, title, gamma in DUAL_FOCAL_GAMMAS
    },
    "fl_gra": Preset("focal", "BSCE-GRA paper, eqs. 7 and 9", {"gamma": 3.0, "gra": True}),
    "flsd_gra": Preset("focal", "BSCE-GRA paper, table 2", {"gamma": "flsd53", "gra": True}),
    "dfl_gra": Preset("dual_focal", "BSCE-GRA paper, eq. 8 and table 2", {"gamma": 5.0, "gra": True}),
    "bsce_gra": Preset("bsce", "BSCE-GRA paper, eq. 14", {"gamma": 2.0, "norm": 2.0, "gra": True}),
    "consistency_official": Preset(
        "consistency",
        "BSCE-GRA paper, section 16.1, as its public code has it",
        {"variant": "official", "count": 1000, "gamma": 3.0, "start": 5 / 350},
    ),
    "ls05": Preset("ce+smoothing", "Mueller et al. 2019; gamma-net paper's LS-0.05", {"epsilon": 0.05}),
    "ls10": Preset("ce+smoothing", "Mueller et al. 2019", {"epsilon": 0.1}),
    "mixup": Preset("ce+mixup", "Zhang et al. 2018", {"alpha": 1.0}),
    "mixup01": Preset("ce+mixup", "Zhang et al. 2018", {"alpha": 0.1}),
    "augmix": Preset("ce+augmix", "Hendrycks et al. 2020", {"jsd": 12.0}),
    "mmce": Preset(
        "ce+mmce",
        "MMCE of the focal, BSCE-GRA and gamma-net papers' tables, images: weighted, as their code has it",
        {"beta": 2.0, **PUBLISHED_MMCE},
    ),
    "mmce_text": Preset("ce+mmce", "Mukhoti et al. 2020, documents: the same", {"beta": 8.0, **PUBLISHED_MMCE}),
    "mmce_kumar": Preset("ce+mmce", "Kumar et al. 2018, the unweighted root; beta is tuned", {"beta": 2.0}),
    "mmce_late": Preset(
        "ce+mmce", "survey, epoch-based switching, at half time; unweighted root", {"beta": 8.0, "start": 0.5}
    ),
    "mmce_interleaved": Preset(
        "ce+mmce", "survey, interleaved training; unweighted root", {"beta": 8.0, "when": "interleaved"}
    ),
    "mmce_separate": Preset(
        "ce+mmce", "survey, separate gradients of equal norm; unweighted root", {"beta": 1.0, "when": "separate"}
    ),
    "mdca": Preset("ce+mdca", "Hebbalaguppe et al. 2022", {"beta": 1.0}),
    "fl_mdca": Preset("focal+mdca", "Hebbalaguppe et al. 2022, as their code runs it", {"gamma": 1.0, "beta": 1.0}),
    **{
        prefix + penalty: Preset(
            f"{primary}+{penalty}", "Karandikar et al. 2021, table 2; beta, kappa and temperature are tuned", options
        )
        for prefix, primary, options in COMBINED
        for penalty in ("avuc", "avuc_gs", "s_avuc", "sb_ece", *(["mmce"] if prefix else []))
    },
    "mbls": Preset("ce+margin", "Liu et al. 2022, CIFAR-10", {"beta": 0.1, "margin": 6.0, "variant": "official"}),
    "mbls_tiny": Preset(
        "ce+margin", "Liu et al. 2022, Tiny-ImageNet", {"beta": 0.1, "margin": 10.0, "variant": "official"}
    ),
    "flg": Preset("focal+gamma_net", "gamma-net paper; its outer loss is not printed: here ce", {"outer": "ce"}),
    "flg_dece": Preset("focal+gamma_net", "gamma-net paper, FL-gamma-DECE", {"outer": "dece"}),
    "flg_sece": Preset("focal+gamma_net", "gamma-net paper, FL-gamma-SECE, eq. 3", {"outer": "sece"}),
    "ce_meta_dece": Preset(
        "ce+unit_l2", "gamma-net paper, CE-DECE: L2 learned through it, not ce+dece, the penalty", {"outer": "dece"}
    ),
    "ce_meta_sece": Preset(
        "ce+unit_l2", "gamma-net paper, CE-SECE: L2 learned through it, not ce+sece, the penalty", {"outer": "sece"}
    ),
    "cpc": Preset("ce+cpc", "Cheng and Vasconcelos 2022; weights of Liu et al. 2023", {"bdc": 0.1, "bec": 1.0}),
}


def names() -> list[str]:
    """Every name that can stand alone."""
    return list(dict.fromkeys([*(name for name, part in PARTS.items() if part.role == "primary"), *PRESETS]))


def resolve(spec: str, options: Mapping[str, OptionValue]) -> Composition:
    """The parts of a method with all their options.

    `spec`: a primary loss (`focal`) or a preset (`fl3`), and what `+` adds (`fl3+mixup`).
    `options` are the parts' keyword arguments and win over the preset's; one that several parts have is written
    `part.option`. A penalty also has `beta`, its weight; `start`, the fraction of the run where it sets in; `when`:
    joint (in the objective), separate (a gradient of its own) or interleaved (steps of its own, on held-out rows); and
    `every`, after how many steps such a step comes. A part that learns by looking ahead has the options of
    `pipeline.methods.meta.learner.MetaLearner`.

    Raises:
        ConfigError: an unknown name or option, a value of another type or out of range, or parts that do not compose.
    """
    return compose(spec, options, PARTS, PRESETS)


def build(spec: str, net: Net | None = None, /, **options: OptionValue) -> Method:
    """Composes a method; see `resolve`. What learns by looking ahead needs the net that it will train.

    >>> build("fl3+mixup", **{"mixup.alpha": 0.2}).name
    'fl3+mixup'
    """
    return resolve(spec, options).build(net)


__all__ = [
    "PARTS",
    "PRESETS",
    "Composition",
    "Method",
    "Moment",
    "Part",
    "Preset",
    "build",
    "gamma_star",
    "losses",
    "names",
    "penalties",
    "resolve",
]
