"""SyncBatchNorm on several ranks against torch's BatchNorm on the whole batch."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.utils.prune

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check
from roundelay.torch.sync_batch_norm import SyncBatchNorm

TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}
SHAPES = {1: (7,), 2: (3, 2), 3: (2, 3, 2)}  # behind the channels
CHANNELS = 5


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_sync_batch_norm(np: int, check: Check) -> None:
    run_check(check, np)


def _plain(dims: int, **arguments: Any) -> torch.nn.Module:
    kinds = (torch.nn.BatchNorm1d, torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)
    made = kinds[dims](CHANNELS, **arguments)
    for parameter in made.parameters():
        torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return made


def _batches() -> Iterator[list[int]]:
    """How many samples each rank has: alike, all different, and one rank with none."""
    size = hvd.size()
    yield [4] * size
    yield [2 + 3 * rank for rank in range(size)]
    if size > 1:
        yield [0 if rank == 1 else 3 for rank in range(size)]


def _own(whole: torch.Tensor, batches: list[int]) -> torch.Tensor:
    begin = sum(batches[: hvd.rank()])
    return whole[begin : begin + batches[hvd.rank()]].clone()


def _total(tensor: torch.Tensor) -> torch.Tensor:
    return hvd.allreduce(tensor.double(), op=hvd.Sum, name="test.total")


def _compare(
    plain: torch.nn.Module,
    synced: torch.nn.Module,
    batches: list[int],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    channels_last: bool = False,
) -> None:
    """One step forward and backward of both; the values is far from zero, where naive sums cancel."""

    def close(mine: torch.Tensor, whole: torch.Tensor) -> None:
        tolerance = TOLERANCES[dtype]
        torch.testing.assert_close(mine.double(), whole.double(), rtol=tolerance, atol=tolerance)

    whole = (torch.randn(sum(batches), CHANNELS, *shape, dtype=torch.float64) * 2 + 10).to(dtype)
    slope = torch.randn_like(whole)
    mine = _own(whole, batches)
    if channels_last:
        mine = mine.contiguous(memory_format=torch.channels_last)
    whole.requires_grad_()
    mine.requires_grad_()
    expected, output = plain(whole), synced(mine)
    assert output.dtype == expected.dtype
    assert output.stride() == mine.stride()
    close(output, _own(expected.detach(), batches))
    expected.backward(slope)
    output.backward(_own(slope, batches))
    assert mine.grad is not None
    assert whole.grad is not None
    assert mine.grad.dtype == dtype
    close(mine.grad, _own(whole.grad, batches))
    for one, other in zip(synced.parameters(), plain.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(
            _total(one.grad), other.grad.double(), rtol=TOLERANCES[dtype], atol=10 * TOLERANCES[dtype]
        )
    for (name, buffer), (_, expected) in zip(synced.named_buffers(), plain.named_buffers(), strict=True):
        assert buffer.dtype == expected.dtype, name
        close(buffer, expected)


def _pair(dims: int, **arguments: Any) -> tuple[torch.nn.Module, torch.nn.Module]:
    plain = _plain(dims, **arguments)
    return plain, SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain))


def check_every_form_is_the_whole_batch() -> None:
    forms: list[dict[str, Any]] = [{}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}]
    for dims, arguments in itertools.product(range(4), forms):
        shape = SHAPES.get(dims, ())
        for batches in _batches():
            plain, synced = _pair(dims, dtype=torch.float64, **arguments)
            for _ in range(2):
                _compare(plain, synced, batches, shape, torch.float64)


def check_lower_precision_has_statistics_in_fp32() -> None:
    for dtype, parameters in itertools.product(
        (torch.float32, torch.bfloat16, torch.float16), (torch.float32, None)
    ):
        for batches in _batches():
            plain, synced = _pair(2, dtype=parameters or dtype)
            _compare(plain, synced, batches, SHAPES[2], dtype)


def check_channels_last_stays() -> None:
    plain, synced = _pair(2, dtype=torch.float64)
    _compare(plain, synced, [3] * hvd.size(), SHAPES[2], torch.float64, channels_last=True)


def check_a_constant_far_from_zero_has_no_variance() -> None:
    synced = SyncBatchNorm(2, momentum=1.0)
    synced(torch.full((4, 2), 3e4))
    assert synced.running_mean is not None
    assert synced.running_var is not None
    assert synced.running_mean.tolist() == [3e4] * 2
    assert synced.running_var.tolist() == [0.0] * 2


def check_evaluation_needs_no_other_rank() -> None:
    plain, synced = _pair(2, dtype=torch.float64)
    for batches in _batches():
        _compare(plain, synced, batches, SHAPES[2], torch.float64)
    plain.eval()
    synced.eval()
    if hvd.rank() == 0:
        values = torch.randn(3, CHANNELS, 2, 2, dtype=torch.float64)
        torch.testing.assert_close(synced(values), plain(values), rtol=1e-12, atol=1e-12)


def check_without_running_statistics_evaluation_is_of_all_ranks_too() -> None:
    plain, synced = _pair(1, dtype=torch.float64, track_running_stats=False)
    plain.eval()
    synced.eval()
    _compare(plain, synced, [2] * hvd.size(), SHAPES[1], torch.float64)


def check_an_input_that_needs_no_gradient() -> None:
    plain, synced = _pair(1, dtype=torch.float64)
    whole = torch.randn(2 * hvd.size(), CHANNELS, 7, dtype=torch.float64)
    plain(whole).square().sum().backward()
    synced(_own(whole, [2] * hvd.size())).square().sum().backward()
    for one, other in zip(synced.parameters(), plain.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(_total(one.grad), other.grad, rtol=1e-12, atol=1e-11)


def check_all_ranks_empty() -> None:
    synced = SyncBatchNorm(3)
    values = torch.empty(0, 3, requires_grad=True)
    output = synced(values)
    output.sum().backward()
    assert output.shape == (0, 3)
    assert synced.running_mean is not None
    assert synced.running_var is not None
    assert synced.running_mean.tolist() == [0.0] * 3
    assert synced.running_var.tolist() == [1.0] * 3


def check_one_value_in_all_is_an_error_everywhere() -> None:
    synced = SyncBatchNorm(3)
    count = 1 if hvd.rank() == hvd.size() - 1 else 0
    if hvd.size() > 1:
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            synced(torch.ones(count, 3))
    else:
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            synced(torch.ones(1, 3))
    for wrong, complaint in ((torch.ones(3), "2 dimensions"), (torch.ones(2, 4), "4 channels")):
        with pytest.raises(ValueError, match=complaint):
            synced(wrong)


def check_conversion() -> None:
    shared, asleep = torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4).eval()
    inner = torch.nn.Sequential(asleep)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), shared, torch.nn.ReLU(), shared, inner)
    names = list(model.state_dict())
    parameters = [id(parameter) for parameter in model.parameters()]
    converted = SyncBatchNorm.convert_sync_batchnorm(model)
    assert converted is model
    assert isinstance(model[1], SyncBatchNorm)
    assert model[1] is model[3]
    assert list(model.state_dict()) == names
    assert [id(parameter) for parameter in model.parameters()] == parameters
    assert model[1].training
    assert isinstance(inner[0], SyncBatchNorm)
    assert not inner[0].training
    once = model[1]
    SyncBatchNorm.convert_sync_batchnorm(model)
    assert model[1] is once
    with pytest.raises(ValueError, match="lazy"):
        SyncBatchNorm.convert_sync_batchnorm(torch.nn.LazyBatchNorm1d())


def check_conversion_of_a_computed_weight_is_refused() -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4))
    torch.nn.utils.prune.l1_unstructured(model[0], "weight", 1)
    with pytest.raises(ValueError, match="convert the model first, and prune"):
        SyncBatchNorm.convert_sync_batchnorm(model)
    assert type(model[0]) is torch.nn.BatchNorm1d


def check_without_a_bias() -> None:
    plain = torch.nn.BatchNorm1d(CHANNELS)
    plain.register_parameter("bias", None)  # as bias=False of later versions does
    synced = SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain))
    whole = torch.randn(3 * hvd.size(), CHANNELS)
    plain(whole).square().sum().backward()
    synced(_own(whole, [3] * hvd.size())).square().sum().backward()
    ours = next(synced.parameters()).grad
    assert ours is not None
    torch.testing.assert_close(hvd.allreduce(ours, op=hvd.Sum), plain.weight.grad)


def check_in_a_compiled_model() -> None:
    plain, synced = _pair(1, dtype=torch.float64)
    synced.compile(backend="eager")
    _compare(plain, synced, [3] * hvd.size(), SHAPES[1], torch.float64)


def check_a_step_of_training_is_the_step_of_one_process() -> None:
    torch.manual_seed(0)
    plain = torch.nn.Sequential(
        torch.nn.Conv2d(2, CHANNELS, 3), torch.nn.BatchNorm2d(CHANNELS), torch.nn.Conv2d(CHANNELS, 1, 3)
    ).double()
    synced = SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain))
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (plain, synced)]
    hvd.DistributedOptimizer(optimizers[1], named_parameters=synced.named_parameters())
    whole = torch.randn(3 * hvd.size(), 2, 6, 6, dtype=torch.float64)
    for _ in range(3):
        for model, optimizer, batch in (
            (plain, optimizers[0], whole),
            (synced, optimizers[1], _own(whole, [3] * hvd.size())),
        ):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    for one, other in zip(synced.state_dict().values(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


@needs_ranks(2)
def check_a_wrong_input_on_one_rank_is_an_error_on_all() -> None:
    synced = SyncBatchNorm(CHANNELS)
    for wrong, text in ((torch.ones(4), "at least 2 dimensions"), (torch.ones(4, 3), "3 channels")):
        with pytest.raises(ValueError if hvd.rank() == 1 else hvd.HorovodInternalError, match=text):
            synced(wrong if hvd.rank() == 1 else torch.ones(4, CHANNELS))
    assert synced(torch.ones(4, CHANNELS)).abs().max().item() == 0.0
    with pytest.raises(ValueError, match="3 channels"):
        SyncBatchNorm(CHANNELS).eval()(torch.ones(4, 3))
