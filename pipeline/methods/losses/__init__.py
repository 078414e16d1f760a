"""Primary losses. Each returns one value per row, so that weighting, mixing and meta-learning need no special case.

Targets are class indices (N,) or distributions (N, C). A distribution weighs the classes' losses by its entries.
All losses but `mse` have the form u(p, y) CE, the uncertainty-weighted family of the BSCE-GRA paper (eq. 6). With
`gra` the weight u is a constant for the gradient (eq. 9). p = softmax(z), and p_y is the target class's probability.
"""

from pipeline.methods.losses.bsce import bsce
from pipeline.methods.losses.consistency import Consistency
from pipeline.methods.losses.cross_entropy import cross_entropy
from pipeline.methods.losses.dual_focal import dual_focal
from pipeline.methods.losses.ece_ce import EceCE
from pipeline.methods.losses.focal import focal
from pipeline.methods.losses.inverse_focal import inverse_focal
from pipeline.methods.losses.mse import mse

__all__ = ["Consistency", "EceCE", "bsce", "cross_entropy", "dual_focal", "focal", "inverse_focal", "mse"]
