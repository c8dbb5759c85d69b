"""Hooks of DDP average gradients by strategies: nothing is lost, and nothing arrives twice."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import roundelay.torch as hvd
from against_gloo import Turned
from linear_loss import Ledger, coefficients
from process_groups import world
from ranks import Check, needs_ranks, run_check, two_by_two
from roundelay import _core
from roundelay.torch import ddp

CSC = "csc:keep=0.3,chunk_elements=16,dense_below=200"
TOPK = "topk:density=0.1,dense_below=200"
POWER_SGD = "power_sgd:rank=1,dense_below=200"
KEEPING = [CSC, TOPK, POWER_SGD]
ALL = ["dense", "dense:wire=bf16", "dense:wire=fp16", *KEEPING]
WIDTH, STEPS = 64, 6


@pytest.mark.parametrize("np", [2])
def test_one_node(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.slow
@pytest.mark.parametrize("np", [4])
def test_two_nodes(np: int, check: Check) -> None:
    run_check(check, np, each=two_by_two(), mpi=False)


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh(), nn.Linear(WIDTH, WIDTH, bias=False))


def batch(step: int) -> torch.Tensor:
    values = torch.Generator().manual_seed(100 * step + hvd.rank())
    return torch.randn(8, WIDTH, generator=values)


def train(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(STEPS):
        net(batch(step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)


def check_same_bits_as_distributed_optimizer() -> None:
    with world():
        for text in ALL:
            none = ",momentum=none" if text.startswith(("csc", "topk")) else ""
            wrapped, hooked = model(), model()
            optimizer = sgd(wrapped)
            hvd.DistributedOptimizer(optimizer, wrapped.named_parameters(), strategy=text + none)
            train(wrapped, optimizer)
            net = DistributedDataParallel(hooked)
            state, average = ddp.hook(text, named_parameters=hooked.named_parameters())
            net.register_comm_hook(state, average)
            train(net, sgd(net))
            kind = text.partition(":")[0]
            assert [one.partition(":")[0] for one in state.techniques()] == [kind]
            for ours, theirs in zip(hooked.parameters(), wrapped.parameters(), strict=True):
                assert torch.equal(ours, theirs), (text, (ours - theirs).abs().max())


def run(ledger: Ledger, steps: int = STEPS) -> Ledger:
    for step in range(steps):
        ledger.step(step)
    return ledger


def assert_kept(ledger: Ledger) -> None:
    """Checks that something is kept back, by the techniques of all buckets, and that nothing is lost."""
    assert ledger.keeps_something()
    assert all(text.startswith(ledger.kind) for text in ledger.state.techniques()), ledger.state
    ledger.check()


def check_gradients_arrive_once() -> None:
    with world():
        for text in KEEPING:
            assert_kept(run(Ledger(text)))


def check_options_of_ddp() -> None:
    with world():
        for options in ({"gradient_as_bucket_view": True}, {"static_graph": True}):
            assert_kept(run(Ledger(CSC, **options)))


def check_accumulation() -> None:
    with world():
        for text in KEEPING:
            ledger = Ledger(text)
            for step in range(STEPS):
                with ledger.model.no_sync():
                    ledger.backward(2 * step)
                ledger.backward(2 * step + 1)
                ledger.take()
            assert_kept(ledger)


def check_unused_parameters_keep_what_they_have() -> None:
    with world(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for text in KEEPING:
            ledger = run(Ledger(text, find_unused_parameters=True), 5)
            before = ledger.kept()
            ledger.step(5, without=[0, 2])
            assert "dense" in ledger.state.techniques()
            for number in (0, 2):
                assert torch.equal(ledger.kept()[number], before[number])
            ledger.step(6, without=[0] if dist.get_rank() == 1 else [])
            assert_kept(ledger)
        said = [str(one.message) for one in caught if "left a bucket dense" in str(one.message)]
        assert len(said) == (len(KEEPING) if dist.get_rank() == 0 else 0)


def check_join() -> None:
    with world():
        for text in KEEPING:
            ledger = Ledger(text)
            with ledger.model.join():
                run(ledger, STEPS if dist.get_rank() == 0 else STEPS - 2)
            if dist.get_rank() > 0:
                ledger.got = [torch.zeros_like(one) for one in ledger.got]
            for one in ledger.got:
                dist.all_reduce(one)  # rank 0 has seen all results
            ledger.check()


def check_changes_of_the_technique() -> None:
    with world():
        ledger = run(Ledger(f"{CSC},warmup=4/1+5/0.9+6/0.5"), 4)
        seen = [ledger.state.techniques()[0]]
        for step in range(4, 8):
            ledger.step(step)
            seen.append(ledger.state.techniques()[0])
            ledger.check()
        assert [text.rpartition("keep=")[2] for text in seen] == ["dense", "0.9", "0.5", "0.3", "0.3"]


def check_saved_state_survives_new_buckets() -> None:
    with world():
        for text in KEEPING:
            old = run(Ledger(text), STEPS)
            new = Ledger(text)
            new.state.load_state_dict(old.state.state_dict())
            new.given, new.got = old.given, old.got
            new.step(STEPS)
            cuts = [one.view.parameters for one in new.state._buckets]
            assert "dense" not in new.state.techniques()
            new.check()
            new.step(STEPS + 1)
            assert cuts != [one.view.parameters for one in new.state._buckets], "DDP has not rebuilt buckets"
            assert_kept(new)


def check_grad_scaler() -> None:
    with world():
        for text in KEEPING:
            ledger = Ledger(text)
            scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
            # Both have parameters of the hook: its residuals must grow once, not twice.
            halves = [list(ledger.module.parameters())[:2], list(ledger.module.parameters())[2:]]
            optimizers = [torch.optim.SGD(half, lr=0.0) for half in halves]
            scales = set()
            for step in range(STEPS):
                ledger.backward(step, loss=scaler.scale)
                for optimizer in optimizers:
                    scaler.unscale_(optimizer)
                    scaler.step(optimizer)
                ledger.take()  # unscaled
                scales.add(scaler.get_scale())
                scaler.update()
            assert len(scales) > 2
            ledger.check(scale=scaler.get_scale())
            overflow(ledger, scaler, optimizers)


def check_two_scalers() -> None:
    with world():
        ledger = Ledger(TOPK)
        halves = [list(ledger.module.parameters())[:2], list(ledger.module.parameters())[2:]]
        optimizers = [torch.optim.SGD(half, lr=0.0) for half in halves]
        scalers = [torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2) for _ in halves]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step in range(STEPS):
                ledger.backward(step, loss=scalers[0].scale)
                for scaler, optimizer in zip(scalers, optimizers, strict=True):
                    scaler.scale(torch.zeros(()))
                    scaler.step(optimizer)
                    scaler.update()
                ledger.take()
        assert any("two GradScalers" in str(one.message) for one in caught)


def check_a_gradient_of_minus_zero_takes_what_is_carried() -> None:
    with world():
        ledger = run(Ledger(f"{TOPK},warmup=4/1+8/0.5"), 8)  # the change of the density carries
        for _ in range(2):
            ledger.model([-0.0 * one for one in coefficients(0) if one is not None]).backward()
            ledger.take()
        ledger.check()


def overflow(
    ledger: Ledger, scaler: torch.amp.GradScaler, optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    """Checks that one rank's overflow is seen on all, and is not kept back."""
    before = scaler.get_scale()
    factor = torch.inf if dist.get_rank() == 0 else 1.0
    ledger.backward(STEPS, loss=lambda loss: scaler.scale(loss) * factor)
    for optimizer in optimizers:
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() < before
    assert all(bool(one.isfinite().all()) for one in ledger.kept())


def check_what_a_hook_refuses() -> None:
    with world():
        for text in ("daso:total_epochs=20", "local_sgd:period=4", "auto", "adasum", "ring"):
            with pytest.raises(ValueError, match=f"not '{text.split(':')[0].replace('ring', 'allreduce')}"):
                ddp.hook(text)
        for text in ("csc:momentum=masked", "topk:momentum=local"):
            with pytest.raises(ValueError, match=text.split(":")[0] + ".*momentum of an optimizer"):
                ddp.hook(text)
        with pytest.raises(ValueError, match="momentum of an optimizer"):
            ddp.hook(hvd.strategies.CSC(momentum="masked"))
        mine = hvd.strategies.CSC(momentum=None)
        state, _ = ddp.hook(mine)
        with pytest.raises(ValueError, match="belongs to an optimizer or a hook already"):
            ddp.hook(mine)
        del state
        ddp.hook(mine)
        optimizer, masked = sgd(model()), hvd.strategies.CSC()
        hvd.DistributedOptimizer(optimizer, strategy=masked)
        with pytest.raises(ValueError, match="belongs to an optimizer or a hook already"):
            ddp.hook(masked)
        assert masked.momentum == "masked"
        with pytest.raises(ValueError, match="no parameter is called 'head'"):
            ddp.hook("csc:dense_parameters=head", named_parameters=model().named_parameters())
        with pytest.raises(ValueError, match="there is no strategy"):
            ddp.hook("tokp")
    with world("gloo"), pytest.raises(ValueError, match="this group has 'gloo'"):
        ddp.hook("dense")


def check_complex_gradients() -> None:
    with world():
        net = DistributedDataParallel(Turned(300))
        net.register_comm_hook(*ddp.hook("dense"))
        net().backward()
        mean = (1 + dist.get_world_size()) / 2
        assert torch.equal(net.module.weight.grad, torch.full((300,), mean, dtype=torch.complex64))
        net = DistributedDataParallel(Turned(300))
        net.register_comm_hook(*ddp.hook("dense:wire=bf16"))
        with pytest.raises(ValueError, match="takes no complex gradients"):
            net().backward()


def check_states_that_do_not_fit() -> None:
    with world():
        ledger = run(Ledger(TOPK), 5)
        state = ledger.state.state_dict()
        with pytest.raises(ValueError, match="before the first step"):
            ledger.state.load_state_dict(state)
        for change, text in (
            ({"rank": 7}, "rank 7"),
            ({"world_size": 9}, "world size 9"),
            ({"strategy": "csc"}, "strategy csc"),
            ({"format": 0}, "format 1"),
            ({"kept": {"head": torch.zeros(3)}}, "parameter 'head'"),
        ):
            with pytest.raises(ValueError, match=text):
                Ledger(TOPK).state.load_state_dict({**state, **change})
        del state["step"]
        with pytest.raises(ValueError, match="incomplete"):
            Ledger(TOPK).state.load_state_dict(state)
        unnamed = ddp.hook(TOPK)[0]
        with pytest.raises(ValueError, match="named_parameters"):
            unnamed.state_dict()


def check_another_group() -> None:
    with world():
        half = dist.new_group([0])
        net = DistributedDataParallel(model())
        state, average = ddp.hook("dense", half if dist.get_rank() == 0 else None)
        net.register_comm_hook(state, average)
        if dist.get_rank() == 0:
            with pytest.raises(ValueError, match="process_group is not that"):
                net(batch(0)).sum().backward()


@needs_ranks(2)
def check_ranks_with_different_strategies() -> None:
    with world():
        net = DistributedDataParallel(model())
        net.register_comm_hook(*ddp.hook(CSC if dist.get_rank() == 0 else TOPK))
        with pytest.raises(ValueError, match="hooks differ: strategy csc.* on rank 0, and topk.* on rank 1"):
            net(batch(0)).sum().backward()


@needs_ranks(2)
def check_ranks_whose_techniques_differ() -> None:
    with world():
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
        bucket = _core.TechniqueBucket(backend, torch.float32, [4096])
        bucket.choose(f"topk:density=0.{1 + dist.get_rank()}")
        with pytest.raises(dist.DistBackendError, match="has called something else.*technique and run"):
            bucket.average(torch.ones(4096)).wait()
