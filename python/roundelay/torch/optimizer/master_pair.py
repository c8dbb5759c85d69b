"""One half parameter and its fp32 master: which of them has the newer weights and the newer gradient."""

from __future__ import annotations

import weakref

import torch


class _Version:
    """Knows a tensor again, and notices that it was changed. Does not keep it alive."""

    __slots__ = ("_number", "_tensor")

    def __init__(self, tensor: torch.Tensor, changed: bool = False) -> None:
        """changed: it was changed already."""
        self._tensor = weakref.ref(tensor)  # a gradient that is held moves out of its pool
        self._number = None if changed else tensor._version

    @property
    def is_outdated(self) -> bool:
        """Returns whether it was given as changed."""
        return self._number is None

    def of(self, tensor: torch.Tensor) -> bool:
        """Returns whether this is the same object, changed or not."""
        return self._tensor() is tensor

    def is_current(self, tensor: torch.Tensor | None) -> bool:
        """Returns whether this is the same object, unchanged."""
        return tensor is not None and self._tensor() is tensor and tensor._version == self._number


class MasterPair:
    """A half parameter and its master. The gradient is noted on both sides when the master gets it."""

    __slots__ = ("_given", "_taken", "_weight", "master", "name", "parameter")

    def __init__(self, parameter: torch.Tensor, name: str, master: torch.Tensor | None) -> None:
        """master: a copied optimizer's, whose values count where the parameter has not changed since."""
        self.parameter = parameter
        self.name = name
        self.master = torch.nn.Parameter(parameter.detach().to(torch.float32))
        self._taken: _Version | None = None  # the parameter's gradient; None: the master has none of it
        self._given: _Version | None = None  # the master's, outdated if it was changed after it was given
        self.note_weight()
        if master is not None:
            self.keep_where_equal(master.to(self.master.device))

    # -- weights

    def note_weight(self) -> None:
        """Notes that the parameter has the master's values, rounded."""
        self._weight = self.parameter._version

    def refresh(self) -> None:
        """Gives the master the values that were changed in the parameter since note_weight()."""
        if self.parameter._version != self._weight:
            self.keep_where_equal(self.master)
            self.note_weight()

    def keep_where_equal(self, master: torch.Tensor) -> None:
        """Takes ``master`` where it has the parameter's value after rounding, and elsewhere the parameter."""
        parameter = self.parameter.detach()
        equal = master.detach().to(parameter.dtype) == parameter
        with torch.no_grad():
            self.master.copy_(torch.where(equal, master.detach(), parameter.to(torch.float32)))

    # -- gradients

    def forget_gradient(self) -> None:
        """Begins new gradients, after zero_grad()."""
        self._taken = self._given = None

    def note_change(self) -> None:
        """Notes that the master's gradient was changed without a new version."""
        self._given = None if self.master.grad is None else _Version(self.master.grad, changed=True)

    def end_step(self) -> None:
        """Ends a step. Optimizers may change gradients; these changes do not count as the users'."""
        if self._given is not None and self.master.grad is not None:
            self._given = _Version(self.master.grad, self._given.is_outdated)

    def source(self, arrived: bool) -> torch.Tensor | None:
        """Returns the parameter's gradient if the master is to get it.

        arrived: a backward has ended. RuntimeError if both gradients were changed since the last time.
        """
        gradient = self.parameter.grad
        if gradient is None:
            if self._taken is not None:
                self._drop_gradient()
            return None
        if self._taken is None:
            return gradient
        changed = self._given is None or not self._given.is_current(self.master.grad)
        if self._taken.is_current(gradient):
            if changed:
                self.note_change()
            return None
        if changed and (self._taken.of(gradient) or not arrived):
            raise RuntimeError(
                f"the gradient of {self.name} was changed after that of its fp32 master (by unscale_() or "
                "clipping): change only the masters' gradients, those of [p for group in "
                "optimizer.param_groups for p in group['params']], and call optimizer.zero_grad() before the "
                "next backward()"
            )
        return gradient

    def _drop_gradient(self) -> None:
        """Ends the master's gradient with the parameter's, unless the user has set another one since."""
        if self._given is None or self.master.grad is None or self._given.of(self.master.grad):
            self.master.grad = None
        self.forget_gradient()

    def room(self, gradient: torch.Tensor) -> torch.Tensor:
        """Makes the master's gradient and returns it, to be overwritten if it is dense."""
        mine = self.master.grad
        if gradient.layout != torch.strided:
            mine = gradient.detach().to(torch.float32)
        elif mine is None or mine.layout != torch.strided:
            mine = torch.empty_like(self.master, requires_grad=False)
        self.master.grad = mine
        return mine

    def note_gradient(self) -> None:
        """Notes that the master has the parameter's gradient."""
        if self.parameter.grad is not None and self.master.grad is not None:
            self._taken = _Version(self.parameter.grad)
            self._given = _Version(self.master.grad)
