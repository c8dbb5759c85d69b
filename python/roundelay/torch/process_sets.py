"""Process sets: this version has one, the set of all ranks."""

from __future__ import annotations

from roundelay import _core
from roundelay.errors import NotInThisVersionError


class ProcessSet:
    """A group of ranks that reduces among itself. Only ``global_process_set`` exists in this version."""

    def __init__(self, process_set_id: int) -> None:
        self.process_set_id = process_set_id

    @property
    def ranks(self) -> list[int]:
        """World ranks of the members."""
        return list(range(_core.size()))

    def size(self) -> int:
        """Number of members."""
        return _core.size()

    def rank(self) -> int:
        """Rank of this process inside the set."""
        return _core.rank()

    def included(self) -> bool:
        """Whether this process is a member."""
        return True

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id})"


global_process_set = ProcessSet(0)


def set_id(process_set: ProcessSet) -> int:
    """The id for the core. Raises NotInThisVersionError for anything but the global set."""
    if process_set is not global_process_set:
        raise NotInThisVersionError("process sets other than global_process_set are not in this version yet")
    return process_set.process_set_id
