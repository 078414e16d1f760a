"""Answers that people or a judge label: the label queue, and the labels of a judge."""
