"""Table of presets: the rows of the papers' tables by name, as parts with options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.methods.compose import Preset
from pipeline.methods.gamma import SCHEDULES

if TYPE_CHECKING:
    from pipeline.config import OptionValue

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
"""(Setting, its description, gamma that the paper chose for it on validation rows)."""

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
    "mbls_no_margin": Preset(
        "ce+margin", "Liu et al. 2022, CIFAR-10, without a margin", {"beta": 0.1, "margin": 0.0, "variant": "official"}
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
"""Methods by the names of the papers, each a composition of parts."""
