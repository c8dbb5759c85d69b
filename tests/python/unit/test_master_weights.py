"""fp32 masters of half parameters in one process, bit for bit those of a loop in plain PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from half_models import (
    HALVES,
    KINDS,
    ByHand,
    assert_equal,
    loss_of,
    make_batches,
    make_model,
    make_wrapped,
    masters_of,
    train,
)

pytestmark = pytest.mark.usefixtures("job_of_one")


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_those_of_masters_kept_by_hand(kind: str, dtype: torch.dtype) -> None:
    model, optimizer = make_wrapped(dtype, KINDS[kind])
    reference = ByHand(make_model(dtype), KINDS[kind])
    batches = make_batches(dtype, 6)
    train(model, optimizer, batches)
    reference.train(batches)
    assert_equal(model.parameters(), reference.model.parameters())
    assert_equal(masters_of(optimizer), reference.masters)
    rounded = [master.to(dtype).float() for master in masters_of(optimizer)]
    assert any(not torch.equal(a, b) for a, b in zip(rounded, masters_of(optimizer), strict=True))


def test_the_object_its_groups_and_its_schedulers_stay() -> None:
    model = make_model(torch.bfloat16)
    plain = torch.optim.SGD([{"params": [p], "lr": 0.1} for p in model.parameters()])
    groups = list(plain.param_groups)
    early = torch.optim.lr_scheduler.StepLR(plain, 1, 0.5)
    optimizer = hvd.DistributedOptimizer(plain, master_weights=True)
    late = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    assert optimizer is plain
    assert all(a is b for a, b in zip(optimizer.param_groups, groups, strict=True))
    train(model, optimizer, make_batches(torch.bfloat16, 1))
    early.step()
    late.step()
    assert [group["lr"] for group in groups] == [0.1 * 0.5 * 0.5] * 4
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())
    assert {value.dtype for value in model.state_dict().values()} == {torch.bfloat16}
    assert all(m.dtype == torch.float32 for m in masters_of(optimizer))


def test_zero_grad_clears_both_and_the_models_own_counts_too() -> None:
    model, optimizer = make_wrapped()
    batch = make_batches(torch.bfloat16, 1)[0]

    def gradients() -> list[torch.Tensor | None]:
        return [*(p.grad for p in model.parameters()), *(m.grad for m in masters_of(optimizer))]

    loss_of(model, batch).backward()
    first = [m.grad.clone() for m in masters_of(optimizer) if m.grad is not None]
    assert len(first) == 4
    optimizer.zero_grad(set_to_none=False)
    assert all(gradient is not None and not gradient.any() for gradient in gradients())
    loss_of(model, batch).backward()
    assert_equal((m.grad for m in masters_of(optimizer)), first)
    optimizer.zero_grad()
    assert gradients() == [None] * 8
    for _ in range(2):  # the model's zero_grad does not know the masters
        torch.nn.utils.clip_grad_norm_(masters_of(optimizer), 1e-3)
        model.zero_grad()
        loss_of(model, batch).backward()
        assert_equal((m.grad for m in masters_of(optimizer)), first)
    model.zero_grad()
    before = [m.clone() for m in masters_of(optimizer)]
    optimizer.step()
    assert_equal(masters_of(optimizer), before)


def test_zeros_end_with_the_parameters_gradients() -> None:
    """A gradient of zero moves weights by momentum and decay; no gradient does not."""
    model, optimizer = make_wrapped(make=KINDS["adamw"])
    train(model, optimizer, make_batches(torch.bfloat16, 2))
    before = [m.clone() for m in masters_of(optimizer)]
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()
    moved = [m.clone() for m in masters_of(optimizer)]
    assert all(not torch.equal(a, b) for a, b in zip(before, moved, strict=True))
    optimizer.zero_grad(set_to_none=False)
    model.zero_grad()
    optimizer.step()
    assert_equal(masters_of(optimizer), moved)
    assert [m.grad for m in masters_of(optimizer)] == [None] * 4


@pytest.mark.parametrize("clip", [False, True])
def test_a_masters_own_gradient_outlives_the_parameters(clip: bool) -> None:
    model, optimizer = make_wrapped(make=lambda p: torch.optim.SGD(p, lr=1.0))
    loss_of(model, make_batches(torch.bfloat16, 1)[0]).backward()
    if clip:
        torch.nn.utils.clip_grad_norm_(masters_of(optimizer), 1e-3)
    optimizer.step()
    model.zero_grad()
    before = [m.clone() for m in masters_of(optimizer)]
    first, *others = masters_of(optimizer)
    first.grad = torch.ones_like(first)
    optimizer.step()
    assert_equal(masters_of(optimizer), [before[0] - 1, *before[1:]])
    assert [m.grad for m in others] == [None] * 3


def test_backwards_add_up_in_the_parameters_type() -> None:
    model, optimizer = make_wrapped()
    batches = make_batches(torch.bfloat16, 3)
    alone = make_model(torch.bfloat16)
    for batch in batches:
        loss_of(model, batch).backward()
        loss_of(alone, batch).backward()
        for master, parameter in zip(masters_of(optimizer), alone.parameters(), strict=True):
            assert parameter.grad is not None
            assert master.grad is not None
            assert torch.equal(master.grad, parameter.grad.float())


def test_clipping_works_on_the_masters_or_on_the_parameters_but_not_on_both() -> None:
    batch = make_batches(torch.bfloat16, 1)[0]
    moves = []
    for clip in ("masters", "parameters", "neither"):
        model, optimizer = make_wrapped(make=lambda p: torch.optim.SGD(p, lr=1.0))
        before = [m.clone() for m in masters_of(optimizer)]
        loss_of(model, batch).backward()
        if clip == "masters":
            torch.nn.utils.clip_grad_norm_(masters_of(optimizer), 0.125)
        elif clip == "parameters":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.125)
        optimizer.step()
        moved = [m.detach() - old for m, old in zip(masters_of(optimizer), before, strict=True)]
        moves.append(float(torch.nn.utils.get_total_norm(moved)))
    assert moves[0] == pytest.approx(0.125, rel=1e-4)
    assert moves[1] == pytest.approx(0.125, rel=2**-7)
    assert moves[2] > 0.2
    model, optimizer = make_wrapped()
    loss_of(model, batch).backward()
    torch.nn.utils.clip_grad_norm_(masters_of(optimizer), 0.125)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.125)
    with pytest.raises(
        RuntimeError, match=r"0\.weight was changed after .* its fp32 master .* optimizer.zero"
    ):
        optimizer.step()
    optimizer.zero_grad()
    train(model, optimizer, [batch])
    loss_of(model, batch).backward()
    torch.nn.utils.clip_grad_norm_(masters_of(optimizer), 1e-3)
    with pytest.raises(RuntimeError, match="was changed after"):
        loss_of(model, batch).backward()  # it would add to gradients that are not clipped


def test_gradients_that_replace_others() -> None:
    model, optimizer = make_wrapped(make=lambda p: torch.optim.SGD(p, lr=1.0))
    loss_of(model, make_batches(torch.bfloat16, 1)[0]).backward()
    before = [m.clone() for m in masters_of(optimizer)]
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert_equal(masters_of(optimizer), [old - 1 for old in before])
    for master in masters_of(optimizer):
        master.grad = torch.full_like(master, 2.0)
    optimizer.step()
    assert_equal(masters_of(optimizer), [old - 3 for old in before])


@pytest.mark.parametrize("fused", [False, True])
def test_loss_scaling(fused: bool) -> None:
    model, optimizer = make_wrapped(torch.float16, KINDS["fused" if fused else "adamw"])
    reference = ByHand(make_model(torch.float16), KINDS["fused" if fused else "adamw"])
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    batches = make_batches(torch.float16, 4)
    for number, batch in enumerate(batches):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, batch) * (1e9 if number == 2 else 1.0)).backward()  # overflows in fp16
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 4.0
    reference.train([batch for number, batch in enumerate(batches) if number != 2])
    for ours, other in zip(masters_of(optimizer), reference.masters, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-3, atol=1e-4)
    optimizer.zero_grad()
    scaler.scale(loss_of(model, batches[0])).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # these are still scaled
    with pytest.raises(RuntimeError, match="was changed after"):
        scaler.step(optimizer)


def test_groups_frozen_and_fp32_parameters() -> None:
    model = make_model(torch.bfloat16)
    norm = torch.nn.LayerNorm(2)  # fp32 among half ones
    first, bias, last, end = model.parameters()
    bias.requires_grad_(False)
    groups: list[dict[str, Any]] = [{"params": [first, bias]}, {"params": norm.parameters(), "lr": 0.5}]
    plain = torch.optim.SGD(groups, lr=0.1)
    optimizer = hvd.DistributedOptimizer(plain, master_weights=True)
    optimizer.add_param_group({"params": [last, end], "lr": 0.2})
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [first]})
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 2, 2]
    held = masters_of(optimizer)
    assert held[1] is bias, "a frozen parameter costs nothing"
    assert held[2:4] == list(norm.parameters())
    assert [m.dtype for m in held] == [torch.float32, torch.bfloat16, *[torch.float32] * 4]
    batch = make_batches(torch.bfloat16, 1)[0]

    def step() -> None:
        optimizer.zero_grad()
        norm(model(batch).float()).square().sum().backward()
        optimizer.step()

    frozen = bias.clone()
    step()
    assert torch.equal(bias, frozen)
    assert sorted(optimizer.state_dict()["master_weights"]) == [0, 4, 5]
    bias.requires_grad_()
    step()
    assert sorted(optimizer.state_dict()["master_weights"]) == [0, 1, 4, 5]
    assert optimizer.param_groups[0]["params"][1].dtype == torch.float32
    gradient = optimizer.param_groups[0]["params"][1].grad
    assert gradient is not None
    assert torch.equal(bias, (frozen.float() - 0.1 * gradient).to(torch.bfloat16))


def test_sparse_gradients() -> None:
    table = torch.nn.Embedding(5, 3, sparse=True).to(torch.bfloat16)
    start = table.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), master_weights=True)
    for _ in range(2):
        optimizer.zero_grad()
        table(torch.tensor([1, 1, 4])).sum().backward()
        optimizer.step()
    (master,) = masters_of(optimizer)
    counts = torch.tensor([0.0, 2.0, 0.0, 0.0, 1.0]).unsqueeze(1)
    assert torch.equal(master, start.float() - 2 * counts)


def test_an_optimizer_without_half_parameters_is_what_it_was() -> None:
    model = make_model(torch.float32)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), master_weights=True)
    assert all(a is b for a, b in zip(masters_of(optimizer), model.parameters(), strict=True))
    train(model, optimizer, make_batches(torch.float32, 2))
    assert optimizer.state_dict()["master_weights"] == {}
