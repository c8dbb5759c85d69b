"""fp32 masters of half parameters in one process, bit for bit those of a loop in plain PyTorch."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import roundelay.torch as hvd

HALVES = (torch.bfloat16, torch.float16)
Make = Callable[[Any], torch.optim.Optimizer]
KINDS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3),
}


@pytest.fixture(autouse=True)
def _job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ROUNDELAY_BOOTSTRAP", "single")
    hvd.init()
    yield
    hvd.shutdown()


def _model(dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to(dtype)


def _batches(dtype: torch.dtype, number: int, seed: int = 5) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(4, 6, generator=generator).to(dtype) for _ in range(number)]


def _masters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _loss(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = model(batch).float().square().mean()
    return loss


def _train(model: torch.nn.Module, optimizer: Any, batches: list[torch.Tensor]) -> None:
    for batch in batches:

        def closure(batch: torch.Tensor = batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = _loss(model, batch)
            loss.backward()
            return loss

        if isinstance(optimizer, torch.optim.LBFGS):
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()


class _ByHand:
    """The reference: a half model and an optimizer of fp32 masters, in plain PyTorch."""

    def __init__(self, model: torch.nn.Module, make: Make) -> None:
        self.model = model
        self.masters = [torch.nn.Parameter(p.detach().float()) for p in model.parameters()]
        self.optimizer = make(self.masters)

    def write_back(self) -> None:
        with torch.no_grad():
            for parameter, master in zip(self.model.parameters(), self.masters, strict=True):
                parameter.copy_(master)

    def train(self, batches: list[torch.Tensor]) -> None:
        for batch in batches:

            def closure(batch: torch.Tensor = batch) -> torch.Tensor:
                self.write_back()
                self.model.zero_grad()
                loss = _loss(self.model, batch)
                loss.backward()
                for parameter, master in zip(self.model.parameters(), self.masters, strict=True):
                    assert parameter.grad is not None
                    master.grad = parameter.grad.float()
                return loss

            if isinstance(self.optimizer, torch.optim.LBFGS):
                self.optimizer.step(closure)
            else:
                closure()
                self.optimizer.step()
            self.write_back()


def _wrapped(
    dtype: torch.dtype = torch.bfloat16, make: Make = KINDS["sgd"]
) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = _model(dtype)
    optimizer = make(model.parameters())
    return model, hvd.DistributedOptimizer(optimizer, model.named_parameters(), master_weights=True)


def _assert_equal(ours: Any, expected: Any) -> None:
    for mine, other in zip(ours, expected, strict=True):
        assert mine.dtype == other.dtype
        assert torch.equal(mine, other)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_those_of_masters_kept_by_hand(kind: str, dtype: torch.dtype) -> None:
    model, optimizer = _wrapped(dtype, KINDS[kind])
    reference = _ByHand(_model(dtype), KINDS[kind])
    batches = _batches(dtype, 6)
    _train(model, optimizer, batches)
    reference.train(batches)
    _assert_equal(model.parameters(), reference.model.parameters())
    _assert_equal(_masters(optimizer), reference.masters)
    rounded = [master.to(dtype).float() for master in _masters(optimizer)]
    assert any(not torch.equal(a, b) for a, b in zip(rounded, _masters(optimizer), strict=True))


def test_the_object_its_groups_and_its_schedulers_stay() -> None:
    model = _model(torch.bfloat16)
    plain = torch.optim.SGD([{"params": [p], "lr": 0.1} for p in model.parameters()])
    groups = list(plain.param_groups)
    early = torch.optim.lr_scheduler.StepLR(plain, 1, 0.5)
    optimizer = hvd.DistributedOptimizer(plain, master_weights=True)
    late = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    assert optimizer is plain
    assert all(a is b for a, b in zip(optimizer.param_groups, groups, strict=True))
    _train(model, optimizer, _batches(torch.bfloat16, 1))
    early.step()
    late.step()
    assert [group["lr"] for group in groups] == [0.1 * 0.5 * 0.5] * 4
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())
    assert {value.dtype for value in model.state_dict().values()} == {torch.bfloat16}
    assert all(m.dtype == torch.float32 for m in _masters(optimizer))


def test_state_from_before_becomes_fp32() -> None:
    model = _model(torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    _train(model, optimizer, _batches(torch.bfloat16, 2))
    before = [{**optimizer.state[p]} for p in model.parameters()]
    hvd.DistributedOptimizer(optimizer, master_weights=True)
    for master, state in zip(_masters(optimizer), before, strict=True):
        assert optimizer.state[master]["step"] == state["step"]
        for key in ("exp_avg", "exp_avg_sq"):
            assert optimizer.state[master][key].dtype == torch.float32
            assert torch.equal(optimizer.state[master][key], state[key].float())
    assert len(optimizer.state) == 4
    _train(model, optimizer, _batches(torch.bfloat16, 2))


def test_zero_grad_clears_both_and_the_models_own_counts_too() -> None:
    model, optimizer = _wrapped()
    batch = _batches(torch.bfloat16, 1)[0]

    def gradients() -> list[torch.Tensor | None]:
        return [*(p.grad for p in model.parameters()), *(m.grad for m in _masters(optimizer))]

    _loss(model, batch).backward()
    first = [m.grad.clone() for m in _masters(optimizer) if m.grad is not None]
    assert len(first) == 4
    optimizer.zero_grad(set_to_none=False)
    assert all(gradient is not None and not gradient.any() for gradient in gradients())
    _loss(model, batch).backward()
    _assert_equal((m.grad for m in _masters(optimizer)), first)
    optimizer.zero_grad()
    assert gradients() == [None] * 8
    for _ in range(2):  # the model's zero_grad does not know the masters
        torch.nn.utils.clip_grad_norm_(_masters(optimizer), 1e-3)
        model.zero_grad()
        _loss(model, batch).backward()
        _assert_equal((m.grad for m in _masters(optimizer)), first)
    model.zero_grad()
    before = [m.clone() for m in _masters(optimizer)]
    optimizer.step()
    _assert_equal(_masters(optimizer), before)


def test_backwards_add_up_in_the_parameters_type() -> None:
    model, optimizer = _wrapped()
    batches = _batches(torch.bfloat16, 3)
    alone = _model(torch.bfloat16)
    for batch in batches:
        _loss(model, batch).backward()
        _loss(alone, batch).backward()
        for master, parameter in zip(_masters(optimizer), alone.parameters(), strict=True):
            assert parameter.grad is not None
            assert master.grad is not None
            assert torch.equal(master.grad, parameter.grad.float())


def test_clipping_works_on_the_masters_or_on_the_parameters_but_not_on_both() -> None:
    batch = _batches(torch.bfloat16, 1)[0]
    moves = []
    for clip in ("masters", "parameters", "neither"):
        model, optimizer = _wrapped(make=lambda p: torch.optim.SGD(p, lr=1.0))
        before = [m.clone() for m in _masters(optimizer)]
        _loss(model, batch).backward()
        if clip == "masters":
            torch.nn.utils.clip_grad_norm_(_masters(optimizer), 0.125)
        elif clip == "parameters":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.125)
        optimizer.step()
        moved = [m.detach() - old for m, old in zip(_masters(optimizer), before, strict=True)]
        moves.append(float(torch.nn.utils.get_total_norm(moved)))
    assert moves[0] == pytest.approx(0.125, rel=1e-4)
    assert moves[1] == pytest.approx(0.125, rel=2**-7)
    assert moves[2] > 0.2
    model, optimizer = _wrapped()
    _loss(model, batch).backward()
    torch.nn.utils.clip_grad_norm_(_masters(optimizer), 0.125)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.125)
    with pytest.raises(
        RuntimeError, match=r"0\.weight was changed after .* its fp32 master .* optimizer.zero"
    ):
        optimizer.step()
    optimizer.zero_grad()
    _train(model, optimizer, [batch])
    _loss(model, batch).backward()
    torch.nn.utils.clip_grad_norm_(_masters(optimizer), 1e-3)
    with pytest.raises(RuntimeError, match="was changed after"):
        _loss(model, batch).backward()  # it would add to gradients that are not clipped


def test_gradients_that_replace_others() -> None:
    model, optimizer = _wrapped(make=lambda p: torch.optim.SGD(p, lr=1.0))
    _loss(model, _batches(torch.bfloat16, 1)[0]).backward()
    before = [m.clone() for m in _masters(optimizer)]
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    _assert_equal(_masters(optimizer), [old - 1 for old in before])
    for master in _masters(optimizer):
        master.grad = torch.full_like(master, 2.0)
    optimizer.step()
    _assert_equal(_masters(optimizer), [old - 3 for old in before])


@pytest.mark.parametrize("fused", [False, True])
def test_loss_scaling(fused: bool) -> None:
    model, optimizer = _wrapped(torch.float16, KINDS["fused" if fused else "adamw"])
    reference = _ByHand(_model(torch.float16), KINDS["fused" if fused else "adamw"])
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    batches = _batches(torch.float16, 4)
    for number, batch in enumerate(batches):
        optimizer.zero_grad()
        scaler.scale(_loss(model, batch) * (1e9 if number == 2 else 1.0)).backward()  # overflows in fp16
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 4.0
    reference.train([batch for number, batch in enumerate(batches) if number != 2])
    for ours, other in zip(_masters(optimizer), reference.masters, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-3, atol=1e-4)
    optimizer.zero_grad()
    scaler.scale(_loss(model, batches[0])).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # these are still scaled
    with pytest.raises(RuntimeError, match="was changed after"):
        scaler.step(optimizer)


def test_checkpoints_bring_the_masters_back() -> None:
    for first in ("model", "optimizer"):
        model, optimizer = _wrapped(make=KINDS["adamw"])
        _train(model, optimizer, _batches(torch.bfloat16, 3))
        file = io.BytesIO()
        torch.save((model.state_dict(), optimizer.state_dict()), file)
        file.seek(0)
        saved = dict(zip(("model", "optimizer"), torch.load(file, weights_only=True), strict=True))
        resumed, its_optimizer = _wrapped(make=KINDS["adamw"])
        _train(resumed, its_optimizer, _batches(torch.bfloat16, 1, seed=9))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for name in (first, "optimizer" if first == "model" else "model"):
                (resumed if name == "model" else its_optimizer).load_state_dict(saved[name])
        _assert_equal(_masters(its_optimizer), _masters(optimizer))
        for net, one in ((model, optimizer), (resumed, its_optimizer)):
            _train(net, one, _batches(torch.bfloat16, 2, seed=11))
        _assert_equal(_masters(its_optimizer), _masters(optimizer))
        _assert_equal(resumed.parameters(), model.parameters())
        plain = KINDS["adamw"](_model(torch.bfloat16).parameters())
        plain.load_state_dict(saved["optimizer"])  # an optimizer without masters takes it, too


def test_a_checkpoint_without_masters_says_so_once() -> None:
    trained = _model(torch.bfloat16)
    plain = KINDS["adamw"](trained.parameters())
    _train(trained, plain, _batches(torch.bfloat16, 2))
    model, optimizer = _wrapped(make=KINDS["adamw"])
    _train(model, optimizer, _batches(torch.bfloat16, 1))
    model.load_state_dict(trained.state_dict())
    with pytest.warns(RuntimeWarning, match=r"no fp32 masters of 4 parameters, .* is 0\.weight") as told:
        optimizer.load_state_dict(plain.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.load_state_dict(plain.state_dict())
    assert len(told) == 1
    assert told[0].filename == __file__
    _assert_equal(_masters(optimizer), [p.float() for p in trained.parameters()])
    state = optimizer.state[_masters(optimizer)[0]]
    assert state["exp_avg"].dtype == torch.float32


def test_the_checkpoint_of_another_model_changes_nothing() -> None:
    model, optimizer = _wrapped()
    before = [m.clone() for m in _masters(optimizer)]
    for wrong in (torch.zeros(3), "text"):
        state = optimizer.state_dict()
        state["master_weights"] = {**state["master_weights"], 1: wrong}
        with pytest.raises(ValueError, match=r"master number 1 has .*, but 0\.bias has shape \[8\]"):
            optimizer.load_state_dict(state)
    _assert_equal(_masters(optimizer), before)
    _train(model, optimizer, _batches(torch.bfloat16, 1))


def test_parameters_that_change_between_steps() -> None:
    model, optimizer = _wrapped()
    _train(model, optimizer, _batches(torch.bfloat16, 2))
    exact = [m.clone() for m in _masters(optimizer)]
    model.load_state_dict(copy.deepcopy(model.state_dict()))  # equal values: the masters keep their own
    _assert_equal(optimizer.state_dict()["master_weights"].values(), exact)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.clamp_(max=0.0)
    model.zero_grad()
    optimizer.zero_grad()
    optimizer.step()
    expected = [
        torch.where(p == m.to(p.dtype), m, p.float()) for p, m in zip(model.parameters(), exact, strict=True)
    ]
    _assert_equal(_masters(optimizer), expected)
    assert all(float(p.detach().max()) <= 0 for p in model.parameters())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    _assert_equal(optimizer.state_dict()["master_weights"].values(), [torch.full_like(m, 0.5) for m in exact])


def test_copies_and_pickles_are_plain_and_bring_the_masters() -> None:
    model, optimizer = _wrapped()
    _train(model, optimizer, _batches(torch.bfloat16, 3))
    for its_model, copied in (
        copy.deepcopy((model, optimizer)),
        pickle.loads(pickle.dumps((model, optimizer))),
    ):
        assert type(copied) is type(optimizer)
        assert not hasattr(copied, "synchronize")
        assert "master_weights" not in copied.state_dict()
        assert all(a is b for a, b in zip(_masters(copied), its_model.parameters(), strict=True))
        hvd.DistributedOptimizer(copied, its_model.named_parameters(), master_weights=True)
        _assert_equal(_masters(copied), _masters(optimizer))
        again = copy.deepcopy((model, optimizer))
        hvd.DistributedOptimizer(again[1], master_weights=True)
        for net, one in ((its_model, copied), again):
            _train(net, one, _batches(torch.bfloat16, 2, seed=8))
        _assert_equal(_masters(copied), _masters(again[1]))


def test_wrapping_again_keeps_the_masters() -> None:
    model, optimizer = _wrapped()
    _train(model, optimizer, _batches(torch.bfloat16, 2))
    masters = _masters(optimizer)
    hvd.DistributedOptimizer(optimizer, model.named_parameters(), master_weights=True, op=hvd.Sum)
    assert all(a is b for a, b in zip(_masters(optimizer), masters, strict=True))
    reference = _ByHand(_model(torch.bfloat16), KINDS["sgd"])
    reference.train(_batches(torch.bfloat16, 2))
    _train(model, optimizer, _batches(torch.bfloat16, 2, seed=6))
    reference.train(_batches(torch.bfloat16, 2, seed=6))
    _assert_equal(masters, reference.masters)
    with pytest.raises(ValueError, match="SGD has fp32 masters, .* master_weights=True again"):
        hvd.DistributedOptimizer(optimizer, model.named_parameters())
    with pytest.raises(ValueError, match="master_weights is 'fp32', but must be True or False"):
        hvd.DistributedOptimizer(optimizer, master_weights="fp32")  # type: ignore[arg-type]
    _train(model, optimizer, _batches(torch.bfloat16, 1))


def test_groups_frozen_and_fp32_parameters() -> None:
    model = _model(torch.bfloat16)
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
    held = _masters(optimizer)
    assert held[1] is bias, "a frozen parameter costs nothing"
    assert held[2:4] == list(norm.parameters())
    assert [m.dtype for m in held] == [torch.float32, torch.bfloat16, *[torch.float32] * 4]
    batch = _batches(torch.bfloat16, 1)[0]

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
    (master,) = _masters(optimizer)
    counts = torch.tensor([0.0, 2.0, 0.0, 0.0, 1.0]).unsqueeze(1)
    assert torch.equal(master, start.float() - 2 * counts)


def test_an_optimizer_without_half_parameters_is_what_it_was() -> None:
    model = _model(torch.float32)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), master_weights=True)
    assert all(a is b for a, b in zip(_masters(optimizer), model.parameters(), strict=True))
    _train(model, optimizer, _batches(torch.float32, 2))
    assert optimizer.state_dict()["master_weights"] == {}
