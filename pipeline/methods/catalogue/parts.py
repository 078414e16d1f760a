"""Table of losses, penalties and other parts by name, with their sources and the limits of their options."""

from __future__ import annotations

from pipeline.methods.compose import Part
from pipeline.methods.gamma import RULES, SCHEDULES, exponent
from pipeline.methods.positive import POSITIVE as POSITIVE_FORMS

GAMMA = {"gamma": tuple(RULES)}
VARIANT = {"variant": ("paper", "official")}
POSITIVE = (1e-6, 1e6)
BINS = (1, 10_000)
META_LEARNER = "pipeline.methods.meta.meta_learner:MetaLearner"

PARTS = {
    "ce": Part("pipeline.methods.losses.cross_entropy:cross_entropy", "cross entropy"),
    "mse": Part("pipeline.methods.losses.mse:mse", "Brier 1950, sum over classes; BL of the BSCE-GRA paper"),
    "focal": Part(
        "pipeline.methods.losses.focal:focal",
        "Lin et al. 2017; Mukhoti et al. 2020, section 4",
        limits={"gamma": (0, 50), "alpha": (0, 100), "first_change": (0, 1), "second_change": (0, 1)},
        choices=GAMMA,
        per_class=("alpha",),
        exponent=exponent,
        needs={"first_change": ("gamma", SCHEDULES), "second_change": ("gamma", SCHEDULES)},
    ),
    "inverse_focal": Part(
        "pipeline.methods.losses.inverse_focal:inverse_focal",
        "Wang et al. 2021",
        limits={"gamma": (0, 50)},
        choices=GAMMA,
        exponent=exponent,
    ),
    "dual_focal": Part(
        "pipeline.methods.losses.dual_focal:dual_focal",
        "Tao et al. 2023; BSCE-GRA paper, eq. 5; variant survey: two alphas, two gammas",
        limits={"gamma": (0, 50), "gamma2": (0, 50), "alpha1": (0, 100), "alpha2": (0, 100)},
        choices={**GAMMA, "variant": ("paper", "official", "survey")},
        exponent=exponent,
        needs=dict.fromkeys(("gamma2", "alpha1", "alpha2"), ("variant", ("survey",))),
    ),
    "bsce": Part(
        "pipeline.methods.losses.bsce:bsce",
        "BSCE-GRA paper, eqs. 6 and 11",
        limits={"gamma": (0, 50), "norm": (1, 50)},
        exponent=exponent,
    ),
    "consistency": Part(
        "pipeline.methods.losses.consistency:Consistency",
        "BSCE-GRA paper, section 16.1; Tao et al. 2024; variant official learns from the validation rows",
        limits={"count": (1, 1000), "noise": (0, 1000), "gamma": (0, 50), "start": (0, 1)},
        choices={"variant": ("mean", "vote", "official"), "search": ("fine", "grid")},
    ),
    "adafocal": Part(
        "pipeline.methods.losses.adafocal:AdaFocal",
        "Ghosh et al. 2022; learns from the validation rows",
        limits={"gamma": (0.2, 20), "bins": (1, 1000), "rate": (0, 100), "every": (0, 1_000_000)},
    ),
    "ece_ce": Part(
        "pipeline.methods.losses.ece_ce:EceCE",
        "the BSCE-GRA paper's public code; learns from the training rows",
        limits={"bins": (1, 1000), "classwise": (0, 100)},
        choices={"split": ("train", "val")},
    ),
    "smoothing": Part(
        "pipeline.methods.labels.smoothing:Smoothing", "Szegedy et al. 2016", role="labels", limits={"epsilon": (0, 1)}
    ),
    "class_smoothing": Part(
        "pipeline.methods.labels.smoothing:ClassSmoothing",
        "survey, Label smoothing; learns from the validation rows",
        role="labels",
        limits={"epsilon": (0, 1)},
    ),
    "confidence_smoothing": Part(
        "pipeline.methods.labels.smoothing:ConfidenceSmoothing",
        "survey, Label smoothing",
        role="labels",
        limits={"epsilon": (0, 1)},
    ),
    "mixup": Part(
        "pipeline.methods.labels.mixup:Mixup",
        "Zhang et al. 2018",
        role="labels",
        limits={"alpha": (0.01, 100)},
        mixes=True,
    ),
    "augmix": Part(
        "pipeline.methods.views.augmix:AugMix",
        "Hendrycks et al. 2020",
        role="views",
        limits={"jsd": (0, 1e6), "severity": (1, 10), "width": (1, 100), "group": (1, 65_536)},
    ),
    "mmce": Part(
        "pipeline.methods.penalties.kernels:mmce",
        "Kumar et al. 2018",
        role="penalty",
        limits={"bandwidth": POSITIVE},
        choices=VARIANT,
    ),
    "mdca": Part("pipeline.methods.penalties.averages:mdca", "Hebbalaguppe et al. 2022", role="penalty"),
    "dca": Part("pipeline.methods.penalties.averages:dca", "Liang et al. 2020", role="penalty"),
    "avuc": Part(
        "pipeline.methods.penalties.uncertainty:avuc",
        "Krishnan and Tickoo 2020",
        role="penalty",
        limits={"kappa": POSITIVE},
    ),
    "avuc_gs": Part(
        "pipeline.methods.penalties.uncertainty:avuc_gs",
        "Karandikar et al. 2021, D",
        role="penalty",
        limits={"kappa": POSITIVE},
    ),
    "s_avuc": Part(
        "pipeline.methods.penalties.uncertainty:s_avuc",
        "Karandikar et al. 2021, eq. 15",
        role="penalty",
        limits={"kappa": (1e-6, 1 - 1e-6), "temperature": POSITIVE},
    ),
    "sb_ece": Part(
        "pipeline.methods.penalties.bins:sb_ece",
        "Karandikar et al. 2021, eqs. 11 and 12; membership sigmoid: survey",
        role="penalty",
        limits={"bins": BINS, "temperature": POSITIVE, "order": (1, 10)},
        choices={**VARIANT, "kind": ("label", "bin"), "membership": ("gaussian", "sigmoid")},
    ),
    "dece": Part(
        "pipeline.methods.penalties.bins:dece",
        "Bohdal et al. 2021; membership sigmoid: survey",
        role="penalty",
        limits={"bins": BINS, "temperature": POSITIVE},
        choices={"membership": ("softmax", "sigmoid")},
    ),
    "sece": Part(
        "pipeline.methods.penalties.kernels:sece",
        "gamma-net paper, eqs. 7, 8 and 13",
        role="penalty",
        limits={"bandwidth": POSITIVE},
        choices={"variant": ("soft", "hard")},
    ),
    "ks": Part(
        "pipeline.methods.penalties.cumulative:ks",
        "Gupta et al. 2021",
        role="penalty",
        limits={"bins": BINS},
        choices={"variant": ("plain", "spline")},
    ),
    "entropy": Part(
        "pipeline.methods.penalties.uncertainty:entropy", "Pereyra et al. 2017, confidence penalty", role="penalty"
    ),
    "margin": Part(
        "pipeline.methods.penalties.logit:margin",
        "Liu et al. 2022, MbLS",
        role="penalty",
        limits={"margin": (0, 1e6)},
        choices=VARIANT,
    ),
    "cpc": Part(
        "pipeline.methods.penalties.logit:cpc",
        "Cheng and Vasconcelos 2022, BDC and BEC",
        role="penalty",
        limits={"bdc": (0, 1e6), "bec": (0, 1e6)},
    ),
    "brier_reliability": Part(
        "pipeline.methods.penalties.bins:brier_reliability",
        "Murphy 1973; survey",
        role="penalty",
        limits={"bins": BINS},
    ),
    "soft_histogram": Part(
        "pipeline.methods.penalties.bins:soft_histogram",
        "Wang et al. 2016; survey",
        role="penalty",
        limits={"bins": BINS},
    ),
    "beta_joint": Part("pipeline.methods.penalties.beta:beta_joint", "Kull et al. 2017; survey", role="penalty"),
    "gamma_net": Part(
        "pipeline.methods.meta.gamma_net:GammaNet",
        "gamma-net paper, eqs. 4 and 5",
        role="meta",
        limits={"tau": POSITIVE, "cap": (1, 1000)},
        choices={"positive": tuple(POSITIVE_FORMS)},
        gives_gamma=True,
        defaults={"rate": 1e-4},
        learner=META_LEARNER,
    ),
    "unit_l2": Part(
        "pipeline.methods.meta.unit_l2:UnitL2", "Bohdal et al. 2021, unit-wise L2", role="meta", learner=META_LEARNER
    ),
    "learned_smoothing": Part(
        "pipeline.methods.meta.learned_smoothing:LearnedSmoothing",
        "Bohdal et al. 2021, learned label smoothing",
        role="meta",
        limits={"epsilon": (0, 0.5)},
        choices={"per": ("scalar", "class")},
        learner=META_LEARNER,
    ),
    "learned_weights": Part(
        "pipeline.methods.meta.learned_weights:LearnedWeights",
        "survey, Multi-objective optimization: meta-learned weights of the joint penalties",
        role="meta",
        limits={"most": (1, 1e6)},
        weighs=True,
        learner=META_LEARNER,
    ),
    "learned_histogram": Part(
        "pipeline.methods.meta.learned_histogram:LearnedHistogram",
        "Wang et al. 2016; survey: histogram layer with learnable centres and widths",
        role="meta",
        limits={"bins": BINS, "beta": (0, 1e6)},
        learner=META_LEARNER,
    ),
}
"""Parts of a method by name: losses, penalties, changes of labels, and meta-learners."""
