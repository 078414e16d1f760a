"""Parts that learn while the net learns, by looking one step ahead: gamma_net, unit_l2, learned_smoothing,
learned_weights and learned_histogram.

Each has parameters phi that shape the training loss. A meta step asks how phi would change a loss of held-out rows,
the outer loss, after the step that the net is about to take, and moves phi against that (Luketina et al. 2016; Bohdal
et al. 2021; gamma-net paper, eq. 3). `pipeline.methods.meta.lookahead` has the gradient.
"""

from pipeline.methods.meta.gamma_net import GammaNet
from pipeline.methods.meta.histogram import LearnedHistogram
from pipeline.methods.meta.smoothing import LearnedSmoothing
from pipeline.methods.meta.unit_l2 import UnitL2
from pipeline.methods.meta.weights import LearnedWeights

__all__ = ["GammaNet", "LearnedHistogram", "LearnedSmoothing", "LearnedWeights", "UnitL2"]
