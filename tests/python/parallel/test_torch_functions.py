"""Broadcasting parameters, optimizer state and objects."""

from __future__ import annotations

import copy
from collections import OrderedDict, deque
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from random_values import normal
from ranks import Check, needs_ranks, run_check
from roundelay.torch.functions import broadcast_optimizer_state, broadcast_parameters


@pytest.mark.parametrize("np", [1, 2, 3])
def test_functions(np: int, check: Check) -> None:
    run_check(check, np)


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


def check_parameters_may_be_in_a_tuple_or_come_from_a_generator() -> None:
    mine = [torch.full((2,), float(hvd.rank())), None, torch.full((), float(hvd.rank()))]
    for form in (tuple, iter, list):
        tensors = [None if tensor is None else tensor.clone() for tensor in mine]
        broadcast_parameters(form(tensors), root_rank=0)  # type: ignore[arg-type]
        assert [tensor.sum().item() for tensor in tensors if tensor is not None] == [0.0, 0.0]
    pairs = [("b", mine[0]), ("a", None)]
    broadcast_parameters(pairs, root_rank=hvd.size() - 1, process_set=hvd.global_process_set)  # type: ignore[arg-type]
    assert mine[0] is not None
    assert mine[0].tolist() == [hvd.size() - 1] * 2


def check_a_module_has_all_its_buffers_broadcast() -> None:
    module = torch.nn.Module()
    module.register_buffer("kept", torch.tensor(hvd.rank()))
    module.register_buffer("passing", torch.tensor([hvd.rank()]), persistent=False)
    broadcast_parameters(module, root_rank=0)
    assert [int(buffer) for buffer in module.buffers()] == [0, 0]


def check_parameters_of_a_wrong_kind() -> None:
    one = torch.ones(1)
    for wrong in ({"a": 3}, 5, [1, 2], torch.ones(3), "text", {1: one}, [("a", one, 2)], [("a", one)] * 2):
        with pytest.raises(ValueError, match=r"params"):
            hvd.broadcast_parameters(wrong, root_rank=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="run a batch through the model first"):
        hvd.broadcast_parameters(torch.nn.LazyLinear(3), root_rank=0)


@needs_ranks(2)
def check_parameters_of_other_shapes_leave_nothing_in_flight() -> None:
    mine = {"a": torch.ones(2), "b": torch.ones(3 if hvd.rank() else 2), "c": torch.full((2,), hvd.rank())}
    for _ in range(2):
        with pytest.raises(
            hvd.HorovodInternalError, match=r"parameter\.b.*build the same model on every rank"
        ):
            hvd.broadcast_parameters(mine, root_rank=0)
        assert mine["c"].tolist() == [0, 0]


@needs_ranks(2)
def check_parameters_that_one_rank_lacks_are_an_error_on_all() -> None:
    for names in (("a", "b"), ("a", "c", "b")):  # in another order they are the same
        mine = {name: torch.full((1,), hvd.rank()) for name in reversed(names)}
        broadcast_parameters(mine if hvd.rank() else dict(reversed(mine.items())), root_rank=0)
        assert [tensor.item() for tensor in mine.values()] == [0] * len(names)
    for number, odd in ((1, {"a": torch.ones(1)}), (2, {"a": torch.ones(1), "c": torch.ones(1)})):
        usual = {"a": torch.ones(1), "b": torch.ones(1)}
        with pytest.raises(hvd.HorovodInternalError, match=rf"rank 0 has 'b' \(of 2 .*rank 1 \({number} "):
            broadcast_parameters(odd if hvd.rank() == 1 else usual, root_rank=0)


@needs_ranks(2)
def check_parameters_of_a_wrong_kind_on_one_rank_are_an_error_on_all() -> None:
    usual = {"a": torch.ones(1), "b": torch.ones(1)}
    for wrong, text in ((5, "not int"), ({**usual, "b": 3}, "use broadcast_object")):
        with pytest.raises(ValueError if hvd.rank() == 0 else hvd.HorovodInternalError, match=text):
            broadcast_parameters(wrong if hvd.rank() == 0 else usual, root_rank=0)  # type: ignore[arg-type]
    broadcast_parameters(usual, root_rank=0)


def check_object() -> None:
    root = hvd.size() - 1
    mine = {"rank": hvd.rank(), "tensor": torch.full((3,), float(hvd.rank())), "text": "x" * hvd.rank()}
    theirs = hvd.broadcast_object(mine, root_rank=root)
    assert theirs["rank"] == root
    assert theirs["tensor"].tolist() == [root] * 3
    assert theirs["text"] == "x" * root
    assert hvd.broadcast_object(None if hvd.rank() else "named", name="a.name") == "named"


class _Refuses:
    def __reduce__(self) -> str:
        raise TypeError("it stays here")


def check_an_object_that_cannot_be_pickled_is_an_error_everywhere() -> None:
    root = hvd.size() - 1
    mine = hvd.rank() == root
    with pytest.raises(TypeError if mine else hvd.HorovodInternalError, match="it stays here"):
        hvd.broadcast_object(_Refuses(), root_rank=root)
    assert hvd.broadcast_object(hvd.rank(), root_rank=root) == root


def check_objects_of_every_size() -> None:
    for size in (0, 1, 70_000, 5_000_000):
        assert hvd.broadcast_object(b"x" * size if hvd.rank() == 0 else None) == b"x" * size
    function = hvd.broadcast_object((lambda value: value + hvd.size()) if hvd.rank() == 0 else None)
    assert function(1) == 1 + hvd.size()


def _same(mine: Any, roots: Any) -> bool:
    if isinstance(mine, torch.Tensor):
        if mine.dtype != roots.dtype or mine.layout != roots.layout:
            return False
        return torch.equal(mine, roots) and (mine.layout != torch.strided or mine.stride() == roots.stride())
    if isinstance(mine, dict):
        return mine.keys() == roots.keys() and all(_same(mine[key], roots[key]) for key in mine)
    if isinstance(mine, list | tuple):
        return len(mine) == len(roots) and all(map(_same, mine, roots))
    return type(mine) is type(roots) and bool(mine == roots)


# Every optimizer of torch, with all that gives it more state.
KINDS: dict[str, list[dict[str, Any]]] = {
    "Adadelta": [{}],
    "Adafactor": [{}],
    "Adagrad": [{"initial_accumulator_value": 0.5}],
    "Adam": [{"amsgrad": True}, {"lr": torch.tensor(0.1)}, {"fused": True}, {"foreach": True}],
    "AdamW": [{"amsgrad": True, "weight_decay": 0.1}],
    "Adamax": [{}],
    "ASGD": [{"t0": 1.0}],
    "LBFGS": [{"max_iter": 3}, {"line_search_fn": "strong_wolfe"}],
    "Muon": [{"momentum": 0.9}],
    "NAdam": [{"decoupled_weight_decay": True}],
    "RAdam": [{}],
    "RMSprop": [{"centered": True, "momentum": 0.9}],
    "Rprop": [{}],
    "SGD": [{"lr": 0.1}, {"lr": 0.1, "momentum": 0.9, "nesterov": True}],
    "SparseAdam": [{}],
}


def _parameters(name: str, dtype: torch.dtype) -> list[torch.nn.Parameter]:
    """Each rank's own; SparseAdam wants sparse gradients, Muon matrices."""
    generator = torch.Generator().manual_seed(100 + hvd.rank())
    shapes = [(3, 4), (5, 2)] if name in ("Muon", "SparseAdam") else [(3, 4), (5,), (), (2, 3, 2, 2)]
    made = [normal(generator, *shape).to(dtype) for shape in shapes]
    if len(made) == 4 and name != "LBFGS":  # which views gradients as flat ones
        made[3] = made[3].contiguous(memory_format=torch.channels_last)
    return [torch.nn.Parameter(tensor) for tensor in made]


def _step(optimizer: torch.optim.Optimizer, factor: float) -> None:
    def closure() -> float:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = (parameter.detach() + 1) * factor
                sparse = isinstance(optimizer, torch.optim.SparseAdam)
                parameter.grad = gradient.to_sparse(1) if sparse else gradient
        return factor

    optimizer.step(closure)


def _all_kinds() -> list[type[torch.optim.Optimizer]]:
    known = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)]
    kinds = [kind for kind in known if issubclass(kind, torch.optim.Optimizer)]
    return [kind for kind in kinds if kind is not torch.optim.Optimizer]


def check_optimizer_state_of_every_kind() -> None:
    assert {kind.__name__ for kind in _all_kinds()} == KINDS.keys()
    for kind in _all_kinds():
        for arguments in KINDS[kind.__name__]:
            for trained in ("all", "root", "others", "none"):
                _compare_state(kind, arguments, torch.float32, trained)
            _compare_state(kind, arguments, torch.float64, "root")
            if kind is not torch.optim.SparseAdam:  # torch refuses it
                _compare_state(kind, arguments, torch.bfloat16, "root")


def _compare_state(
    kind: type[torch.optim.Optimizer], arguments: dict[str, Any], dtype: torch.dtype, trained: str
) -> None:
    case = f"{kind.__name__} {arguments} {dtype} {trained}"
    parameters = _parameters(kind.__name__, dtype)
    optimizer: Any = kind(parameters, **arguments)  # type: ignore[arg-type]
    root = hvd.rank() == 0
    if trained == "all" or (trained == "root" and root) or (trained == "others" and not root):
        for _ in range(hvd.rank() + 1):
            _step(optimizer, 0.5 + hvd.rank())
    if not isinstance(optimizer.param_groups[0]["lr"], torch.Tensor):
        optimizer.param_groups[0]["lr"] = 0.5 + hvd.rank()
    mine = copy.deepcopy(optimizer.state_dict())
    kept = [parameter.detach().clone() for parameter in parameters]
    broadcast_optimizer_state(optimizer, root_rank=0)
    assert all(map(torch.equal, kept, parameters)), f"{case}: a step was taken"
    assert _same(optimizer.state_dict(), hvd.broadcast_object(mine, root_rank=0)), case
    assert type(optimizer) is kind
    broadcast_parameters(parameters, root_rank=0)
    _step(optimizer, 0.25)
    after = hvd.broadcast_object((parameters, optimizer.state_dict()), root_rank=0)
    assert _same((parameters, optimizer.state_dict()), after), f"{case}: the next step differs"


class _Hoarder(torch.optim.SGD):
    """Keeps state of every type, also apart from any parameter."""

    def collect(self, number: int) -> None:
        self.state["apart"] = {"count": number, "tensor": torch.tensor(number)}  # type: ignore[index]
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter] = {
                "none": None,
                "flag": number > 0,
                "number": 0.5 + number,
                "text": f"rank {number}",
                "list": [torch.full((2,), number), None, (number, torch.tensor(0.5 * number))],
                "ordered": OrderedDict(b=torch.tensor(number), a=number),
                "deque": deque([number, number + 1], maxlen=2),
                "complex": torch.tensor([complex(number, 1)]),
                "sparse": torch.eye(2).mul(number + 1).to_sparse(),
                "empty": torch.empty(0, 3),
                "bools": torch.tensor([True, number > 0]),
                "expanded": torch.tensor([[number]]).expand(2, 3),
                "transposed": (torch.arange(6).view(2, 3) + number).t(),
                "fp32 of an fp16 parameter": torch.tensor(0.1 + number),
            }


def check_state_of_every_type() -> None:
    parameter = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    for collected in (hvd.size(), 1):
        optimizer = _Hoarder([parameter], lr=0.1)
        if hvd.rank() < collected:
            optimizer.collect(hvd.rank())
        broadcast_optimizer_state(optimizer, 0, model=torch.nn.Linear(1, 1))
        expected = _Hoarder([parameter], lr=0.1)
        expected.collect(0)
        assert optimizer.state.keys() == expected.state.keys()
        for key, state in expected.state.items():
            for name, value in state.items():
                got = optimizer.state[key][name]
                if name == "expanded":
                    value = value.contiguous() if hvd.rank() else value
                if name == "sparse":
                    got, value = got.to_dense(), value.to_dense()
                assert _same(got, value), (name, got, value)
        assert isinstance(optimizer.state[parameter]["ordered"], OrderedDict)


def check_groups_and_their_hyperparameters() -> None:
    parameters = [torch.nn.Parameter(torch.ones(3)) for _ in range(3)]
    groups: list[dict[str, Any]] = [
        {"params": parameters[:2], "lr": 1.0 + hvd.rank()},
        {"params": []},
        {"params": parameters[2:]},
    ]
    optimizer = torch.optim.SGD(groups, lr=5.0 + hvd.rank(), momentum=0.5)
    optimizer.param_groups[0]["note"] = {"by": hvd.rank()} if hvd.rank() == 0 else None
    broadcast_optimizer_state(optimizer, root_rank=0, process_set=hvd.global_process_set)
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 5.0, 5.0]
    assert optimizer.param_groups[0]["note"] == {"by": 0}
    assert not optimizer.state


@needs_ranks(2)
def check_other_groups_are_an_error_on_every_rank() -> None:
    last = hvd.rank() == hvd.size() - 1
    one, two, other, narrow = torch.ones(3), torch.ones(2), torch.ones(4), torch.ones(3, 1)
    for mine in ([[other], [two]], [[narrow], [two]], [[one, two]], [[one]], [[two], [one]]):
        layout = mine if last else [[one], [two]]
        optimizer = torch.optim.SGD([{"params": group} for group in layout], lr=0.1)
        text = f"rank {hvd.size() - 1} has other parameter groups in its optimizer than rank 0"
        with pytest.raises(hvd.HorovodInternalError, match=text):
            broadcast_optimizer_state(optimizer, root_rank=0)


def check_the_state_instead_of_its_optimizer() -> None:
    state: Any = torch.optim.SGD([torch.ones(1)], lr=0.1).state_dict()
    with pytest.raises(ValueError, match="an optimizer is needed, itself and not its state: dict"):
        hvd.broadcast_optimizer_state(state, root_rank=0)


def check_a_distributed_optimizer() -> None:
    model = _model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (1 + hvd.rank()))
    hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    broadcast_parameters(model, root_rank=0)
    broadcast_optimizer_state(optimizer, root_rank=0)
    for _ in range(2):
        model(torch.ones(4, 3) * hvd.rank()).square().sum().backward()
        optimizer.step()
        broadcast_optimizer_state(optimizer, root_rank=0)
    roots = hvd.broadcast_object(optimizer.state_dict())
    assert _same(optimizer.state_dict(), roots)
