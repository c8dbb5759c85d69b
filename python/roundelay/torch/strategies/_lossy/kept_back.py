"""The base of strategies that keep gradients back.

They share the type of the elements that travel, and parameters that always go densely.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar

import torch

from roundelay._internal.spelling.form import Value
from roundelay._internal.spelling.reading import write
from roundelay._internal.spelling.values import Names, Whole
from roundelay.torch._internal.operations import LINEAR_OPS
from roundelay.torch._internal.strategy.bucket import Bucket
from roundelay.torch._internal.strategy.state_format import is_of_former_format
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch._internal.strategy.wires import checked_wire, wire_text
from roundelay.torch._internal.tuning.ways import Formula


class KeepsBack(Strategy):
    """A base: some of a bucket's gradients travel later, or in another form, and some always go densely.

    wire: the type in which elements travel: torch.float16, torch.bfloat16, or None for their own; the
    rounding error is kept back, too. dense_below: parameters of fewer elements are always sent whole.
    dense_parameters: the names of other parameters that are always sent whole.

    ValueError: one of them is wrong.
    """

    takes_sparse = False
    takes_complex: ClassVar[bool] = False
    kind: ClassVar[str]  # the strategy's name in texts

    def __init__(
        self, wire: torch.dtype | str | None, dense_below: int, dense_parameters: Iterable[str]
    ) -> None:
        self.message_wire = checked_wire(wire)
        self.dense_below = Whole().checked("dense_below", dense_below)
        self.dense_parameters = Names().checked("dense_parameters", dense_parameters)
        self._stepped = self._loaded = False

    # -- to override

    @property
    def own_settings(self) -> dict[str, Any]:
        """The settings that this strategy alone has."""
        return {}

    @property
    def warmup_steps(self) -> int:
        """The number of first steps that do not send as the later ones do."""
        return 0

    def formula(self) -> Formula | None:
        """Returns what the cost model has of a bucket by this strategy; None: nothing."""
        return None

    # -- its form

    @property
    def settings(self) -> dict[str, Any]:
        """The strategy's settings. Its text has those that are not the default."""
        return {
            **self.own_settings,
            "wire": wire_text(self.message_wire),
            "dense_below": self.dense_below,
            "dense_parameters": self.dense_parameters,
        }

    @property
    def text(self) -> str:
        """Returns a text such as ``csc:keep=0.1,momentum=local``: keep, and what is not the default."""
        return write(self.kind, self.settings)

    def technique_settings(self) -> dict[str, Value]:
        """Returns the settings that every such technique of the core has."""
        return {} if self.message_wire is None else {"wire": wire_text(self.message_wire)}

    # -- checks and answers for DistributedOptimizer

    def accept(self, optimizer: torch.optim.Optimizer, op: int) -> None:
        """Refuses gradients of which no part can be kept back."""
        super().accept(optimizer, op)
        if op not in LINEAR_OPS:
            raise ValueError(f"strategy {self.text} needs op=hvd.Average or op=hvd.Sum")
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if not parameter.is_floating_point():
                    raise ValueError(
                        f"strategy {self.text} keeps gradients back, which those of {parameter.dtype} cannot "
                        "be: give these parameters to an optimizer of their own with strategy='dense'"
                    )

    def accept_gradients(self, names: Collection[str], passes: int) -> None:
        """Refuses dense_parameters that the optimizer does not have."""
        known = set(names)
        unknown = next((name for name in self.dense_parameters if name not in known), None)
        if unknown is not None:
            raise ValueError(
                f"strategy {self.text}: no parameter is called {unknown!r}; there are "
                f"{', '.join(sorted(known)[:6])}{' ...' if len(known) > 6 else ''}"
            )

    def dense_in(self, bucket: Bucket) -> list[int]:
        """Returns the numbers of the bucket's parameters that always go densely."""
        pairs = enumerate(zip(bucket.parameters, bucket.ranges, strict=True))
        return [
            number
            for number, (name, place) in pairs
            if len(place) < self.dense_below or name in self.dense_parameters
        ]

    # -- around the step

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Begins, before the first step."""
        self.begin(optimizer)

    def begin(self, optimizer: torch.optim.Optimizer) -> None:
        """Warns once if an optimizer with a state begins with nothing kept back.

        A strategy that steps as this one later calls it before the optimizer's first step.
        """
        if self._stepped:
            return
        self._stepped = True
        if optimizer.state and not self._loaded and self.context.process_set.rank() == 0:
            text = (
                f"strategy {self.text} begins with nothing kept back and at step 0 of its warm-up: the "
                "optimizer has a state, but none was loaded into the strategy "
                "(docs/strategies.md#what-is-kept-back-and-checkpoints)"
            )
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    # -- checkpoints

    def own_state(self) -> dict[str, Any]:
        """Returns the part of the state that the techniques do not have."""
        return {}

    def take_own_state(self, state: Mapping[str, Any]) -> None:
        """Takes back what own_state() returned. ValueError: it is something else."""
        self._loaded = True

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's state, to be loaded on the same rank of a job of the same size."""
        return {**super().state_dict(), **self.own_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes back what state_dict() returned, before the first step. Errors: the base's."""
        before, loaded = self.own_state(), self._loaded
        own = {**before, **state} if is_of_former_format(state) else state  # which may lack something
        self.take_own_state(own)  # the techniques of the buckets follow from it
        try:
            super().load_state_dict(state)
        except BaseException:
            self.take_own_state(before)
            self._loaded = loaded
            raise

    def restore(self, committed: Any) -> None:
        """Goes back to what commit() returned."""
        super().restore(committed)
        self._loaded = True

    def forget_state(self) -> None:
        """Forgets what load_state_dict() took."""
        self._loaded = False

    def detach(self) -> None:
        """Stops being an optimizer's strategy."""
        super().detach()
        self._stepped = self._loaded = False
