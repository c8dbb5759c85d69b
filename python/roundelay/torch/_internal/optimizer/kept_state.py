"""Turns the gradients that techniques keep back on one rank into a dict for a checkpoint, and back.

A strategy's ``state_dict()`` returns it. It belongs to one rank, to the parameters of one model, and to the
buckets that these were in; loading it anywhere else is a ValueError that says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from roundelay.torch._internal.gradients.gradient import Gradient
from roundelay.torch._internal.gradients.pool import PoolBucket
from roundelay.torch._internal.gradients.pool_state import PoolState
from roundelay.torch._internal.optimizer.equality import NO_DIGEST, digest_of
from roundelay.torch._internal.strategy.state_format import is_of_former_format
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch.process_sets import ProcessSet
from roundelay.tuning.buckets import Cuts

_FORMAT = 3

Parameters = dict[str, tuple[tuple[int, ...], str]]  # shape and dtype by name


class KeptBucket(NamedTuple):
    """The technique of one bucket, and its state."""

    technique: str  # its text
    run: int  # counts the runs that have used the state since it was clear
    unflushed: bool  # the state may contain gradients that were not sent
    state: torch.Tensor | None  # None: the technique has none


class Flushing(NamedTuple):
    """How far flushes have come."""

    everything: bool = False  # until the states of all ranks are empty
    once: bool = False  # the next step is one
    empty: bool = False  # this rank's states are empty, and stay so


@dataclass(frozen=True)
class KeptState:
    """The state of all buckets on one rank."""

    strategy: str  # its text
    rank: int  # this rank's number in the process set
    size: int  # the number of ranks in the process set
    step: int
    parameters: Parameters
    pool: PoolState
    flushing: Flushing
    buckets: dict[str, KeptBucket]  # keys: the names of the buckets that have a technique

    def to_dict(self) -> dict[str, Any]:
        """Returns plain containers and tensors, which torch.save takes."""
        return {
            "format": _FORMAT,
            "strategy": self.strategy,
            "rank": self.rank,
            "world_size": self.size,
            "step": self.step,
            "parameters": {name: [list(shape), dtype] for name, (shape, dtype) in self.parameters.items()},
            "pool": self.pool.to_dict(),
            "flushing": list(self.flushing),
            "buckets": {name: bucket._asdict() for name, bucket in self.buckets.items()},
        }

    @classmethod
    def from_dict(cls, state: Any) -> KeptState:
        """Reads what to_dict() returned, also in the former format. ValueError if it is something else."""
        former = is_of_former_format(state)
        if not isinstance(state, Mapping) or not (former or state.get("format") == _FORMAT):
            raise ValueError(f"this is no state of a strategy of format {_FORMAT}")
        try:
            state = _of_this_format(state) if former else state
            return cls(
                strategy=str(state["strategy"]),
                rank=int(state["rank"]),
                size=int(state["world_size"]),
                step=int(state["step"]),
                parameters={
                    name: (tuple(shape), dtype) for name, (shape, dtype) in state["parameters"].items()
                },
                pool=PoolState.from_dict(state["pool"]),
                flushing=Flushing(*map(bool, state["flushing"])),
                buckets={name: _kept_bucket(**bucket) for name, bucket in state["buckets"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"this state of a strategy is incomplete: {error!r}") from error

    def check(self, strategy: Strategy, process_set: ProcessSet, parameters: Parameters) -> None:
        """Raises ValueError if it is the state of another strategy, world size, rank or model."""
        theirs = strategy.text if strategy.has_saved(self.strategy) else self.strategy
        pairs = (
            ("strategy", f"strategy {theirs!r}", f"strategy {strategy.text!r}"),
            ("world size", f"a job of {self.size} ranks", f"a job of {process_set.size()}"),
            ("rank", f"rank {self.rank}", f"rank {process_set.rank()}"),
        )
        for what, theirs, ours in pairs:
            if theirs.removesuffix(" ranks") != ours:
                raise ValueError(f"this state is of another {what}: it is of {theirs}, and this is {ours}")
        differing = next(
            (
                name
                for name in sorted({*self.parameters, *parameters})
                if self.parameters.get(name) != parameters.get(name)
            ),
            None,
        )
        if differing is not None:
            theirs, ours = (_shown(each.get(differing)) for each in (self.parameters, parameters))
            raise ValueError(f"this state is of another model: {differing!r} {theirs} there, and {ours} here")

    def digest(self) -> bytes:
        """Returns a digest of what must be equal on all ranks; never zero."""
        buckets = sorted((name, one.technique, one.run) for name, one in self.buckets.items())
        flushing = self.flushing._replace(empty=False)
        return digest_of(repr((self.step, self.pool.shared, flushing, buckets)))

    def restore(self, buckets: Mapping[str, PoolBucket]) -> None:
        """Gives the buckets their techniques and states. ValueError: one does not fit."""
        for name, kept in self.buckets.items():
            bucket = buckets.get(name)
            if bucket is None:
                raise ValueError(
                    f"this state has bucket {name!r}, which is not among those in use: load it with the "
                    "HOROVOD_FUSION_THRESHOLD of the job that saved it"
                )
            bucket.core.set_technique(kept.technique)
            if kept.state is not None:
                _restore_state(name, bucket, kept.state, kept.unflushed)
            bucket.core.run = kept.run


@dataclass
class Loaded:
    """What was loaded last into the techniques of one optimizer."""

    making: KeptState | None = None  # while its buckets are made
    fresh: bool = False  # no step was taken since
    digest: bytes = NO_DIGEST  # of the state; the ranks compare theirs in each round

    def forget(self) -> None:
        """Forgets the state. Buckets that are being made still get it."""
        self.fresh, self.digest = False, NO_DIGEST


def _restore_state(name: str, bucket: PoolBucket, kept: torch.Tensor, unflushed: bool) -> None:
    state = bucket.core.state
    if state is None or state.shape != kept.shape or state.dtype != kept.dtype:
        raise ValueError(
            f"the state of bucket {name!r} has {kept.numel()} bytes, and "
            f"{0 if state is None else state.numel()} are needed: load it with as many ranks per node"
        )
    # A write through `.data` leaves the state's version, by which the core knows that nothing is kept.
    (state if unflushed else state.data).copy_(kept)


def kept_buckets(buckets: Mapping[str, PoolBucket]) -> dict[str, KeptBucket]:
    """Returns the states of the buckets that have a technique, by name."""
    found = {}
    for name, bucket in buckets.items():
        core = bucket.core
        technique, state = core.technique, core.state
        if technique is not None:
            copied = None if state is None else state.to("cpu", copy=True)
            found[name] = KeptBucket(technique, core.run, core.unflushed, copied)
    return found


def _of_this_format(state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a state of the former format in this one. It does not say whether a flush was under way."""
    if state["scale"] != 1.0:
        raise ValueError("its gradients have another scale: take a step with it before you save it again")
    layout = PoolState(tuple(state["order"]), Cuts(*state["cuts"])) if state["cuts"] else PoolState()
    buckets = {name: {**bucket, "unflushed": True} for name, bucket in state["buckets"].items()}
    return {**state, "pool": layout.to_dict(), "flushing": Flushing(), "buckets": buckets}


def _kept_bucket(technique: str, run: int, unflushed: bool, state: torch.Tensor | None) -> KeptBucket:
    return KeptBucket(str(technique), int(run), bool(unflushed), None if state is None else state.detach())


def _shown(parameter: tuple[tuple[int, ...], str] | None) -> str:
    return "is missing" if parameter is None else f"has shape {list(parameter[0])} and dtype {parameter[1]}"


def parameters_of(gradients: Iterable[tuple[str, Gradient]]) -> Parameters:
    """Returns the shapes and dtypes that identify the model, from (name, gradient) pairs."""
    found: Parameters = {}
    for name, gradient in gradients:
        parameter = gradient.core.parameter
        if parameter is not None:
            found[name] = (tuple(parameter.shape), str(parameter.dtype).removeprefix("torch."))
    return found
