"""Follows the parameters of a wrapped optimizer. Users may replace, add and remove some between two steps."""

from __future__ import annotations

import weakref

import torch

from roundelay.torch._internal.optimizer.gradient_hooks import GradientHooks
from roundelay.torch._internal.optimizer.options import Options
from roundelay.torch._internal.optimizer.parameter_watch import ParameterWatch
from roundelay.torch._internal.optimizer.uncounted_steps import UncountedSteps
from roundelay.torch._internal.parameter_names import Names
from roundelay.torch._internal.unfit import check_fit

# Users of Horovod look at these attributes of the optimizer.
_FIELDS = ("_parameter_names", "_requires_update", "_handles")


class WrappedParameters:
    """Gives the parameters in an optimizer's groups their names, masters and hooks.

    watch: the parameters as they were seen last. It does not keep the optimizer alive.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        options: Options,
        hooks: GradientHooks,
        uncounted: UncountedSteps,
    ) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._process_set = options.rule.process_set
        self._masters = options.masters
        self._hooks = hooks
        self._uncounted = uncounted
        self.watch = ParameterWatch(options.names)

    def refresh(self) -> None:
        """Takes the parameters that are in the groups now, and those that were frozen until now."""
        optimizer = self._optimizer()
        if optimizer is None or self.watch.unchanged(optimizer, self._masters.halves()):
            return
        self.watch.name(optimizer, self._masters.parameters(optimizer))
        named = self.watch.named
        try:
            self.check_owners()
        except ValueError:
            self.watch.forget()
            raise
        self._masters.adopt(optimizer, named)
        self.watch.unchanged(optimizer, self._masters.halves())  # masters have taken places
        self._hooks.follow(named)
        self._uncounted.follow(named, self._masters.stepped)
        trained = {parameter for parameter in named if parameter.requires_grad}
        for field, value in zip(_FIELDS, (named, trained, {}), strict=True):  # nothing is in flight
            setattr(optimizer, field, value)

    def add_group(self) -> None:
        """Takes a new group of parameters. Removes it, and raises, if something else reduces some of them."""
        try:
            self.refresh()
        except ValueError:
            optimizer = self._optimizer()
            if optimizer is not None:
                optimizer.param_groups.pop()
                self.refresh()
            raise

    def check_owners(self) -> None:
        """Raises ValueError if something else reduces the parameters."""
        if self._process_set.included():
            named = self.watch.named.items()
            check_fit(((name, parameter) for parameter, name in named), reduced=True)

    def names(self) -> Names:
        """Returns the names of the parameters, group by group."""
        self.refresh()
        optimizer = self._optimizer()
        groups = [] if optimizer is None else self._masters.parameters(optimizer)
        return [[self.watch.named[parameter] for parameter in group] for group in groups]

    @staticmethod
    def forget(optimizer: torch.optim.Optimizer) -> None:
        """Takes away what the optimizer has of its parameters for users of Horovod."""
        for field in _FIELDS:
            optimizer.__dict__.pop(field, None)
