"""Starting a job from Python."""

from roundelay.run.function.api import run

__all__ = ["run"]
