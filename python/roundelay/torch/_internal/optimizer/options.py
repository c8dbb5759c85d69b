"""The options of one wrapped optimizer: DistributedOptimizer's arguments, before and after the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from roundelay.torch._internal.gradients.gradient import Reduction
from roundelay.torch._internal.operations.common import check_compression
from roundelay.torch._internal.optimizer.arguments import check_passes, checked_reduction
from roundelay.torch._internal.optimizer.batch_weight import BatchWeight
from roundelay.torch._internal.optimizer.first_weights import FirstWeights
from roundelay.torch._internal.optimizer.master_weights import MasterWeights
from roundelay.torch._internal.optimizer.settings import PASSES, Settings
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch.compression import Compressor
from roundelay.torch.process_sets import ProcessSet


@dataclass(frozen=True)
class Arguments:
    """What the caller gave to DistributedOptimizer, which describes the arguments and has the defaults."""

    named_parameters: Iterable[tuple[str, torch.Tensor]] | None
    compression: type[Compressor]
    passes: int
    op: int
    predivide_factor: float
    num_groups: int
    groups: Any
    sparse_as_dense: bool
    process_set: ProcessSet
    strategy: Strategy | str | None
    master_weights: bool
    weight: Callable[[], Any] | None

    def checked(self) -> Arguments:
        """Returns them with numbers of the right types. ValueError: one is wrong by itself."""
        check_compression(self.compression)
        check_passes(self.passes)
        op, factor = checked_reduction(self.op, self.predivide_factor)
        return replace(self, op=op, predivide_factor=factor)

    def settings(self) -> Settings:
        """Returns those that Horovod has, by its attributes' names."""
        return {
            "op": self.op,
            PASSES: self.passes,
            "gradient_predivide_factor": self.predivide_factor,
            "process_set": self.process_set,
            "sparse_as_dense": self.sparse_as_dense,
            "_compression": self.compression,
            "_groups": self.groups if self.num_groups == 0 else self.num_groups,
        }


@dataclass(frozen=True)
class Options:
    """How one optimizer is wrapped. All of it was checked."""

    rule: Reduction  # of its gradients, over the ranks of its process set
    passes: int  # the number of backward passes in a step, at the beginning
    grouping: Mapping[int, int]  # the numbers of the user's groups, by id(parameter)
    names: MutableMapping[torch.Tensor, str]  # those that the user gave
    strategy: Strategy
    masters: MasterWeights
    weights: FirstWeights
    batch_weight: BatchWeight | None  # the rule's

    def over(self, ranks: ProcessSet) -> Options:
        """Returns the same for gradients that are reduced over other ranks."""
        return replace(self, rule=self.rule._replace(process_set=ranks))
