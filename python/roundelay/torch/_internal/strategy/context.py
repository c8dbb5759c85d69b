"""What a strategy may do to its optimizer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from roundelay.torch._internal.strategy.bucket import Sent
from roundelay.torch.compression import Compressor
from roundelay.torch.process_sets import ProcessSet


class Residuals(Protocol):
    """The gradients that techniques hold back, by parameter: optimizer/residuals.py."""

    def flush(self, names: Collection[str]) -> None:
        """Notes the parameters to whose next gradient some rank adds a residual. The same on all ranks."""

    def flushed(self) -> dict[str, torch.Tensor]:
        """Returns these parameters by name, until a step has had their gradients."""

    def kept(self) -> dict[str, tuple[int, torch.Tensor]]:
        """Returns all residuals of this rank, as copies; between two steps."""

    def put(self, kept: dict[str, tuple[int, torch.Tensor]]) -> None:
        """Makes these this rank's residuals, in place of all others. The next step sends them."""


class Keeper(Protocol):
    """Keeps the gradients that techniques hold back: TechniqueStates in optimizer/technique_states.py."""

    def flush(self) -> None:
        """Makes the next submission of each bucket a flush."""

    def sent(self) -> list[Sent]:
        """Returns the buckets that have a technique; for before_step()."""

    def rescale(self, factor: float) -> None:
        """Multiplies the gradients that techniques keep back on this rank."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the techniques' state on this rank."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned."""

    @property
    def residuals(self) -> Residuals:
        """What techniques keep back, by parameter."""

    @property
    def step(self) -> int:
        """The number of steps that the optimizer has taken."""

    def count_from(self, step: int) -> None:
        """Goes on counting from this step."""

    def commit(self) -> dict[str, Any]:
        """Returns what this rank needs to go on from here with other ranks."""

    def restore(self, committed: Mapping[str, Any]) -> None:
        """Goes back to what commit() returned."""


@dataclass(frozen=True)
class Context:
    """Gives a strategy its process set, and the functions by which it acts on its optimizer."""

    process_set: ProcessSet
    compression: type[Compressor]  # the form in which gradients travel
    number: int  # the optimizer's number among those of the process set
    # Returns the tensor that the optimizer steps for a parameter: its fp32 master, or the parameter itself.
    stepped: Callable[[torch.Tensor], torch.Tensor]
    keeper: Callable[[], Keeper]  # returns the present keeper of gradients that techniques hold back
    # Surrounds a change of the tensors that the optimizer steps, between two steps: masters take changes of
    # the parameters before it, and are rounded into the parameters afterwards.
    between_steps: Callable[[], AbstractContextManager[None]]
    regroup: Callable[[], None]  # makes the optimizer ask Strategy.gradient_set() again; between two steps
    # Makes the gradients of the next steps stay on this rank (True), or be reduced again; between two steps.
    keep_local: Callable[[bool], None]
    # Raises MismatchError, on all ranks, if these tensors, by name and in the canonical order
    # (parameter_names.py), are others on some. All ranks of the set call it.
    check_parameters: Callable[[Mapping[str, torch.Tensor]], None]
    # The same before a step. Warns, at the first one, if the ranks begin with different values.
    check_step: Callable[[Mapping[str, torch.Tensor]], None]

    def name(self, of: str) -> str:
        """Returns a name for an operation of this optimizer's, the same on all ranks."""
        return f"{of}{self.number}" if self.number else of
