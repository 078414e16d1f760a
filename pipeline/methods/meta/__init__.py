"""Meta parts: parameters of the training loss that learn while the net learns, by looking one step ahead.

A part has parameters phi that shape the training loss. A meta step computes how phi changes the outer loss, a loss of
set-aside rows, after the step that the net is about to take. It then moves phi down that gradient (Luketina et al.
2016; Bohdal et al. 2021; gamma-net paper, eq. 3). `pipeline.methods.meta.lookahead` computes the gradient.
"""

from pipeline.methods.meta.gamma_net import GammaNet
from pipeline.methods.meta.learned_histogram import LearnedHistogram
from pipeline.methods.meta.learned_smoothing import LearnedSmoothing
from pipeline.methods.meta.learned_weights import LearnedWeights
from pipeline.methods.meta.unit_l2 import UnitL2

__all__ = ["GammaNet", "LearnedHistogram", "LearnedSmoothing", "LearnedWeights", "UnitL2"]
