"""One technique of the core for every bucket."""

from __future__ import annotations

from typing import ClassVar

import torch

from roundelay._internal.spelling.form import Written
from roundelay._internal.spelling.reading import read
from roundelay._internal.spelling.techniques import for_users
from roundelay.torch._internal.operations import LINEAR_OPS
from roundelay.torch._internal.strategy.bucket import Bucket
from roundelay.torch._internal.strategy.spec import Spec
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch._internal.strategy.wires import checked_wire, wire_text


class Fixed(Strategy):
    """Gives every bucket this technique in every step: ``Fixed("out/negate.so:negate")``.

    wire: the type in which gradients travel, as Dense's; a text may have it, too, if the technique has no
    wire of its own. ValueError: there is no such technique, its parameters are wrong, or it is of a library
    that cannot be opened.
    """

    counts_steps: ClassVar[bool] = False
    takes_complex: ClassVar[bool] = False  # their gradients lie in no bucket

    def __init__(self, technique: str | Spec, wire: torch.dtype | str | None = None) -> None:
        if not isinstance(technique, Spec):
            written = read(technique).written
            parameters = dict(written.parameters)
            if written.of_library or written.name == "allreduce":
                wire = parameters.pop("wire", wire)
            technique = Spec(written.name, **parameters)
        self._spec = technique
        self.takes_weight = Written.read(technique.text).name == "allreduce"
        self.wire = checked_wire(wire)

    @property
    def text(self) -> str:
        """The technique's text, with the wire's type if there is one. A library is its fingerprint there."""
        return self._with_wire(for_users(self._spec.core))

    @property
    def shown(self) -> str:
        """The same, with the library's file."""
        return self._with_wire(self._spec.text if self._spec.of_library else for_users(self._spec.core))

    def _with_wire(self, text: str) -> str:
        if self.wire is None:
            return text
        written = Written.read(text)
        return Written.of(written.name, {**dict(written.parameters), "wire": wire_text(self.wire)}).text

    def accept(self, optimizer: torch.optim.Optimizer, op: int) -> None:
        """Refuses an op whose results cannot be added."""
        super().accept(optimizer, op)
        if op not in LINEAR_OPS:
            raise ValueError(f"strategy {self.text} needs op=hvd.Average or op=hvd.Sum")

    def technique(self, bucket: Bucket, step: int) -> Spec | None:
        """Returns the same technique for all buckets and steps."""
        return self._spec
