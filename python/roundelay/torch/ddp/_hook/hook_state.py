"""The state of a hook: DDP's buckets, their techniques, and what these keep back.

What is kept back lies in a bucket's technique (csrc/process_group/technique_bucket.h), in a form of its own.
When a bucket ends or gets another technique, it becomes a tensor for each parameter: it is *carried*. The
next bucket that has the parameter adds it to this rank's gradient, so nothing is lost and nothing sent twice.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, GradBucket

from roundelay import _core
from roundelay._internal.spelling.techniques import for_users
from roundelay.torch._internal.strategy.bucket import Bucket, shape_in_pool
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch._internal.strategy.wires import wire_text
from roundelay.torch.ddp._hook.registration import check_group
from roundelay.torch.ddp._hook.saved import Saved

# Steps before this one are dense, as with DistributedOptimizer, which makes its pools in them: DDP cuts
# its buckets anew after the first one.
FIRST_STEP = 3


class _HookedBucket:
    """One of DDP's buckets."""

    def __init__(self, core: _core.TechniqueBucket, parameters: Sequence[torch.Tensor], view: Bucket) -> None:
        self.core = core
        self.parameters = parameters
        self.view = view  # as strategies see it

    def kept(self) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
        """Returns what is kept back of each parameter; nothing, if nothing is. Alike on all ranks."""
        kept = self.core.kept()
        return () if kept is None else self.parts_of(kept)

    def parts_of(self, elements: torch.Tensor) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
        """Returns each parameter with its part of the bucket's elements, which lie as the parameter's do.

        GradBucket.gradients() has them in another order, if the parameter is not contiguous.
        """
        places = zip(self.parameters, self.view.ranges, self.view.shapes, strict=True)
        for parameter, place, shape in places:
            yield parameter, elements[place.start : place.stop].as_strided(shape.sizes, shape.strides)


class HookState:
    """What ``ddp.register_comm_hook`` is given with the hook. One for each DDP module.

    All ranks of the group call its methods alike, between two steps.
    """

    def __init__(
        self,
        strategy: Strategy,
        group: dist.ProcessGroup,
        backend: Backend,
        names: Mapping[str, torch.Tensor],
    ) -> None:
        self._strategy = strategy
        self._group = group
        self._backend = backend
        self._names = dict(names)
        self._name_of = {parameter: name for name, parameter in self._names.items()}
        self._buckets: list[_HookedBucket] = []
        self._carried: dict[torch.Tensor, torch.Tensor] = {}  # the same parameters on all ranks
        self._step = -1  # counts DDP's reductions of all buckets
        self._told_dense = False

    def __repr__(self) -> str:
        texts = ", ".join(self.techniques()) or "no buckets yet"
        return f"<hook {self._strategy.text} of {self._group.size()} ranks: {texts}>"

    # -- for users

    def techniques(self) -> list[str]:
        """Returns the technique by which each bucket went in the last step."""
        return [
            for_users(one.core.text) if one.core.text and one.core.applied() else "dense"
            for one in self._buckets
        ]

    def rescale(self, factor: float) -> None:
        """Multiplies what is kept back: the loss has a new scale. GradScaler.update() calls it."""
        for bucket in self._buckets:
            bucket.core.rescale(factor)
        for carried in self._carried.values():
            carried.mul_(factor)

    def state_dict(self) -> dict[str, Any]:
        """Returns what this rank keeps back, by names. ValueError: hook() was given no named_parameters."""
        kept = dict(self._carried)
        for bucket in self._buckets:
            _carry(kept, bucket)
        unnamed = any(parameter not in self._name_of for parameter in kept)
        if unnamed or not self._names:
            raise ValueError("a state needs names: give hook() named_parameters=model.named_parameters()")
        return Saved(
            self._strategy.text,
            self._group.rank(),
            self._group.size(),
            self._step,
            {self._name_of[parameter]: value.clone() for parameter, value in kept.items()},
        ).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what state_dict() returned on this rank. All ranks call it, before the first step.

        ValueError: it is the state of another strategy, rank, world size or model, or too late.
        """
        if self._buckets:
            raise ValueError("a hook takes a state only before the first step")
        saved = Saved.from_dict(state)
        saved.check(self._strategy, self._group, self._names)
        self._step = saved.step
        self._carried = {self._names[name]: value.clone() for name, value in saved.kept.items()}

    # -- for DDP

    def average(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Averages a bucket. DDP calls it for each one, in order."""
        if bucket.index() == 0:
            self._begin_step()
        hooked = self._hooked(bucket)
        self._choose(hooked)
        self._add_carried(hooked.parts_of(bucket.buffer()))
        return hooked.core.average(bucket.buffer()).get_future().then(_only_tensor)

    def has_any(self, parameters: set[torch.Tensor]) -> bool:
        """Returns whether one of these is in its buckets."""
        return any(one in parameters for bucket in self._buckets for one in bucket.parameters)

    def _begin_step(self) -> None:
        if not self._buckets:
            self._check_peers()
        self._step += 1

    def _check_peers(self) -> None:
        """Compares the strategies of all ranks, before the first bucket."""
        check_group(self, self._group)
        texts: list[Any] = [None] * self._group.size()
        dist.all_gather_object(texts, (self._strategy.text, self._step), self._group)
        for rank, theirs in enumerate(texts):
            if theirs != texts[0]:
                raise ValueError(
                    f"hooks differ: strategy {texts[0][0]} after step {texts[0][1]} on rank 0, and "
                    f"{theirs[0]} after {theirs[1]} on rank {rank}"
                )

    def _hooked(self, bucket: GradBucket) -> _HookedBucket:
        number, parameters = bucket.index(), bucket.parameters()
        if number < len(self._buckets):
            known = self._buckets[number].parameters
            if len(known) == len(parameters) and all(map(_same, known, parameters)):
                return self._buckets[number]
        for ended in self._buckets[number:]:
            _carry(self._carried, ended)
        del self._buckets[number:]
        self._buckets.append(self._new_bucket(bucket, parameters))
        self._strategy.use_buckets([one.view for one in self._buckets])
        return self._buckets[-1]

    def _new_bucket(self, bucket: GradBucket, parameters: list[torch.Tensor]) -> _HookedBucket:
        elements = bucket.buffer()
        if elements.layout != torch.strided:
            raise ValueError(f"strategy {self._strategy.text} takes no sparse gradients in a hook of DDP")
        complex_ones = any(parameter.is_complex() for parameter in parameters)
        if complex_ones and not self._is_plain:
            raise ValueError(f"strategy {self._strategy.text} takes no complex gradients in a hook of DDP")
        # DDP gives the real and the imaginary parts.
        sizes = [parameter.numel() * (2 if parameter.is_complex() else 1) for parameter in parameters]
        ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
        number = bucket.index()
        view = Bucket(
            number,
            f"bucket.{number}",
            elements.nbytes,
            elements.dtype,
            elements.device,
            tuple(self._name_of.get(one, f"noname.{number}.{place}") for place, one in enumerate(parameters)),
            ranges=tuple(range(end - size, end) for size, end in zip(sizes, ends, strict=True)),
            shapes=tuple(map(shape_in_pool, parameters)),
        )
        return _HookedBucket(_core.TechniqueBucket(self._backend, elements.dtype, sizes), parameters, view)

    def _choose(self, bucket: _HookedBucket) -> None:
        text = self._technique(bucket.view)
        core = bucket.core
        if core.text and not core.applied() and not self._told_dense:
            self._tell_dense(bucket.view)
        if text != core.text:
            _carry(self._carried, bucket)
            core.forget()
            core.choose(text)

    @property
    def _is_plain(self) -> bool:
        """True if gradients travel as they are."""
        return "technique" not in self._strategy.overrides and self._strategy.wire is None

    def _technique(self, bucket: Bucket) -> str:
        strategy = self._strategy
        if "technique" not in strategy.overrides:
            return "" if strategy.wire is None else f"half:wire={wire_text(strategy.wire)}"
        spec = strategy.technique(bucket, self._step) if self._step >= FIRST_STEP else None
        return "" if spec is None or spec.core == "dense" else spec.core

    def _tell_dense(self, bucket: Bucket) -> None:
        self._told_dense = True
        if self._group.rank() == 0:
            text = (
                f"strategy {self._strategy.text} has left a bucket dense, because no rank had a gradient of "
                f"one of its {len(bucket.parameters)} parameters: this happens in each such step"
            )
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _add_carried(self, parts: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Adds what was carried to parameters of which some rank has a gradient: DDP drops other results."""
        if not self._carried:
            return
        waiting = [(parameter, gradient) for parameter, gradient in parts if parameter in self._carried]
        if not waiting:
            return
        # As the core sees it: a gradient of -0.0 is one.
        some_bit = [bool((gradient.signbit() | (gradient != 0)).any()) for _, gradient in waiting]
        present = torch.tensor(some_bit, dtype=torch.uint8)
        dist.all_reduce(present, dist.ReduceOp.MAX, self._group)
        for (parameter, gradient), some in zip(waiting, present.tolist(), strict=True):
            if some:
                gradient.copy_(self._carried.pop(parameter).add_(gradient))


def _carry(carried: dict[torch.Tensor, torch.Tensor], bucket: _HookedBucket) -> None:
    """Adds what a bucket keeps to what is carried already."""
    for parameter, kept in bucket.kept():
        before = carried.get(parameter)
        carried[parameter] = kept if before is None else kept + before


def _only_tensor(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
    return future.value()[0]


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one is other
