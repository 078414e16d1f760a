"""The beginning of a run: random or pretrained weights (`training.start`), and which of them learn."""
