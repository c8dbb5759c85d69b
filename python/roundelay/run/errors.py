"""The error that the launcher shows in place of a traceback."""


class UsageError(Exception):
    """The user gave something that cannot work. The text is one line; the exit status is 2.

    cure: what to do about it, where that is known; the text ends with it.
    """

    def __init__(self, problem: str, cure: str = "") -> None:
        super().__init__(f"{problem}; {cure}" if cure else problem)
        self.problem, self.cure = problem, cure
