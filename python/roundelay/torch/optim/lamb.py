"""LAMB: Adam with a trust ratio for each layer."""

from __future__ import annotations

import math
from typing import Any

import torch

from roundelay.torch.optim.layerwise import Group, Layerwise, check_fraction
from roundelay.torch.process_sets import ProcessSet, global_process_set


class LAMB(Layerwise):
    """Adam with decoupled weight decay. The length of a layer's update follows the length of its weights.

    For a layer with weights w and gradient g, in its step number t::

        m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
        u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay w
        w = w - lr ratio u;   ratio = clamp(|w|) / |u|      1 if a norm is 0

    params: parameters or groups of them, as torch.optim.Optimizer takes them. bias_correction=False leaves
    the divisions by 1 - beta^t out. clamp: the bounds (low, high) of ``|w|``, the paper's function phi; by
    default there are none. adapt: False in a parameter group gives its layers the ratio 1, as is usual for
    biases and normalisations. foreach: True: one call updates all layers; None: True on GPUs. It changes no
    bit of the result. A step needs temporary memory of the size of the parameters.

    distributed_norms: True: the ranks of ``process_set`` divide the norms. "auto" measures both ways in the
    first steps and takes the faster one; the results have the same bits (docs/techniques/pto.md).

    Source: You et al., "Large batch optimization for deep learning: training BERT in 76 minutes"
    (arXiv 1904.00962), algorithm 2.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        bias_correction: bool = True,
        clamp: tuple[float, float] = (0.0, math.inf),
        *,
        adapt: bool = True,
        foreach: bool | None = None,
        distributed_norms: str | bool = "auto",
        process_set: ProcessSet = global_process_set,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "bias_correction": bias_correction,
            "clamp": clamp,
            "adapt": adapt,
            "foreach": foreach,
        }
        super().__init__(params, defaults, distributed_norms, process_set)

    def _check_group(self, group: Group) -> None:
        for beta in group["betas"]:
            check_fraction("a beta", beta)
        low, high = group["clamp"]
        if not 0.0 <= low <= high:
            raise ValueError(f"clamp is {group['clamp']!r}, but must be (low, high) with 0 <= low <= high")

    def _directions(self, group: Group, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
        gradients = _gradients(parameters)
        states = [self._state(parameter) for parameter in parameters]
        beta1, beta2 = group["betas"]
        updates = list(torch._foreach_lerp([state["exp_avg"] for state in states], gradients, 1.0 - beta1))
        lengths = list(torch._foreach_mul([state["exp_avg_sq"] for state in states], beta2))
        torch._foreach_addcmul_(lengths, gradients, gradients, 1.0 - beta2)
        torch._foreach_sqrt_(lengths)
        if group["bias_correction"]:
            steps = [state["step"].item() + 1 for state in states]
            torch._foreach_div_(lengths, [math.sqrt(1.0 - beta2**step) for step in steps])
            torch._foreach_div_(updates, [1.0 - beta1**step for step in steps])
        torch._foreach_add_(lengths, group["eps"])
        torch._foreach_div_(updates, lengths)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        return updates

    def _state(self, parameter: torch.Tensor) -> dict[str, Any]:
        """Returns the parameter's state. A new one does not become part of the optimizer here."""
        state: dict[str, Any] = self.state.get(parameter, {})
        return state or {
            "step": torch.zeros((), dtype=torch.float32, device="cpu"),
            "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
            "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
        }

    def _ratios(self, group: Group, weights: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
        return weights.clamp(*group["clamp"]) / directions

    def _apply(
        self,
        group: Group,
        parameters: list[torch.Tensor],
        directions: list[torch.Tensor],
        ratios: list[float],
    ) -> None:
        self._take_gradients(group, parameters)
        rate = float(group["lr"])
        torch._foreach_mul_(directions, [-rate * ratio for ratio in ratios])
        torch._foreach_add_(parameters, directions)

    def _take_gradients(self, group: Group, parameters: list[torch.Tensor]) -> None:
        """Adds the gradients to the moments. It comes after all that can fail, so that a step fails whole."""
        gradients = _gradients(parameters)
        for parameter in parameters:
            self.state[parameter] = self._state(parameter)
        states = [self.state[parameter] for parameter in parameters]
        first, second = ([state[key] for state in states] for key in ("exp_avg", "exp_avg_sq"))
        beta1, beta2 = group["betas"]
        torch._foreach_add_([state["step"] for state in states], 1.0)
        torch._foreach_lerp_(first, gradients, 1.0 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1.0 - beta2)


def _gradients(parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]
