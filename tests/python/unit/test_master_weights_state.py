"""fp32 masters between steps: checkpoints, copies, and parameters that somebody changes."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import warnings
import weakref

import pytest
import torch

import roundelay.torch as hvd
from half_models import (
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


def test_state_from_before_becomes_fp32() -> None:
    model = make_model(torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train(model, optimizer, make_batches(torch.bfloat16, 2))
    before = [{**optimizer.state[p]} for p in model.parameters()]
    hvd.DistributedOptimizer(optimizer, master_weights=True)
    for master, state in zip(masters_of(optimizer), before, strict=True):
        assert optimizer.state[master]["step"] == state["step"]
        for key in ("exp_avg", "exp_avg_sq"):
            assert optimizer.state[master][key].dtype == torch.float32
            assert torch.equal(optimizer.state[master][key], state[key].float())
    assert len(optimizer.state) == 4
    train(model, optimizer, make_batches(torch.bfloat16, 2))


def test_checkpoints_bring_the_masters_back() -> None:
    for first in ("model", "optimizer"):
        model, optimizer = make_wrapped(make=KINDS["adamw"])
        train(model, optimizer, make_batches(torch.bfloat16, 3))
        file = io.BytesIO()
        torch.save((model.state_dict(), optimizer.state_dict()), file)
        file.seek(0)
        saved = dict(zip(("model", "optimizer"), torch.load(file, weights_only=True), strict=True))
        resumed, its_optimizer = make_wrapped(make=KINDS["adamw"])
        train(resumed, its_optimizer, make_batches(torch.bfloat16, 1, seed=9))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for name in (first, "optimizer" if first == "model" else "model"):
                (resumed if name == "model" else its_optimizer).load_state_dict(saved[name])
        assert_equal(masters_of(its_optimizer), masters_of(optimizer))
        for net, one in ((model, optimizer), (resumed, its_optimizer)):
            train(net, one, make_batches(torch.bfloat16, 2, seed=11))
        assert_equal(masters_of(its_optimizer), masters_of(optimizer))
        assert_equal(resumed.parameters(), model.parameters())
        plain = KINDS["adamw"](make_model(torch.bfloat16).parameters())
        plain.load_state_dict(saved["optimizer"])  # an optimizer without masters takes it, too


def test_a_checkpoint_without_masters_says_so_once() -> None:
    trained = make_model(torch.bfloat16)
    plain = KINDS["adamw"](trained.parameters())
    train(trained, plain, make_batches(torch.bfloat16, 2))
    model, optimizer = make_wrapped(make=KINDS["adamw"])
    train(model, optimizer, make_batches(torch.bfloat16, 1))
    model.load_state_dict(trained.state_dict())
    with pytest.warns(RuntimeWarning, match=r"no fp32 masters of 4 parameters, .* is 0\.weight") as told:
        optimizer.load_state_dict(plain.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.load_state_dict(plain.state_dict())
    assert len(told) == 1
    assert told[0].filename == __file__
    assert_equal(masters_of(optimizer), [p.float() for p in trained.parameters()])
    state = optimizer.state[masters_of(optimizer)[0]]
    assert state["exp_avg"].dtype == torch.float32


def test_the_checkpoint_of_another_model_changes_nothing() -> None:
    model, optimizer = make_wrapped()
    before = [m.clone() for m in masters_of(optimizer)]
    for wrong in (torch.zeros(3), "text"):
        state = optimizer.state_dict()
        state["master_weights"] = {**state["master_weights"], 1: wrong}
        with pytest.raises(ValueError, match=r"master number 1 has .*, but 0\.bias has shape \[8\]"):
            optimizer.load_state_dict(state)
    assert_equal(masters_of(optimizer), before)
    train(model, optimizer, make_batches(torch.bfloat16, 1))


def test_parameters_that_change_between_steps() -> None:
    model, optimizer = make_wrapped()
    train(model, optimizer, make_batches(torch.bfloat16, 2))
    exact = [m.clone() for m in masters_of(optimizer)]
    model.load_state_dict(copy.deepcopy(model.state_dict()))  # equal values: the masters keep their own
    assert_equal(optimizer.state_dict()["master_weights"].values(), exact)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.clamp_(max=0.0)
    model.zero_grad()
    optimizer.zero_grad()
    optimizer.step()
    expected = [
        torch.where(p == m.to(p.dtype), m, p.float()) for p, m in zip(model.parameters(), exact, strict=True)
    ]
    assert_equal(masters_of(optimizer), expected)
    assert all(float(p.detach().max()) <= 0 for p in model.parameters())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    assert_equal(optimizer.state_dict()["master_weights"].values(), [torch.full_like(m, 0.5) for m in exact])


def test_copies_and_pickles_are_plain_and_bring_the_masters() -> None:
    model, optimizer = make_wrapped()
    train(model, optimizer, make_batches(torch.bfloat16, 3))
    for its_model, copied in (
        copy.deepcopy((model, optimizer)),
        pickle.loads(pickle.dumps((model, optimizer))),
    ):
        assert type(copied) is type(optimizer)
        assert not hasattr(copied, "synchronize")
        assert "master_weights" not in copied.state_dict()
        assert all(a is b for a, b in zip(masters_of(copied), its_model.parameters(), strict=True))
        with pytest.raises(ValueError, match="has fp32 masters, .* master_weights=True again"):
            hvd.DistributedOptimizer(copied, its_model.named_parameters())
        hvd.DistributedOptimizer(copied, its_model.named_parameters(), master_weights=True)
        assert_equal(masters_of(copied), masters_of(optimizer))
        again = copy.deepcopy((model, optimizer))
        hvd.DistributedOptimizer(again[1], master_weights=True)
        for net, one in ((its_model, copied), again):
            train(net, one, make_batches(torch.bfloat16, 2, seed=8))
        assert_equal(masters_of(copied), masters_of(again[1]))


def test_wrapping_again_keeps_the_masters() -> None:
    model, optimizer = make_wrapped()
    train(model, optimizer, make_batches(torch.bfloat16, 2))
    masters = masters_of(optimizer)
    hvd.DistributedOptimizer(optimizer, model.named_parameters(), master_weights=True)
    assert all(a is b for a, b in zip(masters_of(optimizer), masters, strict=True))
    reference = ByHand(make_model(torch.bfloat16), KINDS["sgd"])
    reference.train(make_batches(torch.bfloat16, 2))
    train(model, optimizer, make_batches(torch.bfloat16, 2, seed=6))
    reference.train(make_batches(torch.bfloat16, 2, seed=6))
    assert_equal(masters, reference.masters)
    with pytest.raises(ValueError, match="SGD has fp32 masters, .* master_weights=True again"):
        hvd.DistributedOptimizer(optimizer, model.named_parameters())
    with pytest.raises(ValueError, match="master_weights is 'fp32', but must be True or False"):
        hvd.DistributedOptimizer(optimizer, master_weights="fp32")  # type: ignore[arg-type]
    train(model, optimizer, make_batches(torch.bfloat16, 1))


def test_masters_end_with_their_optimizer() -> None:
    model, optimizer = make_wrapped()
    train(model, optimizer, make_batches(torch.bfloat16, 2))
    last = weakref.ref(masters_of(optimizer)[0])
    del optimizer
    gc.collect()
    assert last() is None
    loss_of(model, make_batches(torch.bfloat16, 1)[0]).backward()
