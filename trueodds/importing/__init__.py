"""Import of your own models: an ONNX file becomes a bundle with calibrated probabilities.

The model passes through these steps:

- reading: the file (onnx_file), its signature, the files beside it
- understanding: the kind of input that the file and the rows agree on
- rewriting: nodes before and behind the graph, so that it takes rows of the kind and gives logits
- classes: the class of each logit
- importer: scores the rows, compares calibrators, and writes the bundle after a trial

Other modules:

- options: the caller's options for a model
- rows: labelled rows as given, and in batches of a kind
- texts: for text models: the files beside them, their length, and the trial of the tokenizer on hostile texts
- forms: the forms of files, and presets of preprocessing
- calibrate: fits to logits of a model that is served elsewhere
- folding: adds a calibrator to a graph of logits
"""
