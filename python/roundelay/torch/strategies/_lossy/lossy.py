"""The base of all lossy strategies: a part of each bucket is sent in a step, and the rest is kept back.

They share momentum and warm-up. kept_back.py has what they share with all that keep gradients back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch

from roundelay._internal.spelling.form import Value
from roundelay._internal.spelling.reading import write
from roundelay._internal.spelling.table import momenta_of
from roundelay._internal.spelling.values import Flag, Share, WarmUp, Word
from roundelay.torch._internal.horovod_name import plain_kind
from roundelay.torch._internal.strategy.bucket import Bucket, Sent
from roundelay.torch._internal.strategy.spec import Spec
from roundelay.torch.strategies._lossy import sgd_steps
from roundelay.torch.strategies._lossy.kept_back import KeepsBack

Schedule = Sequence[tuple[int, float]]


class Lossy(KeepsBack):
    """A base: override spec(), and give it a ``kind`` and ``own_settings``.

    keep: the part of the elements that a step sends, above 0 and at most 1. momentum, one of ``momenta``:
    "masked": SGD moves the elements that were sent; the momentum of the others waits, and they only decay;
    "local": each rank accumulates momentum before elements are sent; None or "none": the optimizer sees zeros
    in place of elements that were not sent; "auto": the first of these for torch.optim.SGD, and "none" for
    other optimizers. masking: whether local momentum is cleared where it was sent.
    warmup: the number of first steps that send all, or a list of (step, keep): steps before ``step`` send the
    part ``keep``. KeepsBack describes the others.

    ValueError: one of them is wrong.
    """

    share: ClassVar[str] = "keep"  # the subclass's name for ``keep``
    momenta: ClassVar[tuple[str, ...]] = momenta_of("csc")  # the first is for SGD

    def __init__(
        self,
        keep: float,
        *,
        momentum: str | None = "auto",
        masking: bool = True,
        warmup: int | Schedule = 0,
        wire: torch.dtype | str | None = None,
        dense_below: int = 4096,
        dense_parameters: Iterable[str] = (),
    ) -> None:
        super().__init__(wire, dense_below, dense_parameters)
        self.keep = Share().checked(self.share, keep)
        given = "none" if momentum is None else momentum
        self._given = Word(("auto", *self.momenta)).checked("momentum", given)
        self.momentum = self.momenta[0] if given == "auto" else given
        self.masking = Flag().checked("masking", masking)
        _check_masking(self.masking, self.momentum)
        self.warmup = WarmUp(self.share).checked("warmup", warmup)
        self._sgd_momentum = 0.0
        self._nesterov = False
        self._taken: sgd_steps.Taken = []
        self._own_step: Callable[[], None] | None = None  # waits for the end of the optimizer's

    def has_saved(self, text: str) -> bool:
        """Returns whether a state has its text, with the momentum that was given or that was chosen."""
        return text in [write(self.kind, self.settings | {"momentum": m}) for m in ("auto", self.momentum)]

    def follow(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Chooses the momentum, if that is "auto". None: the optimizer is not known."""
        if self._given == "auto":
            sgd = optimizer is not None and plain_kind(optimizer) is torch.optim.SGD
            self.momentum = self.momenta[0] if sgd else "none"
            _check_masking(self.masking, self.momentum)

    @abstractmethod
    def spec(self, bucket: Bucket, keep: float, dense: Collection[int]) -> Spec | None:
        """Returns the bucket's technique. dense: numbers of the parameters that go densely, not all."""

    @property
    def warmup_steps(self) -> int:
        """The number of first steps that send more."""
        return self.warmup[-1][0] if self.warmup else 0

    @property
    def settings(self) -> dict[str, Any]:
        """The strategy's settings. Its text has those that are not the default."""
        return {
            **super().settings,
            self.share: self.keep,
            "momentum": self._given,
            "masking": self.masking,
            "warmup": self.warmup,
        }

    def technique_settings(self) -> dict[str, Value]:
        """Returns the settings that every lossy technique of the core has."""
        settings = super().technique_settings()
        if self.momentum == "local":
            settings |= {"momentum": self._sgd_momentum, "nesterov": self._nesterov}
            if not self.masking:
                settings["masking"] = False
        return settings

    # -- checks and answers for DistributedOptimizer

    def accept(self, optimizer: torch.optim.Optimizer, op: int) -> None:
        """Refuses gradients that cannot be sent in parts, and optimizers whose momentum it does not know."""
        super().accept(optimizer, op)
        self.follow(optimizer)
        if self.momentum == "none":
            return
        if plain_kind(optimizer) is not torch.optim.SGD:
            raise ValueError(
                f"strategy {self.text} corrects the momentum of torch.optim.SGD, not that of "
                f"{type(optimizer).__name__}: give the strategy momentum=None (in text: momentum=none), or "
                "take SGD"
            )
        for group in optimizer.param_groups:
            sgd_steps.check_group(group, self.text)
        if self.momentum == "local":
            self._sgd_momentum, self._nesterov = _one_momentum(optimizer, self.text, self.momenta)

    def accept_closure(self) -> None:
        """Refuses a closure if the strategy steps parameters itself: it needs gradients before step()."""
        if self.momentum != "none":
            raise ValueError(
                f"strategy {self.text} steps before a closure would be called: call backward() before "
                "step(), without a closure"
            )

    def technique(self, bucket: Bucket, step: int) -> Spec | None:
        """Returns spec()'s technique; None while all is sent, and if every parameter goes densely."""
        keep = next((keep for until, keep in self.warmup if step < until), None)
        if keep == 1.0:
            return None
        dense = self.dense_in(bucket)
        if len(dense) == len(bucket.parameters):
            return None
        return self.spec(bucket, self.keep if keep is None else keep, dense)

    def report(self) -> Iterable[str]:
        """Tells the momentum that was chosen for the optimizer."""
        optimizer = self.owner
        if self._given == "auto" and optimizer is not None:
            yield f"momentum={self.momentum}, chosen for {plain_kind(optimizer).__name__}"

    # -- around the step

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Hides the gradients that the optimizer's own step would treat wrongly; after_step() steps these."""
        self.abandon_step()
        super().before_step(optimizer)
        if self.momentum == "none" or not isinstance(optimizer, torch.optim.SGD):
            return
        for group in optimizer.param_groups:
            sgd_steps.check_group(group, self.text)
        if self.momentum == "masked":
            self._prepare_masked(optimizer)
        else:
            accumulated = self._accumulated(optimizer)
            self._taken = sgd_steps.hide_gradients(optimizer, accumulated)
            self._own_step = partial(sgd_steps.local_step, optimizer, accumulated)

    def _prepare_masked(self, optimizer: torch.optim.SGD) -> None:
        every = self._kept().sent()
        elements = sgd_steps.sent_elements(every)
        stepped = {self.context.stepped(parameter): found for parameter, found in elements.items()}
        always = self._always_whole(every)
        for one in always:
            optimizer.state.get(one, {}).pop(sgd_steps.DECAY_KEY, None)  # from before there were buckets
        whole = self._large_enough(optimizer) - always - stepped.keys()
        decays = sgd_steps.decays_of(optimizer, whole)
        self._taken = sgd_steps.hide_gradients(optimizer, stepped.keys())
        marks = [self.context.stepped(parameter) for parameter in sgd_steps.marked(every)]
        self._own_step = partial(sgd_steps.masked_step, optimizer, stepped, decays, marks)

    def _always_whole(self, every: Sequence[Sent]) -> set[torch.Tensor]:
        """Returns the tensors of these buckets of which no step sends a part."""
        return {
            self.context.stepped(parameter)
            for sent in every
            for number in self.dense_in(sent.bucket)
            if (parameter := sent.parameters[number]) is not None
        }

    def _large_enough(self, optimizer: torch.optim.SGD) -> set[torch.Tensor]:
        """Returns the tensors of which some step may send a part; there may be no buckets yet."""
        if all(keep == 1.0 for keep in (self.keep, *(keep for _, keep in self.warmup))):
            return set()
        tensors = (one for group in optimizer.param_groups for one in group["params"])
        return {one for one in tensors if one.numel() >= self.dense_below}

    def _accumulated(self, optimizer: torch.optim.SGD) -> set[torch.Tensor]:
        """Returns the tensors whose gradients have the momentum already: after_step() steps them."""
        now = _one_momentum(optimizer, self.text, self.momenta)
        if now != (self._sgd_momentum, self._nesterov):
            self._momentum_has_changed(
                f"strategy {self.text} accumulates {_momentum_text(self._sgd_momentum, self._nesterov)}, and "
                f"the optimizer has {_momentum_text(*now)} by now: keep it constant (cycle_momentum=False), "
                f"or give momentum={_not_local(self.momenta)!r}"
            )
        accumulated = {
            self.context.stepped(parameter)
            for name, parameter in self._kept().residuals.flushed().items()
            if parameter.numel() >= self.dense_below and name not in self.dense_parameters
        }
        for sent in self._kept().sent():
            if not sent.applied:
                continue
            dense = set(self.dense_in(sent.bucket))
            accumulated |= {
                self.context.stepped(parameter)
                for number, parameter in enumerate(sent.parameters)
                if parameter is not None and number not in dense
            }
        return accumulated

    def _momentum_has_changed(self, text: str) -> None:
        """Raises ValueError with the text, if the strategy cannot go on with its own momentum."""
        raise ValueError(text)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Gives parameters their gradients back, and steps them."""
        own_step = self._own_step
        self.abandon_step()
        if own_step is not None:
            own_step()

    def abandon_step(self) -> None:
        """Gives parameters their gradients back."""
        taken, self._taken, self._own_step = self._taken, [], None
        sgd_steps.show_gradients(taken)

    # -- checkpoints

    def own_state(self) -> dict[str, Any]:
        """Returns the momentum that is accumulated: the optimizer may have another one by now."""
        if self.momentum != "local":
            return super().own_state()
        return {**super().own_state(), "accumulates": [self._sgd_momentum, self._nesterov]}

    def take_own_state(self, state: Mapping[str, Any]) -> None:
        """Takes back what own_state() returned. ValueError: it is something else."""
        if self.momentum == "local":
            try:
                momentum, nesterov = state["accumulates"]
                self._sgd_momentum, self._nesterov = float(momentum), bool(nesterov)
            except (KeyError, TypeError, ValueError) as error:
                text = f"this is no state of strategy {self.text}, or an incomplete one: {error!r}"
                raise ValueError(text) from error
        super().take_own_state(state)

    def forget_state(self) -> None:
        """Forgets what load_state_dict() took."""
        super().forget_state()
        optimizer = self.owner
        if self.momentum == "local" and optimizer is not None:
            self._sgd_momentum, self._nesterov = _one_momentum(optimizer, self.text, self.momenta)

    def shared_state(self) -> Any:
        """Returns the momentum that is accumulated."""
        return self._sgd_momentum, self._nesterov

    def take_shared_state(self, state: Any) -> None:
        """Takes it: the optimizer of a new rank may have another one by now."""
        self._sgd_momentum, self._nesterov = state

    def detach(self) -> None:
        """Stops being an optimizer's strategy."""
        self.abandon_step()
        super().detach()


def _check_masking(masking: bool, momentum: str) -> None:
    if not masking and momentum != "local":
        raise ValueError(f"masking=False is for momentum='local', and has no meaning with {momentum!r}")


def _not_local(momenta: Sequence[str]) -> str:
    return next(one for one in momenta if one != "local")


def _one_momentum(optimizer: torch.optim.Optimizer, text: str, momenta: Sequence[str]) -> tuple[float, bool]:
    """Returns the momentum of all groups. ValueError: they differ. text: the strategy's."""
    found = {(float(one["momentum"]), bool(one["nesterov"])) for one in optimizer.param_groups}
    if len(found) > 1:
        raise ValueError(
            f"strategy {text} accumulates one momentum for all parameters, but their groups have "
            f"{' and '.join(_momentum_text(*each) for each in sorted(found))}: give all groups the same, "
            f"or the strategy momentum={_not_local(momenta)!r}"
        )
    return found.pop()


def _momentum_text(momentum: float, nesterov: bool) -> str:
    return f"momentum={momentum:g}, nesterov={nesterov}"
