"""Table of losses, penalties and other parts by name, with their sources and the limits of their options."""

from __future__ import annotations

from pipeline.methods import labels, losses, meta, penalties
from pipeline.methods.adafocal import AdaFocal
from pipeline.methods.augmix import AugMix
from pipeline.methods.compose import Part
from pipeline.methods.gamma import RULES, SCHEDULES, exponent
from pipeline.methods.meta.gamma_net import POSITIVE as POSITIVE_FORMS
from pipeline.methods.meta.meta_learner import MetaLearner

GAMMA = {"gamma": tuple(RULES)}
VARIANT = {"variant": ("paper", "official")}
POSITIVE = (1e-6, 1e6)
BINS = (1, 10_000)

PARTS = {
    "ce": Part(losses.cross_entropy, "cross entropy"),
    "mse": Part(losses.mse, "Brier 1950, sum over classes; BL of the BSCE-GRA paper"),
    "focal": Part(
        losses.focal,
        "Lin et al. 2017; Mukhoti et al. 2020, section 4",
        limits={"gamma": (0, 50), "alpha": (0, 100), "first_change": (0, 1), "second_change": (0, 1)},
        choices=GAMMA,
        per_class=("alpha",),
        exponent=exponent,
        needs={"first_change": ("gamma", SCHEDULES), "second_change": ("gamma", SCHEDULES)},
    ),
    "inverse_focal": Part(
        losses.inverse_focal, "Wang et al. 2021", limits={"gamma": (0, 50)}, choices=GAMMA, exponent=exponent
    ),
    "dual_focal": Part(
        losses.dual_focal,
        "Tao et al. 2023; BSCE-GRA paper, eq. 5; variant survey: two alphas, two gammas",
        limits={"gamma": (0, 50), "gamma2": (0, 50), "alpha1": (0, 100), "alpha2": (0, 100)},
        choices={**GAMMA, "variant": ("paper", "official", "survey")},
        exponent=exponent,
        needs=dict.fromkeys(("gamma2", "alpha1", "alpha2"), ("variant", ("survey",))),
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
    "dece": Part(
        penalties.dece,
        "Bohdal et al. 2021; membership sigmoid: survey",
        role="penalty",
        limits={"bins": BINS, "temperature": POSITIVE},
        choices={"membership": ("softmax", "sigmoid")},
    ),
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
    "learned_weights": Part(
        meta.LearnedWeights,
        "survey, Multi-objective optimization: meta-learned weights of the joint penalties",
        role="meta",
        limits={"most": (1, 1e6)},
        weighs=True,
        learner=MetaLearner,
    ),
    "learned_histogram": Part(
        meta.LearnedHistogram,
        "Wang et al. 2016; survey: histogram layer with learnable centres and widths",
        role="meta",
        limits={"bins": BINS, "beta": (0, 1e6)},
        learner=MetaLearner,
    ),
}
"""Parts of a method by name: losses, penalties, changes of labels, and meta-learners."""
