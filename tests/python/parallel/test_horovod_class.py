"""``_DistributedOptimizer`` as public programs use it: subclassed, copied into another class, asked for."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check
from roundelay.torch.optimizer import _DistributedOptimizer
from small_gradients import add_gradients, gradient_of, make_parameters, sum_of_ranks


@pytest.mark.parametrize("np", [1, 2, 4])
def test_horovod_class(np: int, check: Check) -> None:
    run_check(check, np)


def of_class_of(optimizer: torch.optim.Optimizer, methods: type, *arguments: Any, **named: Any) -> Any:
    """What Horovod does, and programs that have copied it: a new class over the optimizer's."""
    kind = type(type(optimizer).__name__, (type(optimizer),), dict(methods.__dict__))
    return kind(optimizer.param_groups, *arguments, **named)


class Scaled(_DistributedOptimizer, torch.optim.SGD):
    """A user's subclass."""

    def __init__(self, params: Any, factor: float, **arguments: Any) -> None:
        super().__init__(params, **arguments)
        self.factor = factor
        self.calls: list[str] = []

    def synchronize(self) -> None:
        self.calls.append("synchronize")
        super().synchronize()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(self.factor)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        self.calls.append("step")
        return super().step(closure)


def groups(*parameters: torch.nn.Parameter) -> list[dict[str, Any]]:
    return [{"params": list(parameters), "lr": 1.0}]


def check_a_later_hook_of_the_user() -> None:
    """What it makes of the gradient is what is reduced, of a gradient alone and of a group."""

    def double(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad = parameter.grad * 2

    for members in (None, 1):
        first, second = make_parameters(2)
        optimizer = of_class_of(
            torch.optim.SGD(groups(first, second)), _DistributedOptimizer, groups=members, op=hvd.Sum
        )
        for parameter in (first, second):
            parameter.register_post_accumulate_grad_hook(double)
        for _ in range(2):
            optimizer.zero_grad()
            add_gradients((first, 1.0), (second, float(hvd.rank() + 1)))
            optimizer.synchronize()
            assert set(gradient_of(first)) == {2.0 * hvd.size()}
            assert set(gradient_of(second)) == {2.0 * sum_of_ranks()}


def check_a_subclass_that_calls_super() -> None:
    first, second = make_parameters(2)
    optimizer = Scaled(groups(first, second), 2.0, op=hvd.Sum)
    for step in (1, 2):
        optimizer.zero_grad()
        add_gradients((first, float(hvd.rank() + 1)), (second, 1.0))
        optimizer.step()
        assert first.tolist() == [-2.0 * step * sum_of_ranks()] * 3
        assert second.tolist() == [-2.0 * step * hvd.size()] * 3
    assert optimizer.calls == ["step", "synchronize"] * 2
    assert isinstance(optimizer, _DistributedOptimizer)


def check_the_methods_in_a_class_over_the_optimizers() -> None:
    (parameter,) = make_parameters(1)
    plain = torch.optim.SGD([parameter], lr=0.5, momentum=0.5)
    named = [("weight", parameter)]
    optimizer = of_class_of(plain, _DistributedOptimizer, named, hvd.Compression.fp16, 1, hvd.Sum)
    assert isinstance(optimizer, torch.optim.SGD)
    assert isinstance(optimizer, _DistributedOptimizer)
    assert not isinstance(plain, _DistributedOptimizer)
    assert optimizer._parameter_names == {parameter: "weight"}
    plain.param_groups[0]["lr"] = 0.5 + hvd.rank()  # both have these groups
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["lr"] == 0.5
    add_gradients((parameter, float(hvd.rank() + 1)))
    optimizer.synchronize()
    assert gradient_of(parameter) == [sum_of_ranks()] * 3
    with optimizer.skip_synchronize():
        optimizer.step()
    assert parameter.tolist() == [-0.5 * sum_of_ranks()] * 3


def check_step_after_synchronize_reduces_once() -> None:
    (parameter,) = make_parameters(1)
    optimizer = Scaled(groups(parameter), 1.0, op=hvd.Sum)
    add_gradients((parameter, 1.0))
    optimizer.synchronize()
    optimizer.step()
    assert parameter.tolist() == [-float(hvd.size())] * 3


class TopOne(_DistributedOptimizer):
    """As GRACE does: the largest element of each gradient travels with its place, by allgather."""

    def _allreduce_grad_async(self, p: torch.Tensor) -> Any:
        assert p.grad is not None
        flat = p.grad.flatten()
        place = flat.abs().argmax().reshape(1)
        name = self._parameter_names[p]
        handles = [
            hvd.allgather_async(flat[place], name=f"{name}.value"),
            hvd.allgather_async(place, name=f"{name}.place"),
        ]
        return handles, p.grad.shape

    def synchronize(self) -> None:
        for parameter, (handles, shape) in self._handles.items():
            values, places = map(hvd.synchronize, handles)
            dense = torch.zeros(shape).flatten().index_add_(0, places, values)
            assert isinstance(parameter, torch.Tensor)
            parameter.grad = dense.reshape(shape) / hvd.size()
        self._handles.clear()
        self._allreduce_delay = dict.fromkeys(self._allreduce_delay, self.backward_passes_per_step)


def check_a_compressor_like_graces() -> None:
    (parameter,) = make_parameters(1, size=8)

    class Merged(TopOne, torch.optim.SGD):
        pass

    optimizer = Merged(groups(parameter), [("weight", parameter)])
    pattern = torch.ones(8)
    pattern[hvd.rank()] = 4.0 * hvd.size()
    for _ in range(2):
        optimizer.zero_grad()
        (parameter * pattern).sum().backward()
        optimizer.step()
    chosen = [-8.0] * hvd.size() + [0.0] * (8 - hvd.size())
    assert parameter.tolist() == (chosen if hvd.size() > 1 else (-2 * pattern).tolist())


def check_a_preconditioner_like_kfacs() -> None:
    """Factors of each rank's inputs are added beside the gradients, which they multiply."""
    layer = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.zeros_(layer.weight)
    plain = torch.optim.SGD(layer.parameters(), lr=1.0)
    optimizer: Any = hvd.DistributedOptimizer(plain, layer.named_parameters())
    factors: list[torch.Tensor] = []
    layer.register_forward_pre_hook(lambda _, inputs: factors.append(inputs[0].T @ inputs[0]))
    for _ in range(2):
        factors.clear()
        optimizer.zero_grad()
        layer(torch.tensor([[hvd.rank() + 1.0, 0.0], [0.0, 2.0]])).sum().backward()
        handle = hvd.allreduce_async_(factors[0], name="factor", op=hvd.Sum)
        optimizer.synchronize()
        hvd.synchronize(handle)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = parameter.grad @ factors[0]
        with optimizer.skip_synchronize():
            optimizer.step()
    squares = sum((rank + 1.0) ** 2 for rank in range(hvd.size()))
    expected = [-2 * sum_of_ranks() / hvd.size() * squares, -2 * 2.0 * 4.0 * hvd.size()]
    assert layer.weight.tolist() == [expected]


COPIED = ("__init__", "_register_hooks", "_allreduce_grad_async", "synchronize", "step")


def check_some_methods_beside_a_hook_of_the_users() -> None:
    """As nmtlab does."""
    called = []

    def make_hook(self: Any, p: torch.Tensor) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            called.append(self._parameter_names[p])
            self._handles[p] = self._allreduce_grad_async(p)

        return hook

    first, second = make_parameters(2)
    plain = torch.optim.Adagrad([first, second], lr=1.0)
    methods = {name: getattr(_DistributedOptimizer, name) for name in COPIED}
    kind: Any = type("Adagrad", (type(plain),), {**methods, "_make_hook": make_hook})
    optimizer = kind(plain.param_groups, [("first", first), ("second", second)], hvd.Compression.none)
    add_gradients((first, float(hvd.rank())), (second, 2.0))
    optimizer.step()
    assert sorted(called) == ([] if hvd.size() == 1 else ["first", "second"])
    assert gradient_of(first) == [(sum_of_ranks() - hvd.size()) / hvd.size()] * 3


def check_windows_of_several_backwards() -> None:
    first, second = make_parameters(2)
    optimizer = Scaled(groups(first, second), 1.0, op=hvd.Sum, backward_passes_per_step=2)
    add_gradients((first, float(hvd.rank() + 1)))
    assert gradient_of(first) == [float(hvd.rank() + 1)] * 3
    add_gradients((first, float(hvd.rank() + 1)))
    if hvd.rank() == 0:
        add_gradients((second, 1.0))  # a window that this rank alone has begun
    optimizer.step()
    assert first.tolist() == [-2 * sum_of_ranks()] * 3
    assert second.tolist() == ([-1.0] * 3)
    optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(1)
    add_gradients((first, 1.0))
    if hvd.size() > 1:
        with pytest.raises(RuntimeError, match="more than backward_passes_per_step=1 times"):
            add_gradients((first, 1.0))
        with pytest.raises(RuntimeError, match="while gradients are in flight"):
            optimizer.zero_grad()
    optimizer.step()


def check_groups_factors_and_missing_gradients() -> None:
    parameters = make_parameters(4)
    named = [(f"layer.{number}", one) for number, one in enumerate(parameters)]
    optimizer = Scaled(
        groups(*parameters), 1.0, named_parameters=named, groups=2, gradient_predivide_factor=4.0
    )
    used = parameters if hvd.rank() == 0 else parameters[:3]
    add_gradients(*((one, 4.0 * hvd.size()) for one in used))
    optimizer.step()
    assert [one.tolist() for one in parameters[:3]] == [[-4.0 * hvd.size()] * 3] * 3
    assert parameters[3].tolist() == [-4.0] * 3


def check_sparse_gradients() -> None:
    for dense in (False, True):
        weight = torch.nn.Parameter(torch.zeros(4, 2))
        optimizer = Scaled(groups(weight), 1.0, op=hvd.Sum, sparse_as_dense=dense)
        torch.nn.functional.embedding(torch.tensor([hvd.rank() % 4]), weight, sparse=True).sum().backward()
        optimizer.step()
        assert weight.grad is not None
        assert weight.grad.is_sparse
        assert weight.tolist() == [[-1.0] * 2] * hvd.size() + [[0.0] * 2] * (4 - hvd.size())


def check_a_closures_gradients_are_reduced() -> None:
    (parameter,) = make_parameters(1)
    optimizer = Scaled(groups(parameter), 1.0)

    def closure() -> float:
        optimizer.zero_grad()
        add_gradients((parameter, float(hvd.rank() + 1)))
        return 7.0

    assert optimizer.step(closure) == 7.0
    assert parameter.tolist() == [-sum_of_ranks() / hvd.size()] * 3


@needs_ranks(2)
def check_other_ranks_are_left_alone() -> None:
    members = hvd.add_process_set([0])
    (parameter,) = make_parameters(1)
    optimizer = Scaled(groups(parameter), 1.0, process_set=members)
    add_gradients((parameter, float(hvd.rank() + 1)))
    optimizer.step()
    assert parameter.tolist() == [-float(hvd.rank() + 1)] * 3
    hvd.remove_process_set(members)


def check_wrapping_twice_is_an_error() -> None:
    (parameter,) = make_parameters(1)
    plain = torch.optim.SGD([parameter], lr=1.0)
    once = of_class_of(plain, _DistributedOptimizer)
    with pytest.raises(ValueError, match="SGD is wrapped twice"):
        of_class_of(once, _DistributedOptimizer)
    with pytest.raises(ValueError, match="of a SGD with the methods of _DistributedOptimizer, which reduces"):
        of_class_of(plain, _DistributedOptimizer)
    with pytest.raises(ValueError, match="which reduces its gradients already: leave one of the two out"):
        hvd.DistributedOptimizer(once)
    hvd.barrier()
    del once
    optimizer = hvd.DistributedOptimizer(plain)
    assert isinstance(optimizer, _DistributedOptimizer)
    with pytest.raises(ValueError, match="hvd.DistributedOptimizer has wrapped, which reduces .* wrap once"):
        of_class_of(plain, _DistributedOptimizer)


def check_wrong_arguments() -> None:
    (parameter,) = make_parameters(1)

    def refused(match: str, **arguments: Any) -> None:
        with pytest.raises(ValueError, match=match):
            Scaled(groups(parameter), 1.0, **arguments)

    refused("op=hvd.Adasum", op=hvd.Adasum)
    refused("backward_passes_per_step is 0", backward_passes_per_step=0)
    refused("more than once: a", named_parameters=[("a", parameter), ("a", parameter)])
    refused("named_parameters lacks 1", named_parameters=[("a", torch.nn.Parameter(torch.zeros(1)))])


def _settings(optimizer: Any) -> list[Any]:
    names: Iterable[str] = ("op", "backward_passes_per_step", "gradient_predivide_factor", "process_set")
    return [getattr(optimizer, name) for name in (*names, "_compression", "_groups", "sparse_as_dense")]


def check_settings_can_be_read_and_a_second_wrapping_keeps_them() -> None:
    (parameter,) = make_parameters(1)
    world = hvd.global_process_set
    fp16 = hvd.Compression.fp16
    given: dict[str, Any] = {"op": hvd.Sum, "backward_passes_per_step": 2, "compression": fp16}
    optimizer: Any = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), groups=1, **given)
    assert _settings(optimizer) == [hvd.Sum, 2, 1.0, world, fp16, 1, False]
    with pytest.raises(ValueError, match="SGD is wrapped already, with op=Sum, .* has op=Average: wrap once"):
        hvd.DistributedOptimizer(optimizer)
    with pytest.raises(
        ValueError, match="with backward_passes_per_step=2, .* has backward_passes_per_step=1"
    ):
        hvd.DistributedOptimizer(optimizer, op=hvd.Sum, compression=fp16)
    with pytest.raises(
        ValueError, match="with compression=FP16Compressor, .* has compression=NoneCompressor"
    ):
        hvd.DistributedOptimizer(optimizer, op=hvd.Sum, backward_passes_per_step=2)
    optimizer.set_backward_passes_per_step(1)
    assert optimizer.backward_passes_per_step == 1
    given["backward_passes_per_step"] = 1
    hvd.DistributedOptimizer(optimizer, [("weight", parameter)], strategy="dense", **given)
    assert _settings(optimizer) == [hvd.Sum, 1, 1.0, world, fp16, None, False]
    add_gradients((parameter, float(hvd.rank() + 1)))
    assert gradient_of(parameter) == [sum_of_ranks()] * 3
    for plain in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert not hasattr(plain, "op")


class Operand(torch.optim.SGD):
    """An optimizer that has an attribute of the name of a setting."""

    op = "mine"


def check_an_optimizers_own_attributes_stay() -> None:
    (parameter,) = make_parameters(1)
    optimizer = hvd.DistributedOptimizer(Operand([parameter], lr=1.0), op=hvd.Sum)
    assert optimizer.op == "mine"
    hvd.DistributedOptimizer(optimizer, op=hvd.Sum)
    assert optimizer.op == "mine"
