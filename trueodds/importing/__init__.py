"""Models of your own: an ONNX file, whatever made it, becomes a bundle with calibrated probabilities.

The model passes once, through three thoughts, and then it is scored:

reading        the file (onnx_file), its signature, the files beside it
understanding  the kind of input that file and rows agree on
rewriting      nodes in front of the graph and behind it, so that it takes rows of the kind and answers with logits
classes        the class of each logit
importer       rows scored, calibrators compared, and the bundle, tried as the service will use it

options        the caller's statements about a model
rows           labelled rows as they come, and in batches of a kind
texts          of a model of texts: files beside it, its length, its tokenizer tried on hostile texts
command        `trueodds import`, its work in a process with limits
calibrate      `trueodds calibrate`, of logits of a model that is served elsewhere
folding        a calibrator folded into a graph of logits
"""
