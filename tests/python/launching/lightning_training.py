"""A training with Lightning's Horovod strategy, as one rank of two. The folder of Lightning is on PYTHONPATH.

The word says which Lightning: version 1 has the strategy and finds out by itself that it is to be used.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import horovod.torch as hvd
import pytorch_lightning as lightning
import torch

VERSION = int(sys.argv[1])


class Model(lightning.LightningModule):  # type: ignore[misc]
    """Three weights. Each batch's gradient is the batch."""

    def __init__(self, wrap: bool) -> None:
        super().__init__()
        self.wrap = wrap
        self.weight = torch.nn.Parameter(torch.full((3,), float(hvd.rank())))

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        return (self.weight * batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        sgd = torch.optim.SGD([self.weight], lr=0.5)
        if not self.wrap:
            return sgd
        passes = self.trainer.accumulate_grad_batches
        wrapped: torch.optim.Optimizer = hvd.DistributedOptimizer(
            sgd, op=hvd.Sum, backward_passes_per_step=passes
        )
        return wrapped


def trainer_of(passes: int) -> Any:
    own: dict[str, Any] = {"replace_sampler_ddp": False}
    if VERSION == 2:
        from lightning_horovod.strategy import HorovodStrategy

        own = {"use_distributed_sampler": False, "devices": 2, "strategy": HorovodStrategy()}
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    own |= dict.fromkeys(quiet, False)
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", accumulate_grad_batches=passes, **own)
    if VERSION == 2:  # its strategy reads this attribute of version 1
        trainer.accumulation_scheduler = SimpleNamespace(epochs=[0])
    return trainer


def train(wrap: bool, passes: int) -> list[float]:
    """Returns the weights after four batches of ones and, on rank 1, twos."""
    trainer = trainer_of(passes)
    assert type(trainer.strategy).__name__ == "HorovodStrategy"
    assert (trainer.world_size, trainer.global_rank) == (2, hvd.rank())
    model = Model(wrap)
    batches = [torch.full((3,), hvd.rank() + 1.0)] * 4
    loader: Any = torch.utils.data.DataLoader(batches, batch_size=None)  # type: ignore[arg-type]
    trainer.fit(model, loader)
    weights: list[float] = model.weight.tolist()
    return weights


# Lightning makes the rate the double of 0.5. The average of the gradients is 1.5.
assert train(wrap=False, passes=1) == [-6.0] * 3
# Lightning halves the gradients and steps after each backward, so that the first one counts twice.
assert train(wrap=False, passes=2) == [-4.5] * 3
# It leaves an optimizer alone that its user has wrapped. A second synchronize() adds the sum, 3, once more.
assert train(wrap=True, passes=1) == [-12.0] * 3
assert train(wrap=True, passes=2) == [-12.0] * 3
print("trained", hvd.rank())
