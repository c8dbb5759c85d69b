"""Lightning over the backend "roundelay": import this module, and give ``strategy="roundelay"``.

``Trainer`` and ``Fabric`` of the package ``lightning`` know the name when this module is imported; Lightning
has no entry point by which they could know it before.
"""

from __future__ import annotations

from typing import Any

from lightning.fabric.strategies import STRATEGY_REGISTRY
from lightning.fabric.strategies import DDPStrategy as FabricStrategy
from lightning.pytorch.strategies import DDPStrategy, StrategyRegistry

from roundelay.torch import ddp
from roundelay_autoload import NAME, register


class RoundelayStrategy(DDPStrategy):  # type: ignore[misc]
    """Lightning's ``DDPStrategy`` over the backend, with a hook that sends less.

    ``hook``: what ``roundelay.torch.ddp.hook`` takes, such as ``"topk:density=0.01"``; None: DDP averages all
    gradients. What a hook keeps back belongs to its rank, and is not in Lightning's checkpoints. ``options``
    are ``DDPStrategy``'s. Raises ValueError for a hook that does not exist, when training begins.
    """

    strategy_name = NAME

    def __init__(self, hook: str | None = None, **options: Any) -> None:
        super().__init__(**{"process_group_backend": NAME, **options})
        self._hook = hook
        self.hook_state: ddp.HookState | None = None  # of the hook, once the model is wrapped

    def configure_ddp(self) -> None:
        """Wraps the model, and registers the hook. Lightning itself does so on GPUs alone."""
        super().configure_ddp()
        if self._hook is not None:
            names = self.lightning_module.named_parameters()
            self.hook_state, average = ddp.hook(self._hook, named_parameters=names)
            self.model.register_comm_hook(self.hook_state, average)


register()
StrategyRegistry.register(NAME, RoundelayStrategy, description="DDP over Roundelay")
STRATEGY_REGISTRY.register(NAME, FabricStrategy, description="DDP over Roundelay", process_group_backend=NAME)

__all__ = ["RoundelayStrategy"]
