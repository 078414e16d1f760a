"""Labels of answers: receiving, voiding and settling them, and exporting labelled answers."""
