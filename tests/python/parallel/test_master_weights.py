"""fp32 masters of half parameters on several ranks: how gradients are rounded, and that ranks stay equal."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check, two_by_two
from roundelay.errors import MismatchError
from roundelay.torch._internal.optimizer.distributed import wrapper_of
from roundelay.torch._internal.optimizer.join_context import join_context
from some_ranks import all_but_the_last, process_set_of
from technique_libraries import CYCLIC

HALVES = (torch.bfloat16, torch.float16)
POOL_FROM = 3  # the step from which gradients lie in a pool


@pytest.mark.parametrize("np", [2, 4])
def test_master_weights(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.nightly
def test_master_weights_on_two_nodes(check: Check) -> None:
    run_check(check, 4, each=two_by_two(), mpi=False)


def _half(dtype: torch.dtype, count: int) -> torch.nn.Parameter:
    torch.manual_seed(0)
    return torch.nn.Parameter(torch.randn(count).to(dtype))


def _gradients(dtype: torch.dtype, count: int, step: int) -> list[torch.Tensor]:
    """The gradients of all ranks in a step."""
    torch.manual_seed(step)
    return [torch.randn(count).to(dtype) for _ in range(hvd.size())]


def _wrapped(parameters: list[torch.nn.Parameter], **arguments: Any) -> torch.optim.SGD:
    arguments = {"op": hvd.Average, "master_weights": True, **arguments}
    return hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0, momentum=0.5), **arguments)


def _masters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _assert_equal_on_all_ranks(*tensors: torch.Tensor) -> None:
    for tensor in tensors:
        for op in (hvd.Min, hvd.Max):
            assert torch.equal(hvd.allreduce(tensor.detach(), op=op), tensor)


def _backward(parameter: torch.nn.Parameter, gradient: torch.Tensor) -> None:
    """The parameter's gradient is ``gradient``, to the last bit."""
    (parameter * gradient).sum().backward()


def _ulp(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance of neighbouring numbers of a half type at these values."""
    info = torch.finfo(dtype)
    magnitude = values.abs().clamp(min=info.tiny).double()
    return torch.exp2(magnitude.log2().floor()) * info.eps


def check_a_gradient_is_rounded_once_in_a_node() -> None:
    """By half an ulp of its half type. Between nodes each node's part of the average is rounded, too."""
    for dtype in HALVES:
        parameter = _half(dtype, 1000)
        optimizer = _wrapped([parameter])
        (master,) = _masters(optimizer)
        for step in range(POOL_FROM + 2):
            every = _gradients(dtype, 1000, step)
            optimizer.zero_grad()
            _backward(parameter, every[hvd.rank()])
            assert master.grad is not None
            assert master.grad.dtype == torch.float32
            assert torch.equal(master.grad.to(dtype).float(), master.grad), "it travelled in its half type"
            exact = torch.stack(every).double().mean(0)
            allowed = 0.5001 * _ulp(exact, dtype)
            if hvd.cross_size() > 1:
                local = hvd.local_size()
                nodes = [torch.stack(every[n : n + local]).double() for n in range(0, hvd.size(), local)]
                allowed += sum(0.5001 * _ulp(node.sum(0) / hvd.size(), dtype) for node in nodes)
                allowed *= 1.01  # the final sum may lie in the next binade
            assert ((master.grad.double() - exact).abs() <= allowed).all(), (dtype, step)
            _assert_equal_on_all_ranks(master.grad)
            optimizer.step()
            _assert_equal_on_all_ranks(master, parameter)
        wrapper = wrapper_of(optimizer)
        assert wrapper is not None
        assert wrapper.buckets() > 0 or hvd.size() == 1


class _OneProcess:
    """Half weights, fp32 masters and all ranks' batches in one process of plain PyTorch."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = copy.deepcopy(model)
        self.masters = [torch.nn.Parameter(p.detach().float()) for p in self.model.parameters()]
        self.optimizer = torch.optim.SGD(self.masters, lr=0.0625, momentum=0.5)

    def step(self, batches: list[torch.Tensor], rounded: bool) -> None:
        parts: list[list[torch.Tensor]] = [[] for _ in self.masters]
        for batch in batches:
            self.model.zero_grad()
            self.model(batch).float().square().mean().backward()
            for part, parameter in zip(parts, self.model.parameters(), strict=True):
                assert parameter.grad is not None
                part.append(parameter.grad.float())
        for master, part, parameter in zip(self.masters, parts, self.model.parameters(), strict=True):
            mean = torch.stack(part).double().mean(0)
            master.grad = (mean.to(parameter.dtype) if rounded else mean).float()
        self.optimizer.step()
        with torch.no_grad():
            for parameter, master in zip(self.model.parameters(), self.masters, strict=True):
                parameter.copy_(master)


def check_training_is_that_of_one_process() -> None:
    """With gradients rounded once to half: bit for bit on a node. With exact ones: weights within an ulp."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)).bfloat16()
    rounding, exact = _OneProcess(model), _OneProcess(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0625, momentum=0.5)
    hvd.DistributedOptimizer(optimizer, model.named_parameters(), master_weights=True)
    for _ in range(POOL_FROM + 3):
        batches = [torch.randn(8, 6).bfloat16() for _ in range(hvd.size())]
        optimizer.zero_grad()
        model(batches[hvd.rank()]).float().square().mean().backward()
        optimizer.step()
        rounding.step(batches, rounded=True)
        exact.step(batches, rounded=False)
    for parameter, master, ours, theirs, far in zip(
        model.parameters(),
        _masters(optimizer),
        rounding.masters,
        exact.model.parameters(),
        exact.masters,
        strict=True,
    ):
        if hvd.cross_size() == 1:
            assert torch.equal(master, ours)
        assert torch.equal(parameter, master.bfloat16())
        assert ((parameter - theirs).abs() <= 1.01 * _ulp(theirs.detach(), torch.bfloat16)).all()
        torch.testing.assert_close(master, far, rtol=2**-8, atol=2**-9)
        _assert_equal_on_all_ranks(parameter, master)


def check_small_steps_add_up() -> None:
    """Each is a quarter of the parameter's last bit. Without masters none would count."""
    parameter = torch.nn.Parameter(torch.ones(5, dtype=torch.bfloat16))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=2.0**-9), master_weights=True)
    for _ in range(8):
        optimizer.zero_grad()
        _backward(parameter, torch.full((5,), -1.0, dtype=torch.bfloat16))
        optimizer.step()
    assert torch.equal(parameter, torch.full((5,), 1.0 + 2.0**-6).bfloat16())


def check_a_model_that_becomes_half_after_wrapping() -> None:
    parameter = torch.nn.Parameter(torch.ones(5))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=2.0**-9), master_weights=True)
    parameter.data = parameter.data.bfloat16()
    for _ in range(8):
        optimizer.zero_grad()
        _backward(parameter, torch.full((5,), -1.0, dtype=torch.bfloat16))
        optimizer.step()
    assert torch.equal(parameter, torch.full((5,), 1.0 + 2.0**-6).bfloat16())


def check_fp16_overflows_only_where_the_average_does() -> None:
    parameter = _half(torch.float16, 4)
    optimizer = _wrapped([parameter])
    _backward(parameter, torch.full((4,), 60000.0, dtype=torch.float16))
    (master,) = _masters(optimizer)
    assert master.grad is not None
    assert master.grad.tolist() == [60000.0 - 60000.0 % 32] * 4


def check_scaling_skips_on_all_ranks() -> None:
    parameter, other = _half(torch.float16, 3), _half(torch.float16, 3)
    optimizer = _wrapped([parameter, other], op=hvd.Sum)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    start = [m.clone() for m in _masters(optimizer)]
    for bad_rank in (None, hvd.size() - 1, 0, None):
        optimizer.zero_grad()
        value = float("inf") if hvd.rank() == bad_rank else 1.0
        scaler.scale((parameter * value).sum() + other.sum()).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(_masters(optimizer), 0.5)
        before = [m.clone() for m in _masters(optimizer)]
        scaler.step(optimizer)
        scaler.update()
        moved = any(not torch.equal(m, old) for m, old in zip(_masters(optimizer), before, strict=True))
        assert moved == (bad_rank is None)
        _assert_equal_on_all_ranks(*_masters(optimizer))
    assert scaler.get_scale() == 4.0
    assert not torch.equal(_masters(optimizer)[0], start[0])


def check_accumulation_and_no_sync() -> None:
    for passes in (1, 2):
        parameter = _half(torch.bfloat16, 3)
        optimizer: Any = _wrapped([parameter], op=hvd.Sum, backward_passes_per_step=passes)
        (master,) = _masters(optimizer)
        for _ in range(POOL_FROM + 1):
            optimizer.zero_grad()
            with optimizer.no_sync():
                _backward(parameter, torch.full((3,), hvd.rank() + 1.0).bfloat16())
            for _ in range(2):
                _backward(parameter, torch.full((3,), 2.0).bfloat16())
            optimizer.step()
            assert master.grad is not None
            expected = sum(range(1, hvd.size() + 1)) + 4.0 * hvd.size()
            assert master.grad.tolist() == [expected] * 3


def check_parameters_that_some_ranks_do_not_use() -> None:
    used, seldom, never = (_half(torch.bfloat16, 3) for _ in range(3))
    optimizer = _wrapped([used, seldom, never], op=hvd.Sum)
    one = torch.ones(3).bfloat16()
    for step in range(POOL_FROM + 3):
        if step % 2 == 0:
            optimizer.zero_grad(set_to_none=step % 4 == 0)
        # Without zero_grad() other ranks contribute their `.grad` as it is; the pool writes the result there.
        loss = (used * one).sum() + ((seldom * one).sum() if hvd.rank() == 0 else 0.0)
        loss.backward()
        optimizer.step()
        gradients = [m.grad for m in _masters(optimizer)]
        for parameter, gradient in zip((used, seldom, never), gradients, strict=True):
            if gradient is None or parameter.grad is None:
                assert gradient is parameter.grad
            else:
                assert torch.equal(parameter.grad.float(), gradient)
        assert (gradients[1] is None) == (gradients[0] is None)
        assert gradients[2] is None
        _assert_equal_on_all_ranks(used, seldom, never, *_masters(optimizer))


def check_a_held_gradient_does_not_move_out() -> None:
    """The masters look at the pool's gradients, but hold none of them."""
    parameter = _half(torch.bfloat16, 100)
    optimizer = _wrapped([parameter])
    moved = 0
    for step in range(POOL_FROM + 4):
        if step == POOL_FROM + 1:
            moved = hvd.stats()["gradients_moved_out"]
        optimizer.zero_grad()
        _backward(parameter, torch.ones(100).bfloat16())
        optimizer.step()
    assert hvd.stats()["gradients_moved_out"] == moved


def check_broadcasts_and_checkpoints() -> None:
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(4, 3).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    hvd.DistributedOptimizer(optimizer, model.named_parameters(), master_weights=True)
    hvd.broadcast_parameters(model.state_dict(), 0)
    model(torch.ones(2, 4).bfloat16()).sum().backward()
    optimizer.step()
    _assert_equal_on_all_ranks(*model.parameters(), *_masters(optimizer))
    if hvd.rank() == 0:  # the root alone has a checkpoint
        for _ in range(3):
            with optimizer.no_sync():  # type: ignore[attr-defined]
                model(torch.ones(2, 4).bfloat16()).sum().backward()
            with optimizer.skip_synchronize():  # type: ignore[attr-defined]
                optimizer.step()
            optimizer.zero_grad()
        state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        model.load_state_dict(state[0])
        optimizer.load_state_dict(state[1])
    optimizer.zero_grad()
    hvd.broadcast_parameters(model.state_dict(), 0)
    hvd.broadcast_optimizer_state(optimizer, 0)
    exact = _masters(optimizer)
    _assert_equal_on_all_ranks(*model.parameters(), *exact)
    assert any(not torch.equal(m.bfloat16().float(), m) for m in exact)
    for master in exact:
        _assert_equal_on_all_ranks(optimizer.state[master]["exp_avg"])
    model(torch.ones(2, 4).bfloat16()).sum().backward()
    optimizer.step()
    _assert_equal_on_all_ranks(*model.parameters(), *_masters(optimizer))


def check_uneven_data() -> None:
    parameter = _half(torch.bfloat16, 3)
    optimizer = _wrapped([parameter], op=hvd.Sum)
    for _ in range(2):
        with join_context(optimizer) as context:
            for _ in range(hvd.rank() + 1):
                optimizer.zero_grad()
                _backward(parameter, torch.full((3,), 0.3).bfloat16())
                optimizer.step()
        assert context.last_rank is not None
        hvd.broadcast_parameters({"parameter": parameter.detach()}, context.last_rank)
        hvd.broadcast_optimizer_state(optimizer, context.last_rank)
        _assert_equal_on_all_ranks(parameter, *_masters(optimizer))


def check_gradients_travel_in_half() -> None:
    parameter = _half(torch.bfloat16, 100_000)
    optimizer = _wrapped([parameter])
    for step in range(POOL_FROM + 2):
        optimizer.zero_grad()
        before = hvd.stats()["bytes"]
        _backward(parameter, torch.ones(100_000).bfloat16())
        sent = hvd.stats()["bytes"] - before
        optimizer.step()
        assert hvd.size() == 1 or 200_000 <= sent < 210_000, (step, sent)


def check_wrapping_again_goes_on_with_the_masters() -> None:
    parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer: Any = torch.optim.SGD([parameter], lr=2.0**-10)
    for life in range(3):
        hvd.DistributedOptimizer(optimizer, op=hvd.Sum, master_weights=True)
        optimizer.set_backward_passes_per_step(life + 1)
        for _ in range(POOL_FROM + 1):
            optimizer.zero_grad()
            for _ in range(life + 1):
                _backward(parameter, torch.ones(3).bfloat16())
            optimizer.step()
        optimizer.set_backward_passes_per_step(1)  # as the next wrapping says
    moves = (1 + 2 + 3) * (POOL_FROM + 1) * hvd.size()
    assert _masters(optimizer)[0].tolist() == [1.0 - moves * 2.0**-10] * 3


def check_adasum_combines_the_masters_steps() -> None:
    parameter = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    plain = torch.optim.SGD([parameter], lr=2.0**-10)
    optimizer = hvd.DistributedOptimizer(plain, op=hvd.Adasum, master_weights=True)
    (master,) = _masters(optimizer)
    for step in range(1, 9):
        optimizer.zero_grad()
        parameter[hvd.rank()].backward()  # steps at right angles are added
        optimizer.step()
        assert master.tolist() == [1.0 - step * 2.0**-10 * (index < hvd.size()) for index in range(4)]
    assert torch.equal(parameter, master.bfloat16())


def check_a_technique() -> None:
    """What it keeps back is in the half type, and arrives in a later step."""
    parameter = torch.nn.Parameter(torch.zeros(64, dtype=torch.bfloat16))
    plain = torch.optim.SGD([parameter], lr=1.0)
    optimizer = hvd.DistributedOptimizer(plain, op=hvd.Sum, strategy=f"{CYCLIC}:parts=2", master_weights=True)
    steps = POOL_FROM + 4
    for step in range(steps):
        if step == steps - 1:
            hvd.strategies.of(optimizer).flush()
        optimizer.zero_grad()
        _backward(parameter, torch.ones(64).bfloat16())
        optimizer.step()
    assert torch.equal(_masters(optimizer)[0], torch.full((64,), -1.0 * steps * hvd.size()))


def check_a_rank_outside_the_set_keeps_its_own() -> None:
    ranks = all_but_the_last()
    parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    plain = torch.optim.SGD([parameter], lr=2.0**-10)
    with process_set_of(ranks) as some:
        optimizer = hvd.DistributedOptimizer(plain, process_set=some, op=hvd.Sum, master_weights=True)
        _backward(parameter, torch.ones(3).bfloat16())
        optimizer.step()
    number = len(ranks) if hvd.rank() in ranks else 1
    assert _masters(optimizer)[0].tolist() == [1.0 - number * 2.0**-10] * 3


@needs_ranks(2)
def check_ranks_that_differ() -> None:
    parameter = _half(torch.bfloat16, 3)
    plain = torch.optim.SGD([parameter], lr=1.0)
    optimizer = hvd.DistributedOptimizer(plain, master_weights=hvd.rank() == 1)
    for _ in range(2):
        with pytest.raises(MismatchError, match="rank 1 has True, rank 0 False: give Distrib"):
            _backward(parameter, torch.ones(3).bfloat16())
        optimizer.zero_grad()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
