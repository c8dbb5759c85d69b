"""The training of all workers that measure steps: a copy of a model, which one contender synchronises."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import roundelay.torch as hvd
from benchmarks.contenders import DENSE_STEPS, Training
from benchmarks.models import Batch, Task, task_loss

# With two buckets the hook starts Gloo's operations in another order on each rank, and Gloo aborts.
_ONE_BUCKET_MIB = 1024


class Trainee:
    """A copy of a task's model, with SGD. Contenders with the same seed get the same batches.

    Args:
        task: the model and its data.
        contender: how to synchronise. All ranks of `group` make it alike.
        rate: the learning rate.
        momentum: SGD's.
        seed: of the batches of this rank.
        group: Gloo's ranks that train together; None: all.

    """

    def __init__(
        self,
        task: Task,
        contender: Training,
        rate: float,
        momentum: float,
        seed: int,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.model = copy.deepcopy(task.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate, momentum=momentum)
        self.called = _wrapped(contender, self.model, self.optimizer, group)
        self._averages = contender.library == "gloo"
        self._draw = task.batch
        self._generator = torch.Generator().manual_seed(seed)

    def batch(self) -> Batch:
        """Draw this rank's next batch."""
        return self._draw(self._generator)

    def backward(self, batch: Batch) -> None:
        """Compute the gradients. Roundelay's are averages only after the optimizer's step."""
        self.optimizer.zero_grad()
        task_loss(self.called, *batch).backward()  # type: ignore[no-untyped-call]
        if self._averages:
            _average(self.model.parameters())

    def step(self, batch: Batch) -> None:
        """Train with a batch."""
        self.backward(batch)
        self.optimizer.step()

    def gradients(self, model: nn.Module) -> list[torch.Tensor]:
        """Return the reduced gradients of this rank's next batch, with the weights of ``model``."""
        self.model.load_state_dict(model.state_dict())
        self.backward(self.batch())
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        return [gradient.clone() for gradient in gradients]

    @property
    def strategy(self) -> hvd.strategies.Strategy | None:
        """Roundelay's strategy; None if another library synchronises, or none."""
        return hvd.strategies.of(self.optimizer) if hasattr(self.optimizer, "no_sync") else None


def _wrapped(
    contender: Training, model: nn.Module, optimizer: torch.optim.SGD, group: dist.ProcessGroup | None
) -> nn.Module:
    """Wrap the optimizer or the model. Return the model to call."""
    if contender.library == "roundelay":
        hvd.DistributedOptimizer(optimizer, model.named_parameters(), strategy=contender.setting)
    if contender.library not in ("ddp", "powersgd"):
        return model
    if contender.backend != "gloo":
        group = dist.new_group(backend=contender.backend)
    if contender.plain:
        plain = DistributedDataParallel(model, process_group=group)
        if contender.silent:
            plain.register_comm_hook(None, _sends_nothing)
        return plain
    power_sgd = contender.library == "powersgd"
    # DDP's best settings: no copy out of buckets, a static graph, no broadcast of buffers.
    wrapped = DistributedDataParallel(
        model,
        process_group=group,
        bucket_cap_mb=_ONE_BUCKET_MIB if power_sgd else contender.bucket_mib,
        gradient_as_bucket_view=True,
        static_graph=True,
        forward_sync_buffers=False,
    )
    if contender.silent:
        wrapped.register_comm_hook(None, _sends_nothing)
    if power_sgd:
        rank = int(contender.setting)
        state = PowerSGDState(group, matrix_approximation_rank=rank, start_powerSGD_iter=DENSE_STEPS)
        wrapped.register_comm_hook(state, powerSGD_hook)
    elif contender.setting:
        wrapped.register_comm_hook(group, getattr(default_hooks, contender.setting))
    return wrapped


# PyTorch compares annotations, which are texts in this file.
def _sends_nothing(_, bucket):  # type: ignore[no-untyped-def]
    """Take a bucket for reduced as it is."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def _average(parameters: Iterable[nn.Parameter]) -> None:
    """Average every gradient, all at the same time."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    works = [dist.all_reduce(gradient, async_op=True) for gradient in gradients]
    for work, gradient in zip(works, gradients, strict=True):
        work.wait()
        gradient.div_(dist.get_world_size())
