"""The base of every error that a user can mend: its message stands alone, without a traceback."""


class UserError(Exception):
    """What was given, what is allowed, and the cure. `python -m pipeline` prints it and exits with 1."""
