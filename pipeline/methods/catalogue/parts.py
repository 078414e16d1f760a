"""Table of losses, penalties and other parts by name, with their sources and the limits of their options."""

from __future__ import annotations

from typing import Any

from pipeline.methods.compose import Part
from pipeline.methods.gamma import RULES, SCHEDULES, exponent
from pipeline.methods.positive import POSITIVE as POSITIVE_FORMS

GAMMA = {"gamma": tuple(RULES)}
VARIANT = {"variant": ("paper", "official")}
POSITIVE = (1e-6, 1e6)
BINS = (1, 10_000)


def _loss(place: str, source: str, **more: Any) -> Part:
    """Return the entry of a primary loss; `place` is its module in `losses` and its name."""
    return Part(f"pipeline.methods.losses.{place}", source, **more)


def _labels(place: str, source: str, **more: Any) -> Part:
    """Return the entry of a change of labels in `labels`."""
    return Part(f"pipeline.methods.labels.{place}", source, role="labels", **more)


def _penalty(place: str, source: str, **more: Any) -> Part:
    """Return the entry of a penalty in `penalties`."""
    return Part(f"pipeline.methods.penalties.{place}", source, role="penalty", **more)


def _meta(place: str, source: str, **more: Any) -> Part:
    """Return the entry of a meta part in `meta`."""
    learner = "pipeline.methods.meta.meta_learner:MetaLearner"
    return Part(f"pipeline.methods.meta.{place}", source, role="meta", learner=learner, **more)


PARTS = {
    "ce": _loss("cross_entropy:cross_entropy", "cross entropy"),
    "mse": _loss("mse:mse", "Brier 1950, sum over classes; BL of the BSCE-GRA paper"),
    "focal": _loss(
        "focal:focal",
        "Lin et al. 2017; Mukhoti et al. 2020, section 4",
        limits={"gamma": (0, 50), "alpha": (0, 100), "first_change": (0, 1), "second_change": (0, 1)},
        choices=GAMMA,
        per_class=("alpha",),
        exponent=exponent,
        needs={"first_change": ("gamma", SCHEDULES), "second_change": ("gamma", SCHEDULES)},
    ),
    "inverse_focal": _loss(
        "inverse_focal:inverse_focal", "Wang et al. 2021", limits={"gamma": (0, 50)}, choices=GAMMA, exponent=exponent
    ),
    "dual_focal": _loss(
        "dual_focal:dual_focal",
        "Tao et al. 2023; BSCE-GRA paper, eq. 5; variant survey: two alphas, two gammas",
        limits={"gamma": (0, 50), "gamma2": (0, 50), "alpha1": (0, 100), "alpha2": (0, 100)},
        choices={**GAMMA, "variant": ("paper", "official", "survey")},
        exponent=exponent,
        needs=dict.fromkeys(("gamma2", "alpha1", "alpha2"), ("variant", ("survey",))),
    ),
    "bsce": _loss(
        "bsce:bsce", "BSCE-GRA paper, eqs. 6 and 11", limits={"gamma": (0, 50), "norm": (1, 50)}, exponent=exponent
    ),
    "consistency": _loss(
        "consistency:Consistency",
        "BSCE-GRA paper, section 16.1; Tao et al. 2024; variant official learns from the validation rows",
        limits={"count": (1, 1000), "noise": (0, 1000), "gamma": (0, 50), "start": (0, 1)},
        choices={"variant": ("mean", "vote", "official"), "search": ("fine", "grid")},
    ),
    "adafocal": _loss(
        "adafocal:AdaFocal",
        "Ghosh et al. 2022; learns from the validation rows",
        limits={"gamma": (0.2, 20), "bins": (1, 1000), "rate": (0, 100), "every": (0, 1_000_000)},
    ),
    "ece_ce": _loss(
        "ece_ce:EceCE",
        "the BSCE-GRA paper's public code; learns from the training rows",
        limits={"bins": (1, 1000), "classwise": (0, 100)},
        choices={"split": ("train", "val")},
    ),
    "smoothing": _labels("smoothing:Smoothing", "Szegedy et al. 2016", limits={"epsilon": (0, 1)}),
    "class_smoothing": _labels(
        "smoothing:ClassSmoothing",
        "survey, Label smoothing; learns from the validation rows",
        limits={"epsilon": (0, 1)},
    ),
    "confidence_smoothing": _labels(
        "smoothing:ConfidenceSmoothing", "survey, Label smoothing", limits={"epsilon": (0, 1)}
    ),
    "mixup": _labels("mixup:Mixup", "Zhang et al. 2018", limits={"alpha": (0.01, 100)}, mixes=True),
    "augmix": Part(
        "pipeline.methods.views.augmix:AugMix",
        "Hendrycks et al. 2020",
        role="views",
        limits={"jsd": (0, 1e6), "severity": (1, 10), "width": (1, 100), "group": (1, 65_536)},
    ),
    "mmce": _penalty("kernels:mmce", "Kumar et al. 2018", limits={"bandwidth": POSITIVE}, choices=VARIANT),
    "mdca": _penalty("averages:mdca", "Hebbalaguppe et al. 2022"),
    "dca": _penalty("averages:dca", "Liang et al. 2020"),
    "avuc": _penalty("uncertainty:avuc", "Krishnan and Tickoo 2020", limits={"kappa": POSITIVE}),
    "avuc_gs": _penalty("uncertainty:avuc_gs", "Karandikar et al. 2021, D", limits={"kappa": POSITIVE}),
    "s_avuc": _penalty(
        "uncertainty:s_avuc",
        "Karandikar et al. 2021, eq. 15",
        limits={"kappa": (1e-6, 1 - 1e-6), "temperature": POSITIVE},
    ),
    "sb_ece": _penalty(
        "bins:sb_ece",
        "Karandikar et al. 2021, eqs. 11 and 12; membership sigmoid: survey",
        limits={"bins": BINS, "temperature": POSITIVE, "order": (1, 10)},
        choices={**VARIANT, "kind": ("label", "bin"), "membership": ("gaussian", "sigmoid")},
    ),
    "dece": _penalty(
        "bins:dece",
        "Bohdal et al. 2021; membership sigmoid: survey",
        limits={"bins": BINS, "temperature": POSITIVE},
        choices={"membership": ("softmax", "sigmoid")},
    ),
    "sece": _penalty(
        "kernels:sece",
        "gamma-net paper, eqs. 7, 8 and 13",
        limits={"bandwidth": POSITIVE},
        choices={"variant": ("soft", "hard")},
    ),
    "ks": _penalty(
        "cumulative:ks", "Gupta et al. 2021", limits={"bins": BINS}, choices={"variant": ("plain", "spline")}
    ),
    "entropy": _penalty("uncertainty:entropy", "Pereyra et al. 2017, confidence penalty"),
    "margin": _penalty("logit:margin", "Liu et al. 2022, MbLS", limits={"margin": (0, 1e6)}, choices=VARIANT),
    "cpc": _penalty("logit:cpc", "Cheng and Vasconcelos 2022, BDC and BEC", limits={"bdc": (0, 1e6), "bec": (0, 1e6)}),
    "brier_reliability": _penalty("bins:brier_reliability", "Murphy 1973; survey", limits={"bins": BINS}),
    "soft_histogram": _penalty("bins:soft_histogram", "Wang et al. 2016; survey", limits={"bins": BINS}),
    "beta_joint": _penalty("beta:beta_joint", "Kull et al. 2017; survey"),
    "gamma_net": _meta(
        "gamma_net:GammaNet",
        "gamma-net paper, eqs. 4 and 5",
        limits={"tau": POSITIVE, "cap": (1, 1000)},
        choices={"positive": tuple(POSITIVE_FORMS)},
        gives_gamma=True,
        defaults={"rate": 1e-4},
    ),
    "unit_l2": _meta("unit_l2:UnitL2", "Bohdal et al. 2021, unit-wise L2"),
    "learned_smoothing": _meta(
        "learned_smoothing:LearnedSmoothing",
        "Bohdal et al. 2021, learned label smoothing",
        limits={"epsilon": (0, 0.5)},
        choices={"per": ("scalar", "class")},
    ),
    "learned_weights": _meta(
        "learned_weights:LearnedWeights",
        "survey, Multi-objective optimization: meta-learned weights of the joint penalties",
        limits={"most": (1, 1e6)},
        weighs=True,
    ),
    "learned_histogram": _meta(
        "learned_histogram:LearnedHistogram",
        "Wang et al. 2016; survey: histogram layer with learnable centres and widths",
        limits={"bins": BINS, "beta": (0, 1e6)},
    ),
}
"""Parts of a method by name: losses, penalties, changes of labels, and meta-learners."""
