"""Loss functions of the calibrators' fits, and their solvers."""
