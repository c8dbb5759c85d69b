"""What the launcher says instead of a traceback."""


class UsageError(Exception):
    """Something the user gave cannot work. The text is one line; the exit status is 2."""
