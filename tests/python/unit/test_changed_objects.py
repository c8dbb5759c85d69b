"""Objects that a stranger has changed on their way: nobody unpickles them. Faked ranks in one process."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from roundelay._internal import trust
from roundelay.errors import HorovodInternalError
from roundelay.torch import functions
from roundelay.torch._internal import operations
from roundelay.torch.functions import _Payload

SECRET = bytes(range(1, 33))
ran: list[str] = []


class Harmful:
    """Its unpickling runs code."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return ran.append, ("code of a stranger",)


def bytes_of(obj: object) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)


@pytest.fixture(autouse=True)
def no_code_runs(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(trust, "secret", lambda: SECRET)
    yield
    assert ran == []


def receive(monkeypatch: pytest.MonkeyPatch, sent: Callable[[str, torch.Tensor], torch.Tensor]) -> Any:
    """Lets rank 1 receive what rank 0 broadcasts. sent: changes a tensor of this name on its way."""
    wire: dict[str, torch.Tensor] = {}
    rank = 0

    def broadcast(tensor: torch.Tensor, root_rank: int, name: str, process_set: object) -> None:
        if rank == root_rank:
            wire[name] = sent(name, tensor.clone())
        else:
            tensor.copy_(wire[name])

    monkeypatch.setattr(functions, "_core", SimpleNamespace(rank=lambda: rank))
    monkeypatch.setattr(functions, "Call", lambda *_: nullcontext())
    monkeypatch.setattr(functions, "checked_root", lambda root, *_: root)
    monkeypatch.setattr(operations, "broadcast_", broadcast)
    functions.broadcast_object({"right": 1}, 0, "w")
    rank = 1
    return functions.broadcast_object(None, 0, "w")


def test_an_object_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    assert receive(monkeypatch, lambda _, tensor: tensor) == {"right": 1}


def test_a_changed_broadcast_is_not_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = bytes_of(Harmful())

    def change(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name == "w.data":
            return bad
        tensor[0] = bad.numel()
        return tensor

    with pytest.raises(HorovodInternalError, match=r"object 'w' that should be of rank 0 has no MAC"):
        receive(monkeypatch, change)


def test_a_changed_part_of_an_allgather_is_not_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = _Payload(bytes_of("right")), bytes_of(Harmful())
    heads = torch.tensor([[0, *good.head("w", 0)], [1, bad.numel(), *good.head("w", 1)[1:]]])
    answers = {"w.head": heads, "w.data": torch.cat([good.data, bad])}
    monkeypatch.setattr(functions, "Call", lambda *_: None)
    monkeypatch.setattr(functions, "_core", SimpleNamespace(rank=lambda: 0))
    monkeypatch.setattr(functions, "row_of_this_rank", lambda *numbers: torch.tensor([[0, *numbers]]))
    monkeypatch.setattr(operations, "allgather", lambda _, name, process_set: answers[name])
    with pytest.raises(HorovodInternalError, match=r"object 'w' that should be of rank 1 has no MAC"):
        functions.allgather_object("right", "w")


def test_a_mac_is_of_one_sender_and_one_name() -> None:
    payload = _Payload(bytes_of([1, 2]))
    head = payload.head("w", 0)
    assert payload.content("w", 0, head) == [1, 2]
    for name, sender in (("w", 1), ("v", 0)):
        with pytest.raises(HorovodInternalError, match="has no MAC"):
            payload.content(name, sender, head)


def test_without_a_secret_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "secret", lambda: trust.NO_SECRET)
    payload = _Payload(bytes_of([1, 2]))
    assert payload.head("w", 0)[2:] == [0] * 4
    assert payload.content("w", 0, payload.head("w", 0)) == [1, 2]
