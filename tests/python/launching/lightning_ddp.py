"""A training with Lightning's Trainer and Fabric over the backend roundelay, as one rank of two."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy

from roundelay.torch import ddp
from roundelay.torch.lightning import RoundelayStrategy


class Model(lightning.LightningModule):  # type: ignore[misc]
    """Three weights. Each batch's gradient is the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3))

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        return (self.weight * batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD([self.weight], lr=0.5)


class Hook(lightning.Callback):  # type: ignore[misc]
    """Registers a hook when Lightning has made its DDP module."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Registers it."""
        self.state, average = ddp.hook("bf16", named_parameters=pl_module.named_parameters())
        trainer.strategy.model.register_comm_hook(self.state, average)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Checks that gradients went through it."""
        assert self.state.techniques() == ["dense:wire=bf16"]


def loader() -> Any:
    """Returns batches of ones and, on rank 1, twos."""
    batches = [torch.full((3,), dist.get_rank() + 1.0)] * 4
    return torch.utils.data.DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


class Data(lightning.LightningDataModule):  # type: ignore[misc]
    """Makes loaders when there is a process group."""

    def train_dataloader(self) -> Any:
        return loader()


def train(
    folder: Path, *callbacks: lightning.Callback, strategy: Any = "roundelay", **options: Any
) -> list[float]:
    """Returns the weights after four batches."""
    saved = ModelCheckpoint(
        dirpath=folder, filename="last", save_weights_only=True, enable_version_counter=False
    )
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=2,
        strategy=strategy,
        use_distributed_sampler=False,
        callbacks=[saved, *callbacks],
        **quiet,
        **options,
    )
    model = Model()
    trainer.fit(model, Data())
    assert dist.get_backend() == "roundelay"
    assert (trainer.world_size, trainer.global_rank) == (2, dist.get_rank())
    trainer.strategy.barrier()
    checkpoint = torch.load(folder / "last.ckpt", weights_only=True)
    assert torch.equal(checkpoint["state_dict"]["weight"], model.weight.cpu())
    weights: list[float] = model.weight.tolist()
    return weights


def train_with_fabric() -> list[float]:
    """Does the same with Fabric."""
    fabric = lightning.Fabric(accelerator="cpu", devices=2, strategy="roundelay")
    fabric.launch()
    plain = Model()
    model, optimizer = fabric.setup(plain, plain.configure_optimizers())
    model.mark_forward_method("training_step")
    for batch in loader():
        optimizer.zero_grad()
        fabric.backward(model.training_step(batch, 0))
        optimizer.step()
    weights: list[float] = plain.weight.tolist()
    return weights


FOLDER = Path(sys.argv[1])
# The average of the gradients is 1.5, the rate 0.5.
assert train(FOLDER) == [-3.0] * 3
ON_DDP = DDPStrategy(process_group_backend="roundelay")
assert train(FOLDER, Hook(), strategy=ON_DDP) == [-3.0] * 3
hooked = RoundelayStrategy(hook="fp16", find_unused_parameters=True)
assert train(FOLDER, strategy=hooked) == [-3.0] * 3
assert hooked.hook_state is not None
assert hooked.hook_state.techniques() == ["dense:wire=fp16"]
with pytest.raises(ValueError, match="daso"):
    train(FOLDER, strategy=RoundelayStrategy(hook="daso"))
assert train(FOLDER, accumulate_grad_batches=2) == [-1.5] * 3  # Lightning halves the gradients
clipped = train(FOLDER, gradient_clip_val=0.5, gradient_clip_algorithm="value")
assert clipped == [-1.0] * 3
assert train_with_fabric() == [-3.0] * 3
print("trained", dist.get_rank())
dist.destroy_process_group()
