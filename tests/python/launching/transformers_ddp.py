"""A training with transformers' Trainer, and a loop with Accelerate, over roundelay, as one rank of two."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.nn.parallel import DistributedDataParallel
from transformers import Trainer, TrainerCallback, TrainingArguments

from roundelay.torch import ddp

WIDTH, IMAGES = 64, 32


class Model(torch.nn.Module):
    """A layer with a loss of its own, as the Trainer wants it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layer = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the loss."""
        return {"loss": torch.nn.functional.mse_loss(self.layer(x), labels)}


class Hook(TrainerCallback):  # type: ignore[misc]
    """Registers a hook when the Trainer has made its DDP module."""

    state: ddp.HookState | None = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Registers it, before the first step."""
        wrapped = trainer.model_wrapped
        if self.state is None:
            assert isinstance(wrapped, DistributedDataParallel)
            names = wrapped.module.named_parameters()
            self.state, average = ddp.hook("topk:density=0.1", named_parameters=names)
            wrapped.register_comm_hook(self.state, average)


def images() -> list[dict[str, torch.Tensor]]:
    """Returns what all ranks learn: to copy."""
    values = torch.Generator().manual_seed(7)
    every = torch.randn(IMAGES, WIDTH, generator=values)
    return [{"x": one, "labels": one} for one in every]


def equal_everywhere(model: torch.nn.Module) -> bool:
    """Returns whether all ranks have the same weights."""
    mine = torch.cat([one.detach().flatten() for one in model.parameters()])
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    return all(torch.equal(one, mine) for one in every)


# Accelerate takes no backend but Gloo and MPI on CPUs by name; it takes the group that there is.
dist.init_process_group("roundelay")
arguments = TrainingArguments(
    output_dir=sys.argv[1],
    use_cpu=True,
    num_train_epochs=4,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    max_grad_norm=1.0,
    learning_rate=0.05,
    report_to="none",
    disable_tqdm=True,
    save_strategy="epoch",
)
hook = Hook()
trainer = Trainer(model=Model(), args=arguments, train_dataset=images(), callbacks=[hook])
before = Model()(**{key: torch.stack([one[key] for one in images()]) for key in ("x", "labels")})["loss"]
after = trainer.train().training_loss
trained: Any = trainer.model
assert dist.get_backend() == "roundelay"
assert hook.state is not None
assert hook.state.techniques() == ["topk:density=0.1"], hook.state
assert after < before
assert equal_everywhere(trained)

accelerator = Accelerator(cpu=True)
plain = Model()
optimizer: Any = torch.optim.SGD(plain.parameters(), lr=0.5)
data: Any = torch.utils.data.DataLoader(images(), batch_size=4)  # type: ignore[arg-type]
model, optimizer, data = accelerator.prepare(plain, optimizer, data)
state, average = ddp.hook("power_sgd", named_parameters=plain.named_parameters())
model.register_comm_hook(state, average)
for _ in range(2):
    for batch in data:
        optimizer.zero_grad()
        accelerator.backward(model(**batch)["loss"])
        optimizer.step()
assert state.techniques() == ["power_sgd:rank=2"], state
assert equal_everywhere(plain)
print("trained", dist.get_rank())
dist.destroy_process_group()
