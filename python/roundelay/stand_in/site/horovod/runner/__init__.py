"""Starting a job from Python."""

from typing import Any, NoReturn


def run(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotInThisVersionError: jobs start with the command roundelayrun."""
    from roundelay.errors import NotInThisVersionError

    raise NotInThisVersionError(
        "horovod.run is not in this version of Roundelay yet: start with roundelayrun"
    )
