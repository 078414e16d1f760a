"""The beginning of a run: weights that are drawn or pretrained (`training.start`), and those of them that learn."""
