"""Models of your own: an ONNX file, whatever made it, becomes a bundle with calibrated probabilities.

onnx_file      read whole, its weights and operators checked
signature      what it takes and answers
preprocessing  what makes its input of pixels or features
rows, tables   labelled rows as they come
texts          of a model of texts: files beside it, its length, its tokenizer tried on hostile texts
kinds          the kind of input that its card states
graph          what is put before and behind it
conversion     all of that: a model as the service takes it
scoring        logits of labelled rows; a bundle tried as the service will use it
importer       calibrators compared, and the bundle
work, command  `trueodds import`: the first in a process with limits
logit_rows     logits of a model that is served elsewhere, with their labels
folding        a calibrator folded into a graph of logits
"""
