"""Decision models: typed questions about a text, answered with a probability for every option.

Two formats are on the wire. `read_pair` reads a request and its response in either of them.
"""

from trueodds.inputs.decisions.names import model_name
from trueodds.inputs.decisions.pairs import Answer, Pair, PairError, Problem, Shape, read_pair
from trueodds.inputs.decisions.questions import Question

__all__ = ["Answer", "Pair", "PairError", "Problem", "Question", "Shape", "model_name", "read_pair"]
