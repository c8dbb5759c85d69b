"""Local SGD: ranks take steps of their own, and average their parameters every few steps.

Source: Stich (arXiv 1805.09767); post-local SGD and levels of nodes: Lin et al. (arXiv 1808.07217).
docs/techniques/local_sgd.md has the formulas.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, ClassVar

import torch

from roundelay._internal.spelling.form import Written
from roundelay._internal.spelling.reading import write
from roundelay._internal.spelling.table import kind_of
from roundelay.torch._internal.measure import count
from roundelay.torch._internal.nodes import inside, nodes_of
from roundelay.torch._internal.operations import allgather
from roundelay.torch._internal.operations.common import row_of_this_rank
from roundelay.torch.process_sets import ProcessSet
from roundelay.torch.strategies._averaging.averages import Cycle, average
from roundelay.torch.strategies._averaging.base import Averaging, trainable
from roundelay.torch.strategies._averaging.outer_optimizer import MakeOuter, Outer
from roundelay.torch.strategies._averaging.periods import Period, Periods


class LocalSGD(Averaging):
    """Averages parameters every ``period`` steps. Before step ``post_local_after`` it averages gradients.

    period: a number of steps, a list of (step, period), or a function of the step (periods.py). outer: a
    function that makes an optimizer of a list of tensors; that optimizer takes the distance to the last
    average for a gradient. within_node: "every_step": the ranks of a node average their gradients in every
    step; "period": they do not.

    ValueError: an argument is wrong.
    """

    kind: ClassVar[str] = "local_sgd"
    format: ClassVar[int] = 3

    def __init__(
        self,
        period: Period = 8,
        post_local_after: int = 0,
        outer: MakeOuter | None = None,
        within_node: str = "every_step",
    ) -> None:
        self.period = period if isinstance(period, Periods) else Periods(period)
        self.post_local_after: int = kind_of(self.kind, "post_local_after").checked(
            "post_local_after", post_local_after
        )
        if outer is not None and not callable(outer):
            raise ValueError(
                f"outer is {outer!r:.60}, but must be a function that makes an optimizer, such as "
                "lambda tensors: torch.optim.SGD(tensors, lr=0.7, momentum=0.9, nesterov=True)"
            )
        self.within_node: str = kind_of(self.kind, "within_node").checked("within_node", within_node)
        self._make_outer = outer
        self._begin()

    def _begin(self) -> None:
        """Forgets an optimizer and its job."""
        super()._begin()
        self._outer: Outer | None = None
        self._node: ProcessSet | None = None  # the ranks of this node; None: this rank is alone there
        self._length: int | None = None  # steps of the cycle; None: its first step is still to come
        # The tensors that the optimizer has stepped since the last average, and their names; in the order of
        # first steps, and the canonical one among those of one step.
        self._changed: dict[torch.Tensor, str] = {}

    @property
    def text(self) -> str:
        """Returns a text such as ``local_sgd:period=8``: the period, and what is not the default.

        If the period or ``outer`` is a function, the text has its name, and cannot be read.
        """
        given = {"post_local_after": self.post_local_after, "within_node": self.within_node}
        parameters = dict(Written.read(write(self.kind, given)).parameters)
        parameters["period"] = self.period.text
        if self._make_outer is not None:
            parameters["outer"] = getattr(self._make_outer, "__name__", type(self._make_outer).__name__)
        return Written.of(self.kind, parameters).text

    # -- checks and answers for DistributedOptimizer

    def accept_set(self, process_set: ProcessSet) -> None:
        """Raises ValueError for a part of the job if all ranks must add the process sets of nodes."""
        if self.within_node == "every_step":
            self.accept_whole_job(process_set, "the strategy within_node='period'")

    def unaveraged(self) -> bool:
        """Returns whether steps were taken since the last average."""
        return bool(self._changed)

    def gradient_set(self) -> ProcessSet | None:
        """Returns all ranks at first, then the node's."""
        if not self._local:
            return self.context.process_set
        return self._node

    def own_sets(self) -> Iterable[ProcessSet]:
        """Returns the node's process set."""
        return () if self._node is None else (self._node,)

    @property
    def _local(self) -> bool:
        """True if ranks take steps of their own; also between two jobs, when nothing is reduced."""
        return not self._met or self._step >= self.post_local_after

    # -- begin and end of a job

    def compare_all(self) -> None:
        """Compares the ranks' strategies, and makes the sets of nodes. MismatchError: they differ."""
        optimizer = self.owner
        if self._make_outer is not None and self._outer is None and optimizer is not None:
            self._outer = Outer(self._make_outer, list(trainable(optimizer)))
        said = self.text if self._outer is None else f"{self.text} with {self._outer.text}"
        if self.post_local_after == 0:
            said += f", the first average after {self.period.after(0)} steps"
        found = self.compare(said)
        if self.within_node == "every_step":
            nodes = nodes_of(found)
            self._node = inside(nodes, "gradients")
            if len(nodes) == 1:
                self.warn_of_one_node(
                    "which average their gradients in every step, so that averages of parameters change "
                    "nothing: give it within_node=period"
                )

    def detach(self) -> None:
        """Stops being an optimizer's strategy."""
        super().detach()
        self._begin()

    def restart(self) -> None:
        """Leaves the last job, whose process sets are gone. The ranks must compare their strategies again."""
        self._node = None
        super().restart()

    # -- before and after a step

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Records the parameters that the step will change."""
        self.check_job()
        if not self._local:
            return
        if self._length is None:
            self._length = self.period.after(self._averaged_at)
        new = {one: name for one, name in trainable(optimizer).items() if one not in self._changed}
        self._changed.update(new)
        if self._outer is not None and new:
            self._outer.remember(list(new))

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Averages the parameters if it is time."""
        self._step += 1
        if self._length is None:
            self._averaged_at = self._step  # gradients were averaged, so parameters are equal
            self.context.regroup()
        elif self._step >= self._averaged_at + self._length:
            self._average()

    def average(self) -> None:
        """Averages the parameters now, such as before an evaluation or at the end, and begins another cycle.

        Call it between two steps, on all ranks. It does nothing if no step was taken since the last average.
        """
        if self._step == self._averaged_at or self._length is None:
            return
        with self.context.between_steps():
            self._average()

    @torch.no_grad()
    def _average(self) -> None:
        length = self.period.after(self._step)
        parameters, means = list(self._changed), self._means(length)
        if self._outer is None and parameters:
            torch._foreach_copy_(parameters, means)
        elif self._outer is not None:
            self._outer.step(parameters, means)
        self._begin_cycle(length)

    def _means(self, length: int, takes_part: bool = True) -> list[torch.Tensor]:
        name, ranks = self.context.name("parameters.average"), self.context.process_set
        count("parameter_transfers")
        cycle = Cycle(self._step, length, tuple(self._changed.values()))
        return average(list(self._changed), cycle, name, ranks, takes_part)

    def _begin_cycle(self, length: int | None) -> None:
        self._changed.clear()
        self._averaged_at, self._length = self._step, length

    @torch.no_grad()
    def merge(self, optimizer: torch.optim.Optimizer, takes_part: bool) -> None:
        """Gives all ranks the average of those that take part and have taken the most steps.

        The outer optimizer takes no step there: the average of some ranks is no gradient of all. It goes on
        with the state of the first of those ranks.
        """
        name, ranks = self.context.name("parameters.joined"), self.context.process_set
        rows = allgather(row_of_this_rank(self._step if takes_part else -1), name, ranks).tolist()
        most = max(step for _, step in rows)
        first = next(rank for rank, step in rows if step == most)
        takes_part = takes_part and self._step == most
        self._step = most
        known = {*trainable(optimizer), *self._changed}
        self._changed = {one: name for one, name in self.stepped().items() if one in known}
        length = self.period.after(most) if most >= self.post_local_after else None
        with self.context.between_steps():
            means = self._means(length or 0, takes_part)
            if means:
                torch._foreach_copy_(list(self._changed), means)
        self._begin_cycle(length)
        if self._outer is not None:
            self._outer.give_to_all(first, ranks)
        self.context.regroup()

    def agree_on_overflow(self, found: dict[torch.device, torch.Tensor]) -> None:
        """Sets GradScaler's findings to the worst of all ranks': all of them skip a step, or none."""
        if self._local:
            super().agree_on_overflow(found)

    # -- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's place in the cycle, and ``outer``'s state. Save each rank's model, too."""
        stepped = list(self.stepped())
        places = {one: index for index, one in enumerate(stepped)}
        changed = [places[one] for one in self._changed if one in places]
        return {
            "format": self.format,
            **self.identity(),
            "step": self._step,
            "averaged_at": self._averaged_at,
            "length": self._length,
            "changed": changed,
            "outer": None if self._outer is None else self._outer.state_dict(stepped, changed),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned, between two steps. ValueError: it belongs elsewhere."""
        self.check_state(state)
        self.restore(state)

    def commit(self) -> dict[str, Any]:
        """Returns a copy of the same."""
        return copy.deepcopy(self.state_dict())

    def restore(self, committed: dict[str, Any]) -> None:
        """Goes back to a commit, also with other ranks than then. ValueError: it is of another model."""
        state = committed
        names = self.numbered(state)
        stepped = list(names)
        batches = [] if state["outer"] is None else state["outer"]["batches"]
        if any(index >= len(stepped) for batch in (state["changed"], *batches) for index in batch):
            raise ValueError(
                f"this state is of another model: the optimizer has only {len(stepped)} parameters: load a "
                "state that was saved with this model"
            )
        if self._outer is not None:
            self._outer.load_state_dict(stepped, state["changed"], state["outer"])
        self._changed = {stepped[index]: names[stepped[index]] for index in state["changed"]}
        self._step, self._averaged_at, self._length = (
            state[key] for key in ("step", "averaged_at", "length")
        )
        self.context.regroup()
