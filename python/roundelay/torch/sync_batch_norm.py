"""Normalises over the batches of all ranks together."""

from __future__ import annotations

from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from roundelay.torch._internal.operations import Sum, allreduce_, allreduce_async_, synchronize
from roundelay.torch._internal.operations.common import Call
from roundelay.torch.process_sets import ProcessSet, global_process_set

__all__ = ["SyncBatchNorm"]


class SyncBatchNorm(_BatchNorm):
    """Works like torch's BatchNorm1d, 2d and 3d, with the statistics of all ranks' batches as one batch.

    Forward, backward and running statistics are those of a single process that has the whole batch; ranks may
    have batches of different sizes, also empty ones. Gradients of ``weight`` and ``bias`` are each rank's
    share, for the optimizer to reduce like any other. Input: (N, C, ...) on every rank of ``process_set``;
    fp16 and bf16 get their statistics in fp32. Collective while training, and in evaluation too if
    ``track_running_stats`` is False. ValueError for an input without these channels (the others then raise
    HorovodInternalError), and on all ranks if they have only one value per channel in all.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input: torch.Tensor) -> None:  # noqa: A002
        if input.dim() < 2:
            raise ValueError(f"an input of at least 2 dimensions is needed, not {input.dim()}")
        if input.size(1) != self.num_features:
            raise ValueError(f"the input has {input.size(1)} channels, but num_features={self.num_features}")
        if input.is_complex():
            raise ValueError(f"the input is {input.dtype}, which batch normalisation does not take")

    # The compiler must not trace collective calls. torch.compiler.disable would load the compiler now.
    @_disable_dynamo
    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  as torch names it
        """Returns the normalised input, with the same shape, dtype and layout."""
        if not self.training and self.running_mean is not None:
            return super().forward(input)
        if self.process_set.included() and self.process_set.size() == 1:
            return super().forward(input)
        with Call("allreduce", _name("mean"), self.process_set) as call:
            call.check_tensor(input)
            self._check_input_dim(input)
        mean, variance, count = _statistics(input.detach(), self.process_set)
        if self.training and self.running_mean is not None:
            self._track(mean, variance, count)
        normalised: torch.Tensor = _Normalize.apply(  # type: ignore[no-untyped-call]
            input, self.weight, self.bias, mean, variance, count, self.eps, self.process_set
        )
        return normalised

    @torch.no_grad()
    def _track(self, mean: torch.Tensor, variance: torch.Tensor, count: int) -> None:
        """Moves the running statistics towards this batch's, as torch does: with the unbiased variance."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        if count == 0:
            return
        share = self.num_batches_tracked.double().reciprocal() if self.momentum is None else self.momentum
        unbiased = variance * (count / (count - 1))
        for running, new in ((self.running_mean, mean), (self.running_var, unbiased)):
            running.copy_((1.0 - share) * running.to(new.dtype) + share * new)

    @classmethod
    def convert_sync_batchnorm(
        cls, module: torch.nn.Module, process_set: ProcessSet = global_process_set
    ) -> torch.nn.Module:
        """Replaces each batch normalisation in ``module`` by one over ``process_set``; returns the module.

        Parameters and buffers stay the same objects, so that optimizers made before go on working. A module
        that is used twice is replaced by one that is used twice. If ``module`` itself is a batch
        normalisation, the result is a new module. ValueError for a lazy one that has seen no batch, and for
        one whose weight or bias is computed, as after pruning.
        """
        return cls._converted(module, process_set, {})

    @classmethod
    def _converted(
        cls, module: torch.nn.Module, process_set: ProcessSet, done: dict[torch.nn.Module, torch.nn.Module]
    ) -> torch.nn.Module:
        if module in done:
            return done[module]
        done[module] = module
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            done[module] = cls._from(module, process_set)
        for name, child in list(module._modules.items()):
            if child is not None:
                done[module]._modules[name] = cls._converted(child, process_set, done)
        return done[module]

    @classmethod
    def _from(cls, module: _BatchNorm, process_set: ProcessSet) -> SyncBatchNorm:
        if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
            raise ValueError(
                "a lazy batch normalisation has no size yet: run a batch through the model first"
            )
        for name in ("weight", "bias"):
            if module.affine and name not in module._parameters:
                raise ValueError(
                    f"the {name} of a batch normalisation is computed, as after pruning: convert the model "
                    "first, and prune or parametrise it then"
                )
        made = cls(
            module.num_features,
            module.eps,
            module.momentum,
            affine=False,
            track_running_stats=False,
            process_set=process_set,
        )
        made.affine, made.track_running_stats = module.affine, module.track_running_stats
        made._parameters.update(module._parameters)
        made._buffers.update(module._buffers)
        return made.train(module.training)


def _per_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Returns a (C,) tensor as (1, C, 1, ...)."""
    return values.view(1, -1, *[1] * (like.dim() - 2))


def _statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _name(step: str) -> str:
    return f"sync_batch_norm.{step}"


def _total(values: torch.Tensor, step: str, process_set: ProcessSet) -> torch.Tensor:
    """Sums fp64 values over the ranks, in place."""
    return allreduce_(values, op=Sum, name=_name(step), process_set=process_set)


def _total_and_count(
    values: torch.Tensor, counted: torch.Tensor, count: int, process_set: ProcessSet
) -> tuple[torch.Tensor, int]:
    """Sums the variance's values and the count over all ranks.

    ``counted`` has the count already, but maybe on a GPU. The host does not wait for a GPU: it sums the
    ranks' counts itself.
    """
    if counted.device.type == "cpu":
        return _total(values, "variance", process_set), int(counted)
    counts = torch.tensor([count], dtype=torch.float64, device="cpu")
    handle = allreduce_async_(counts, op=Sum, name=_name("count"), process_set=process_set)
    try:
        values = _total(values, "variance", process_set)
    finally:
        synchronize(handle)
    return values, int(counts)


@torch.no_grad()
def _statistics(values: torch.Tensor, process_set: ProcessSet) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Returns mean and (biased) variance of each channel, and the number of values, over all ranks.

    Each rank's mean m_r and sum of squared deviations M_r come from torch's stable one-pass formula. Then
    mean = sum n_r m_r / n, and the deviations around it sum up to M_r + n_r (m_r - mean)^2 over the ranks:
    only terms that are not negative, so nothing cancels, as it would in E[x^2] - E[x]^2. The price is a
    second small allreduce, as the mean must be there first.
    """
    dtype = _statistics_dtype(values.dtype)
    dims = [0, *range(2, values.dim())]
    count = values.numel() // values.size(1) if values.size(1) else 0
    if count:
        variance, mean = torch.var_mean(values.to(dtype), dims, correction=0)
        mean, variance = mean.double(), variance.double()
    else:
        mean = variance = torch.zeros(values.size(1), dtype=torch.float64, device=values.device)
    sums = _total(torch.cat([mean * count, mean.new_full((1,), count)]), "mean", process_set)
    whole_mean = sums[:-1] / sums[-1:].clamp(min=1)
    deviations = variance * count + (mean - whole_mean).square() * count
    deviations, total = _total_and_count(deviations, sums[-1:], count, process_set)
    if total == 1:
        raise ValueError(
            "batch normalisation needs more than 1 value per channel to train, but all ranks have 1 together"
        )
    whole_variance = deviations / max(total, 1)
    return whole_mean.to(dtype), whole_variance.to(dtype), total


class _Normalize(torch.autograd.Function):
    """Computes (x - mean) / sqrt(variance + eps) * weight + bias; mean, variance depend on all ranks' x."""

    @staticmethod
    def forward(
        ctx: Any,
        values: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        mean: torch.Tensor,
        variance: torch.Tensor,
        count: int,
        eps: float,
        process_set: ProcessSet,
    ) -> torch.Tensor:
        scale = torch.rsqrt(variance + eps)
        ctx.save_for_backward(values, weight, mean, scale)
        ctx.count, ctx.process_set, ctx.has_bias = count, process_set, bias is not None
        if values.dtype in (torch.float16, torch.bfloat16):  # torch mixes halves only with fp32 parameters
            weight = None if weight is None else weight.float()
            bias = None if bias is None else bias.float()
        return torch.nn.functional.batch_norm(values, mean, variance, weight, bias, False, 0.0, eps)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        values, weight, mean, scale = ctx.saved_tensors
        dims = [0, *range(2, values.dim())]
        dy = gradient.to(mean.dtype)
        normalised = (values.to(mean.dtype) - _per_channel(mean, values)) * _per_channel(scale, values)
        bias_gradient = dy.sum(dims)
        weight_gradient = (dy * normalised).sum(dims)
        input_gradient = None
        if ctx.needs_input_grad[0]:
            sums = torch.cat([bias_gradient, weight_gradient]).double()
            means = (_total(sums, "gradient", ctx.process_set) / max(ctx.count, 1)).to(mean.dtype)
            mean_dy, mean_dy_normalised = means.chunk(2)
            factor = scale if weight is None else scale * weight.to(scale.dtype)
            dy = dy - _per_channel(mean_dy, values) - normalised * _per_channel(mean_dy_normalised, values)
            input_gradient = (dy * _per_channel(factor, values)).to(values.dtype)
        if weight is None:
            return input_gradient, None, None, None, None, None, None, None
        shift_gradient = bias_gradient.to(weight.dtype) if ctx.has_bias else None
        return input_gradient, weight_gradient.to(weight.dtype), shift_gradient, *[None] * 5
