"""Broadcasting parameters, optimizer state and objects."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import run_checks


@pytest.mark.parametrize("np", [1, 2, 3])
def test_functions(np: int) -> None:
    run_checks(__file__, np)


def _model() -> torch.nn.Module:
    torch.manual_seed(100 + hvd.rank())
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def _root_model(root: int) -> torch.nn.Module:
    torch.manual_seed(100 + root)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def check_parameters_in_every_form() -> None:
    root = hvd.size() - 1
    forms = [
        lambda model: model.state_dict(),
        lambda model: model.named_parameters(),
        lambda model: list(model.named_parameters()),
        lambda model: list(model.parameters()),
        lambda model: model.parameters(),
        lambda model: model,
        lambda model: {**model.state_dict(), "nothing": None},
    ]
    for form in forms:
        model = _model()
        hvd.broadcast_parameters(form(model), root_rank=root)  # type: ignore[no-untyped-call]
        for (name, mine), roots in zip(model.named_parameters(), _root_model(root).parameters(), strict=True):
            assert torch.equal(mine, roots), name
            assert mine.requires_grad


def check_parameters_of_a_wrong_kind() -> None:
    for wrong in ({"a": 3}, 5, [1, 2], torch.ones(3)):
        with pytest.raises(ValueError, match=r"params"):
            hvd.broadcast_parameters(wrong, root_rank=0)  # type: ignore[arg-type]


def check_object() -> None:
    root = hvd.size() - 1
    mine = {"rank": hvd.rank(), "tensor": torch.full((3,), float(hvd.rank())), "text": "x" * hvd.rank()}
    theirs = hvd.broadcast_object(mine, root_rank=root)
    assert theirs["rank"] == root
    assert theirs["tensor"].tolist() == [root] * 3
    assert theirs["text"] == "x" * root
    assert hvd.broadcast_object(None if hvd.rank() else "named", name="a.name") == "named"


def _train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):

        def closure() -> float:
            optimizer.zero_grad()
            loss: torch.Tensor = model(torch.ones(5, 3) * (1 + hvd.rank())).square().sum()
            loss.backward()
            return loss.item()

        optimizer.step(closure)


def _same(mine: Any, roots: Any) -> bool:
    if isinstance(mine, torch.Tensor):
        return torch.equal(mine, roots)
    if isinstance(mine, dict):
        return mine.keys() == roots.keys() and all(_same(mine[key], roots[key]) for key in mine)
    if isinstance(mine, list | tuple):
        return len(mine) == len(roots) and all(map(_same, mine, roots))
    return bool(mine == roots)


def check_optimizer_state_of_every_kind() -> None:
    kinds: list[tuple[type[torch.optim.Optimizer], dict[str, Any]]] = [
        (torch.optim.SGD, {"lr": 0.1}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (torch.optim.Adam, {"lr": 0.1, "amsgrad": True}),
        (torch.optim.AdamW, {"lr": torch.tensor(0.1)}),
        (torch.optim.RMSprop, {"centered": True}),
        (torch.optim.Adagrad, {}),
        (torch.optim.LBFGS, {"max_iter": 3}),
    ]
    for kind, arguments in kinds:
        for trained in (hvd.size(), 1):  # all ranks have state; only the root has
            model = _model()
            optimizer = kind(model.parameters(), **arguments)
            if hvd.rank() < trained:
                _train(model, optimizer, steps=hvd.rank() + 1)
            optimizer.param_groups[0]["lr"] = 0.5 + hvd.rank()
            before = copy.deepcopy(optimizer.state_dict())
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            roots = hvd.broadcast_object(before, root_rank=0)
            assert _same(optimizer.state_dict(), roots), (kind, trained)
            assert type(optimizer) is kind
