"""LARS: layer-wise adaptive rate scaling."""

from __future__ import annotations

from typing import Any

import torch

from roundelay.torch.optim.layerwise import Group, Layerwise, check_fraction
from roundelay.torch.process_sets import ProcessSet, global_process_set


class LARS(Layerwise):
    """SGD with momentum. Each layer has a learning rate that follows from its norms.

    For a layer with weights w and gradient g::

        ratio = trust_coefficient |w| / (|g| + weight_decay |w| + eps)      1 if a norm is 0
        v = momentum v + ratio (g + weight_decay w)
        w = w - lr v                      with nesterov: lr (ratio (g + weight_decay w) + momentum v)

    The learning rate stands outside of the momentum, as in torch.optim.SGD; You et al. have it inside, which
    is the same while it does not change. With ``adapt=False`` the ratio is 1: the layer's update has the
    same bits as that of SGD.

    params: parameters or groups of them, as torch.optim.Optimizer takes them. lr: the global learning rate.
    trust_coefficient and weight_decay default to You et al.'s for AlexNet; eps only keeps the quotient
    finite. adapt: False in a parameter group gives its layers the ratio 1, as is usual for biases and
    normalisations. foreach: True: one call updates all layers; None: True on GPUs. It changes no bit of the
    result.

    distributed_norms: True: the ranks of ``process_set`` divide the norms. "auto" measures both ways in the
    first steps and takes the faster one; the results have the same bits (docs/techniques/pto.md).

    Source: You, Gitman and Ginsburg, "Large batch training of convolutional networks" (arXiv 1708.03888).
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        trust_coefficient: float = 1e-3,
        eps: float = 1e-8,
        nesterov: bool = False,
        *,
        adapt: bool = True,
        foreach: bool | None = None,
        distributed_norms: str | bool = "auto",
        process_set: ProcessSet = global_process_set,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient,
            "eps": eps,
            "nesterov": nesterov,
            "adapt": adapt,
            "foreach": foreach,
        }
        super().__init__(params, defaults, distributed_norms, process_set)

    def _check_group(self, group: Group) -> None:
        check_fraction("momentum", group["momentum"])
        if not group["trust_coefficient"] > 0.0:
            raise ValueError(f"trust_coefficient is {group['trust_coefficient']!r}, but must be above 0")
        if group["nesterov"] and not group["momentum"]:
            raise ValueError("nesterov=True needs a momentum above 0")

    def _directions(self, group: Group, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
        return [parameter.grad for parameter in parameters if parameter.grad is not None]

    def _ratios(self, group: Group, weights: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
        decayed = weights * group["weight_decay"]
        ratios: torch.Tensor = weights * group["trust_coefficient"] / (directions + decayed + group["eps"])
        return ratios

    def _apply(
        self,
        group: Group,
        parameters: list[torch.Tensor],
        directions: list[torch.Tensor],
        ratios: list[float],
    ) -> None:
        momentum = group["momentum"]
        if group["weight_decay"]:
            updates = list(torch._foreach_add(directions, parameters, alpha=group["weight_decay"]))
            torch._foreach_mul_(updates, ratios)
        else:
            updates = list(torch._foreach_mul(directions, ratios))
        if momentum:
            buffers = [self._buffer(parameter) for parameter in parameters]
            torch._foreach_mul_(buffers, momentum)
            torch._foreach_add_(buffers, updates)
            if group["nesterov"]:
                torch._foreach_add_(updates, buffers, alpha=momentum)
            else:
                updates = buffers
        torch._foreach_add_(parameters, updates, alpha=-float(group["lr"]))

    def _buffer(self, parameter: torch.Tensor) -> torch.Tensor:
        state = self.state[parameter]
        if state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        buffer: torch.Tensor = state["momentum_buffer"]
        return buffer
