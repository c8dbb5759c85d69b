"""fp32 masters of an optimizer's fp16 and bf16 parameters (``master_weights=True``).

A *master* takes the place of its parameter in the optimizer's groups and state. Backward, hooks and
reductions go on with the parameter, whose ``.grad`` is in its half type. Then:

1. When a backward is over, the masters get its gradients, cast to fp32 (MasterPairs.take_gradients).
2. ``step()`` changes the masters, and MasterPairs.write_back() rounds them into the parameters.

Users may change either gradient before the step, as clipping does, and the parameters between two steps
(loading, broadcasting): version counters tell which one is newer. A change through ``.data`` has none.

The core does what a step does for each master (csrc/gradients/master_pairs.h). Python decides which
parameters have masters, and has them in the optimizer's methods.

Source: mixed precision training, Micikevicius et al. (arXiv 1710.03740), section 3.1.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from roundelay import _core
from roundelay.errors import MismatchError
from roundelay.torch._internal.optimizer.equality import Difference
from roundelay.torch._internal.optimizer_layout import MASTERS_KEY
from roundelay.torch.functions import replaced

HALVES = (torch.float16, torch.bfloat16)
_CARRIED = "_master_weights"  # a copied optimizer's pairs of a parameter and its master


class MasterWeights:
    """The masters of one optimizer. Its methods that have an argument ``optimizer`` expect this one.

    pairs: what a step does with all of them. This object keeps their tensors alive.
    """

    def __init__(self, enabled: bool) -> None:
        """enabled: false if no parameter is to have a master."""
        self.enabled = enabled
        self.methods: dict[str, Callable[..., Any]] = {}  # what they change in the optimizer
        if enabled:
            self.methods = {
                "zero_grad": self.zero_grad,
                "add_param_group": self.add_param_group,
                "state_dict": self.state_dict,
                "load_state_dict": self.load_state_dict,
                "__reduce_ex__": self.reduce,
            }
        self.pairs = _core.MasterPairs()
        self._by_master: dict[torch.Tensor, _core.MasterPair] = {}
        self._by_parameter: dict[torch.Tensor, _core.MasterPair] = {}
        self._warned = False  # a checkpoint had no masters

    @classmethod
    def chosen(
        cls, optimizer: torch.optim.Optimizer, wanted: Any, present: MasterWeights | None
    ) -> MasterWeights:
        """Returns the masters that the optimizer is to have; present: those that it has.

        ValueError: it is no flag, or masters would be lost.
        """
        if not isinstance(wanted, bool):
            raise ValueError(f"master_weights is {wanted!r}, but must be True or False")
        has = present is not None and present.enabled
        if not wanted and (has or optimizer.__dict__.get(_CARRIED)):
            raise ValueError(
                f"this {type(optimizer).__name__} has fp32 masters, which are more exact than its parameters"
                ": give DistributedOptimizer master_weights=True again, or a new optimizer of the parameters"
            )
        return present if present is not None and has else cls(wanted)

    def adopt(self, optimizer: torch.optim.Optimizer, named: Mapping[torch.Tensor, str]) -> None:
        """Gives masters to half parameters that have none; frozen ones wait until they are wanted.

        named: the names of all parameters in the groups. The masters of others are forgotten.
        """
        if not self.enabled:
            return
        self._by_parameter = {one: pair for one, pair in self._by_parameter.items() if one in named}
        self._by_master = {pair.master: pair for pair in self._by_parameter.values()}
        try:
            self._make_masters(optimizer, named)
        finally:  # there may be no memory for some
            self.pairs.set(list(self._by_parameter.values()))

    def _make_masters(self, optimizer: torch.optim.Optimizer, named: Mapping[torch.Tensor, str]) -> None:
        places = [
            (group["params"], index)
            for group in optimizer.param_groups
            for index, tensor in enumerate(group["params"])
            if tensor.dtype in HALVES and tensor.requires_grad
        ]
        if not places:
            return
        carried = dict(optimizer.__dict__.pop(_CARRIED, ()))
        for group, index in places:
            parameter = group[index]
            if parameter not in self._by_parameter:  # a group may have it twice
                master = self._make_master(parameter, named[parameter], carried.get(parameter))
                _move_state(optimizer, parameter, master)
            group[index] = self.stepped(parameter)

    def _make_master(self, parameter: torch.Tensor, label: str, values: torch.Tensor | None) -> torch.Tensor:
        """values: a copied optimizer's master. They count where the parameter has not changed since."""
        master = torch.nn.Parameter(parameter.detach().to(torch.float32))
        pair = _core.MasterPair(parameter, master, label)
        if values is not None:
            pair.take_where_equal(values)
        self._by_parameter[parameter] = self._by_master[master] = pair
        return master

    def halves(self) -> list[torch.Tensor]:
        """Returns the parameters that have masters."""
        return list(self._by_parameter)

    def parameters(self, optimizer: torch.optim.Optimizer) -> list[list[torch.Tensor]]:
        """Returns the model's parameters, group by group."""
        return [[self.parameter_of(tensor) for tensor in group["params"]] for group in optimizer.param_groups]

    def parameter_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the parameter of a master; any other tensor is a parameter itself."""
        pair = self._by_master.get(tensor)
        return tensor if pair is None else pair.parameter

    def stepped(self, parameter: torch.Tensor) -> torch.Tensor:
        """Returns the tensor that the optimizer steps for a parameter: its master, if it has one."""
        pair = self._by_parameter.get(parameter)
        return parameter if pair is None else pair.master

    @contextmanager
    def between_steps(self) -> Iterator[None]:
        """Surrounds a change of the masters between two steps; parameters get it at the end."""
        self.pairs.refresh()
        yield
        self.pairs.write_back()

    @staticmethod
    def check(differences: list[Difference], prefix: str) -> None:
        """Takes the differences of a round. MismatchError, on all ranks, if only some have masters.

        prefix: that of the optimizer's names.
        """
        for _, *sides in differences:
            (lacks, _), (has, _) = sorted(sides, key=lambda side: side[1])
            raise MismatchError(
                f"master_weights of an optimizer ({prefix!r}) differs between ranks: rank {has} has True, "
                f"rank {lacks} False: give DistributedOptimizer the same arguments on every rank"
            )

    # -- methods of the optimizer

    def zero_grad(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        """Clears the gradients of the masters and of the parameters."""
        type(optimizer).zero_grad(optimizer, *args, **kwargs)
        parameters = [{"params": list(self._by_parameter)}]
        masters, optimizer.param_groups = optimizer.param_groups, parameters
        try:
            type(optimizer).zero_grad(optimizer, *args, **kwargs)
        finally:
            optimizer.param_groups = masters
        self.pairs.begin_gradients()

    def add_param_group(self, optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
        """Adds a group of parameters; adopt() makes their masters. ValueError: some are there already."""
        type(optimizer).add_param_group(optimizer, group)
        if any(parameter in self._by_parameter for parameter in optimizer.param_groups[-1]["params"]):
            optimizer.param_groups.pop()
            raise ValueError("some parameters appear in more than one parameter group")

    def state_dict(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Returns the optimizer's state dict with the masters in it."""
        self.pairs.refresh()
        masters = {number: pair.master.detach() for number, pair in self._numbered(optimizer)}
        return {**type(optimizer).state_dict(optimizer), MASTERS_KEY: masters}

    def load_state_dict(self, optimizer: torch.optim.Optimizer, state_dict: Mapping[str, Any]) -> None:
        """Takes back what state_dict() returned, and rounds the masters into the parameters.

        A master that is not in it becomes its parameter's value; that of a parameter that is frozen now, or
        no half, is dropped. A warning says so once. ValueError, with nothing changed: the masters are those
        of other parameters.
        """
        masters = state_dict.get(MASTERS_KEY, {})
        pairs = list(self._numbered(optimizer))
        for number, pair in pairs:
            self._check(number, pair, masters.get(number))
        plain = {key: value for key, value in state_dict.items() if key != MASTERS_KEY}
        type(optimizer).load_state_dict(optimizer, plain)
        for number, pair in pairs:
            with torch.no_grad():
                pair.master.copy_(masters.get(number, pair.parameter))
        self.pairs.write_back()
        missing = [pair.label for number, pair in pairs if number not in masters]
        unneeded = masters.keys() - {number for number, _ in pairs}
        if missing:
            self._warn(
                f"the checkpoint has no fp32 masters of {len(missing)} parameters, the first is {missing[0]}"
                ": they begin with the parameters' own values"
            )
        elif unneeded:
            self._warn(
                f"the checkpoint has fp32 masters of {len(unneeded)} parameters that are frozen or no halves "
                f"now, the first is number {min(unneeded)}: unfreeze what trains on before load_state_dict()"
            )

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(text, RuntimeWarning, stacklevel=6)

    @staticmethod
    def _check(number: int, pair: _core.MasterPair, master: Any) -> None:
        if master is None:
            return
        shape = tuple(pair.parameter.shape)
        if not isinstance(master, torch.Tensor) or tuple(master.shape) != shape:
            has = f"shape {list(master.shape)}" if isinstance(master, torch.Tensor) else repr(master)
            raise ValueError(
                f"the checkpoint's fp32 master number {number} has {has}, but {pair.label} has shape "
                f"{list(shape)}: it is the checkpoint of another model"
            )

    def _numbered(self, optimizer: torch.optim.Optimizer) -> Iterator[tuple[int, _core.MasterPair]]:
        """Yields the pairs with the numbers that their parameters have in a state dict."""
        every: Iterable[torch.Tensor] = (p for group in optimizer.param_groups for p in group["params"])
        for number, tensor in enumerate(every):
            if tensor in self._by_master:
                yield number, self._by_master[tensor]

    def reduce(self, optimizer: torch.optim.Optimizer, protocol: Any) -> tuple[Any, ...]:
        """Returns how to copy it: as a plain optimizer of the parameters, which brings the masters along."""
        self.pairs.refresh()
        reduced: Any = type(optimizer).__reduce_ex__(optimizer, protocol)
        make, arguments, state, *rest = reduced
        groups = [
            {**group, "params": [self.parameter_of(p) for p in group["params"]]}
            for group in optimizer.param_groups
        ]
        plain: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in optimizer.state.items():
            plain[self.parameter_of(key) if isinstance(key, torch.Tensor) else key] = value
        carried = [(pair.parameter, pair.master) for pair in self._by_master.values()]
        return make, arguments, {**state, "param_groups": groups, "state": plain, _CARRIED: carried}, *rest


def _move_state(optimizer: torch.optim.Optimizer, parameter: torch.Tensor, master: torch.Tensor) -> None:
    """Makes the optimizer's state of a parameter the master's; tensors in its half type become fp32."""

    def widened(leaf: Any) -> Any:
        half = isinstance(leaf, torch.Tensor) and leaf.dtype == parameter.dtype
        return leaf.to(torch.float32) if half else leaf

    if parameter in optimizer.state:
        optimizer.state[master] = replaced(optimizer.state.pop(parameter), widened)
