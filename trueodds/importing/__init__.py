"""Import of your own models: an ONNX file becomes a bundle with calibrated probabilities.

The model passes once through these steps:

- read: onnx_file loads and checks the file, signature finds its input and outputs, hub_files the facts in the files
  beside it
- understand: understanding finds the kind of input that the file and the rows agree on; for texts, hostile tries the
  tokenizer
- rewrite: rewriting adds nodes before and behind the graph, so that it takes rows of the kind and gives logits, and
  runs it in onnxruntime
- score: scoring names the class of each logit and of each row, computes the logits of the rows, and checks them with
  the labels and the maker's own probabilities

importer takes these steps, compares calibrators, and writes the bundle after a trial.

Other modules:

- import_options: the caller's options for a model
- labelled_rows: labelled rows as given, and in batches of a kind
- forms: the forms of files, and presets of preprocessing
- calibrate: fits to logits of a model that is served elsewhere
- folding: adds a calibrator to a graph of logits
"""
