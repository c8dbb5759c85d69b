"""One technique of the core for every bucket."""

from __future__ import annotations

from typing import ClassVar

import torch

from roundelay import _core
from roundelay.torch._internal.operations import LINEAR_OPS
from roundelay.torch._internal.strategy.bucket import Bucket
from roundelay.torch._internal.strategy.spec import Spec
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch._internal.strategy.wires import checked_wire, wire_text


class Fixed(Strategy):
    """Gives every bucket this technique in every step: ``Fixed("half:wire=bf16")``.

    wire: the type in which gradients travel, as Dense's. ValueError: there is no such technique, its
    parameters are wrong, or it is of a library that cannot be opened.
    """

    counts_steps: ClassVar[bool] = False
    takes_complex: ClassVar[bool] = False  # their gradients lie in no bucket

    def __init__(self, technique: str | Spec, wire: torch.dtype | str | None = None) -> None:
        text = technique.text if isinstance(technique, Spec) else technique
        self._spec = Spec.parse(_core.technique_text(Spec.parse(text).text))
        self.wire = checked_wire(wire)

    @property
    def text(self) -> str:
        """Returns the technique's text, with the wire's type if there is one."""
        if self.wire is None:
            return self._spec.text
        mark = "," if self._spec.parameters else ":"
        return f"{self._spec.text}{mark}wire={wire_text(self.wire)}"

    def accept(self, optimizer: torch.optim.Optimizer, op: int) -> None:
        """Refuses an op whose results cannot be added."""
        super().accept(optimizer, op)
        if op not in LINEAR_OPS:
            raise ValueError(f"strategy {self.text} needs op=hvd.Average or op=hvd.Sum")

    def technique(self, bucket: Bucket, step: int) -> Spec | None:
        """Returns the same technique for all buckets and steps."""
        return self._spec
