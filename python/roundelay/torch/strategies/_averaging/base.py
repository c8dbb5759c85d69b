"""The base of the strategies whose ranks take steps of their own, and combine parameters now and then."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from roundelay import _core
from roundelay.errors import MismatchError
from roundelay.torch._internal.generations import is_elastic
from roundelay.torch._internal.nodes import RankNode, node_id
from roundelay.torch._internal.operations import Average
from roundelay.torch._internal.parameter_names import in_canonical_order
from roundelay.torch._internal.strategy.context import Context
from roundelay.torch._internal.strategy.state_format import is_of_former_format
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch.functions import allgather_object
from roundelay.torch.process_sets import ProcessSet, global_process_set
from roundelay.torch.strategies._shared.overflow import agree_on_overflow


class Averaging(Strategy):
    """A base: the parameters of ranks differ between two averages.

    The optimizer's state stays this rank's own. Not thread-safe, as an optimizer's step is not.
    """

    shares_parameters: ClassVar[bool] = False
    takes_complex: ClassVar[bool] = False
    kind: ClassVar[str]  # the strategy's name in texts
    format: ClassVar[int]  # the version of state_dict()'s form

    def _begin(self) -> None:
        """Forgets an optimizer and its job. A subclass calls it in its __init__."""
        self._met = False  # the ranks have compared their strategies, in this job
        self._step = 0  # the number of steps that the optimizer has taken
        self._averaged_at = 0  # the step of the last average over all ranks

    # -- checks and answers for DistributedOptimizer

    def accept(self, optimizer: torch.optim.Optimizer, op: int) -> None:
        """Raises ValueError for an op or parameters that it cannot average."""
        super().accept(optimizer, op)
        if op != Average:
            raise ValueError(f"strategy {self.text} averages, so it needs op=hvd.Average")
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if not parameter.is_floating_point() or parameter.layout != torch.strided:
                    raise ValueError(
                        f"strategy {self.text} averages parameters, which {parameter.dtype} in layout "
                        f"{parameter.layout} cannot be: give them to an optimizer of their own with "
                        "strategy='dense'"
                    )

    def accept_whole_job(self, process_set: ProcessSet, instead: str) -> None:
        """Raises ValueError if the set is not the whole job: all its ranks must add the sets of nodes.

        instead: the other strategy that the text advises.
        """
        if process_set is not global_process_set:
            raise ValueError(
                f"strategy {self.text} reduces gradients in each node, for which all ranks of the job must "
                f"wrap the optimizer: leave process_set out, or give {instead}"
            )

    def unaveraged(self) -> bool:
        """Returns whether ranks may have different parameters now."""
        return self._step != self._averaged_at

    def accept_end(self) -> None:
        """Raises ValueError if the ranks' parameters differ."""
        if self._met and self.unaveraged():
            raise ValueError(
                f"strategy {self.text} has not averaged the last {self._step - self._averaged_at} steps: "
                "call hvd.strategies.of(optimizer).average() before the optimizer gets another strategy"
            )

    # -- begin and end of a job

    def attach(self, optimizer: torch.optim.Optimizer, context: Context) -> None:
        """Becomes the strategy of the optimizer. MismatchError, on all ranks: theirs differ."""
        super().attach(optimizer, context)
        if not self.alone():
            self.compare_all()

    def compare(self, said: str) -> dict[int, RankNode]:
        """Compares the strategies and parameters of the set's ranks, and returns the ranks' nodes.

        All ranks call it. said: the strategy with its settings. MismatchError, on all ranks: theirs differ.
        """
        mine = (_core.rank(), said, RankNode(node_id(), _core.local_size()), self._step)
        rows: list[tuple[int, str, RankNode, int]] = allgather_object(
            mine, self.context.name(f"strategy.{self.kind}"), self.context.process_set
        )
        rank, first, *_ = rows[0]
        other = next((row for row in rows if row[1] != first), None)
        if other is not None:
            raise MismatchError(
                f"the strategies of an optimizer differ between ranks: rank {rank} has {first}, rank "
                f"{other[0]} {other[1]}: give DistributedOptimizer the same strategy on every rank"
            )
        optimizer = self.owner
        if optimizer is not None:
            self.context.check_parameters(in_canonical_order(optimizer))
        self._met = True
        self._step = max(step for *_, step in rows)  # a rank that is new in an elastic job has taken none
        return {rank: node for rank, _, node, _ in rows}

    def warn_of_one_node(self, result: str) -> None:
        """Warns on rank 0 that all ranks are on one node. result: the consequence, which ends the text."""
        if _core.rank() == 0:
            text = f"strategy {self.text}: all ranks are on one node, {result}"
            warnings.warn(text, RuntimeWarning, stacklevel=5)

    def alone(self) -> bool:
        """Returns whether this rank averages with no other one, and no other one may join."""
        ranks = self.context.process_set
        return not ranks.included() or (ranks.size() == 1 and not is_elastic())

    def restart(self) -> None:
        """Leaves the last job, whose process sets are gone. The ranks must compare their strategies again."""
        self._met = False
        self.context.regroup()

    def check_job(self) -> None:
        """Raises RuntimeError if the ranks have compared their strategies in an earlier job only."""
        if not self._met:
            raise RuntimeError(
                f"strategy {self.text} has met the ranks of the last job: after hvd.init(), give the "
                "optimizer to DistributedOptimizer again"
            )

    def agree_on_overflow(self, found: dict[torch.device, torch.Tensor]) -> None:
        """Sets GradScaler's findings to the worst of all ranks': all of them skip a step, or none."""
        agree_on_overflow(found, self.context.name("parameters.overflow"), self.context.process_set)

    # -- generations of an elastic job

    @abstractmethod
    def average(self) -> None:
        """Averages the parameters, between two steps; all ranks call it."""

    @abstractmethod
    def compare_all(self) -> None:
        """Compares the ranks' strategies, and makes the process sets that it needs; all ranks call it."""

    @abstractmethod
    def merge(self, optimizer: torch.optim.Optimizer, takes_part: bool) -> None:
        """Gives all ranks the average of those that take part, and begins another cycle; collective."""

    def joined(self, optimizer: torch.optim.Optimizer) -> None:
        """Gives all ranks the average of those that have taken the most steps."""
        self.merge(optimizer, takes_part=True)

    def leave_generation(self) -> None:
        """Averages the parameters: no rank's steps are lost."""
        if self._met:
            self.average()

    def join_generation(self) -> None:
        """Compares this rank with those of now."""
        if not self.alone():
            self.compare_all()
            self.context.regroup()

    def begin_generation(self, optimizer: torch.optim.Optimizer, root: int, newest: bool) -> bool:
        """Gives all ranks the average of those that have the newest commit."""
        super().begin_generation(optimizer, root, newest)
        if not self.alone():
            self.merge(optimizer, newest)
        return False

    # -- checkpoints

    def check_state(self, state: Any) -> None:
        """Raises ValueError if this is not what state_dict() returns on this rank of such a job."""
        former = is_of_former_format(state)
        if not isinstance(state, Mapping) or not (former or state.get("format") == self.format):
            raise ValueError(
                f"this is no state of strategy {self.text} of format {self.format}: load what its "
                "state_dict() returned"
            )
        for key, ours in self.identity().items():
            if state.get(key) != ours:
                raise ValueError(
                    f"this state is of another {key}: it is of {state.get(key)!r}, and this is {ours!r}"
                )

    def identity(self) -> dict[str, Any]:
        """Returns the entries of a state that must be those of the rank that loads it."""
        ranks = self.context.process_set
        return {"strategy": self.text, "world_size": ranks.size(), "rank": ranks.rank()}

    def stepped(self) -> dict[torch.Tensor, str]:
        """Returns the tensors of the optimizer's groups with their names, in the canonical order."""
        optimizer = self.owner
        return {} if optimizer is None else {one: name for name, one in in_canonical_order(optimizer).items()}

    def numbered(self, state: Mapping[str, Any]) -> dict[torch.Tensor, str]:
        """Returns the tensors with their names, in the order in which a state numbers them.

        In the former format it is that of the optimizer's groups.
        """
        named, optimizer = self.stepped(), self.owner
        if not is_of_former_format(state) or optimizer is None:
            return named
        return {one: named[one] for group in optimizer.param_groups for one in group["params"]}


def trainable(optimizer: torch.optim.Optimizer) -> dict[torch.Tensor, str]:
    """Returns the tensors that the optimizer steps with their names, in the canonical order."""
    return {one: name for name, one in in_canonical_order(optimizer).items() if is_stepped(one)}


def is_stepped(tensor: torch.Tensor) -> bool:
    """Returns whether an optimizer steps it. A frozen one with a gradient, of zeros maybe, has momentum."""
    return tensor.requires_grad or tensor.grad is not None
