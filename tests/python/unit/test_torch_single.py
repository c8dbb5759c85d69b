"""The package in a single process: no launcher, size 1, and what an optimizer keeps when it is wrapped."""

from __future__ import annotations

import copy
import inspect
import io
import os
import pickle
import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch

import roundelay
import roundelay.torch as hvd
from roundelay._internal import backend, mpi_modules

pytestmark = pytest.mark.usefixtures("job_of_one")


def _model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))


def _step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()


def test_a_single_process_is_rank_0_of_1() -> None:
    assert hvd.is_initialized()
    assert (hvd.rank(), hvd.size()) == (0, 1)
    assert (hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()) == (0, 1, 0, 1)
    assert hvd.is_homogeneous()
    assert hvd.global_process_set.size() == 1
    assert hvd.global_process_set.included()


def test_horovods_functions_are_not_in_the_package_itself() -> None:
    with pytest.raises(AttributeError, match="'init'; did you mean `import roundelay.torch as hvd`"):
        _ = roundelay.init


def test_before_init_and_after_shutdown_calls_raise() -> None:
    hvd.shutdown()
    hvd.shutdown()
    model = _model()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    for call in (
        hvd.rank,
        hvd.size,
        hvd.local_rank,
        hvd.mpi_threads_supported,
        lambda: hvd.DistributedOptimizer(plain),
    ):
        with pytest.raises(ValueError, match="init"):
            call()
    for start in (
        hvd.barrier,
        lambda: hvd.allreduce(torch.ones(1)),
        lambda: hvd.broadcast(torch.ones(1), 0),
        lambda: hvd.broadcast_parameters(model.state_dict(), 0),
    ):
        with pytest.raises(hvd.HorovodInternalError, match="init"):
            start()


def test_a_single_process_uses_neither_mpi_nor_gloo() -> None:
    assert not hvd.mpi_enabled()
    assert not hvd.gloo_enabled()


def test_the_operations_have_horovods_numbers() -> None:
    assert [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product] == list(range(6))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'alreduce'"):
        _ = hvd.alreduce


# Horovod's parameters, in its order.
SIGNATURES = {
    "allreduce": "tensor average name compression op prescale_factor postscale_factor process_set",
    "allreduce_async": "tensor average name op prescale_factor postscale_factor process_set",
    "allreduce_": "tensor average name op prescale_factor postscale_factor process_set",
    "allreduce_async_": "tensor average name op prescale_factor postscale_factor process_set",
    "grouped_allreduce": "tensors average name compression op prescale_factor postscale_factor process_set",
    "grouped_allreduce_async": "tensors average name op prescale_factor postscale_factor process_set",
    "grouped_allreduce_": "tensors average name op prescale_factor postscale_factor process_set",
    "grouped_allreduce_async_": "tensors average name op prescale_factor postscale_factor process_set",
    "sparse_allreduce_async": "tensor name op process_set",
    "allgather": "tensor name process_set",
    "allgather_async": "tensor name process_set",
    "grouped_allgather": "tensors name process_set",
    "grouped_allgather_async": "tensors name process_set",
    "broadcast": "tensor root_rank name process_set",
    "broadcast_async": "tensor root_rank name process_set",
    "broadcast_": "tensor root_rank name process_set",
    "broadcast_async_": "tensor root_rank name process_set",
    "alltoall": "tensor splits name process_set",
    "alltoall_async": "tensor splits name process_set",
    "reducescatter": "tensor name compression op process_set prescale_factor postscale_factor",
    "reducescatter_async": "tensor name op process_set prescale_factor postscale_factor",
    "grouped_reducescatter": "tensors name compression op process_set prescale_factor postscale_factor",
    "grouped_reducescatter_async": "tensors name op process_set prescale_factor postscale_factor",
    "join": "device process_set",
    "barrier": "process_set",
    "poll": "handle",
    "synchronize": "handle",
    "init": "comm process_sets",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
}
DEFAULTS = {
    "average": None,
    "compression": hvd.Compression.none,
    "prescale_factor": 1.0,
    "postscale_factor": 1.0,
    "splits": None,
    "device": -1,
    "comm": None,
    "weight": None,
    "process_sets": None,
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_horovods(name: str) -> None:
    parameters = inspect.signature(getattr(hvd, name)).parameters
    own = ["weight"] if "allreduce" in name and not name.startswith("sparse") else []
    assert list(parameters) == SIGNATURES[name].split() + own
    assert all(parameters[each].kind is inspect.Parameter.KEYWORD_ONLY for each in own)
    assert name in hvd.__all__
    required = {"tensor", "tensors", "root_rank", "handle"}
    if name in ("sparse_allreduce_async", "add_process_set", "remove_process_set"):
        required |= {"name", "op", "process_set"} - ({"process_set"} if name.startswith("sparse") else set())
    op = hvd.Average if "reducescatter" in name else None
    defaults = {**DEFAULTS, "name": None, "op": op, "process_set": hvd.global_process_set}
    for parameter in parameters.values():
        expected = inspect.Parameter.empty if parameter.name in required else defaults[parameter.name]
        assert parameter.default is expected or parameter.default == expected, parameter


@pytest.mark.parametrize(
    "arguments",
    [
        {"backward_passes_per_step": 0},
        {"gradient_predivide_factor": 2.0, "op": hvd.Sum},
        {"gradient_predivide_factor": 0.0},
        {"op": 9},
        {"named_parameters": [torch.ones(1)]},
        {"named_parameters": [("a", torch.ones(1)), ("a", torch.ones(1))]},
        {"named_parameters": [("a", torch.ones(1))]},
    ],
)
def test_wrong_arguments_of_the_optimizer(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        hvd.DistributedOptimizer(torch.optim.SGD(_model().parameters(), lr=0.1), **arguments)


def test_the_optimizer_stays_the_object_it_was() -> None:
    model = _model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    _step(model, optimizer)
    state, groups = optimizer.state, optimizer.param_groups
    called = []
    optimizer.register_step_pre_hook(lambda *_: called.append("pre"))
    optimizer.register_step_post_hook(lambda *_: called.append("post"))
    assert hvd.DistributedOptimizer(optimizer, model.named_parameters()) is optimizer
    assert type(optimizer) is torch.optim.Adam
    assert optimizer.state is state
    assert optimizer.param_groups is groups
    _step(model, optimizer)
    assert called == ["pre", "post"]
    optimizer.synchronize()  # type: ignore[attr-defined]
    with optimizer.skip_synchronize():  # type: ignore[attr-defined]
        optimizer.step()


def test_schedulers_made_before_and_after() -> None:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer = hvd.DistributedOptimizer(optimizer)
    after = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _step(model, optimizer)
        before.step()
        after.step()
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_copies_pickles_and_checkpoints() -> None:
    model = _model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    _step(model, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for again in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
            assert type(again) is torch.optim.SGD
            assert "synchronize" not in vars(again)
            again.step()
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        copy.deepcopy(model)
    file.seek(0)
    loaded = torch.load(file)
    fresh = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    fresh.load_state_dict(loaded["optimizer"])
    assert fresh.param_groups[0]["lr"] == 0.1
    optimizer.load_state_dict(loaded["optimizer"])
    _step(model, optimizer)


class KeepsEverything(torch.optim.SGD):
    """An optimizer that pickles all its attributes."""

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)


def test_copies_of_an_optimizer_that_copies_all_attributes_do_nothing_of_ours() -> None:
    model = _model()
    optimizer = hvd.DistributedOptimizer(KeepsEverything(model.parameters(), lr=0.1))
    for again in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert type(again) is KeepsEverything
        vars(again)["synchronize"]()
        again.step()


def test_operations_of_one_rank() -> None:
    x = torch.arange(3.0)
    assert hvd.allreduce(x).tolist() == [0, 1, 2]
    assert hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0).tolist() == [0, 2, 4]
    assert hvd.allreduce_(x) is x
    assert hvd.broadcast(x, 0).tolist() == [0, 1, 2]
    assert hvd.broadcast_object({"a": 1}) == {"a": 1}
    assert hvd.allgather(x).tolist() == [0, 1, 2]
    assert isinstance(hvd.alltoall(x), torch.Tensor)
    output, received = hvd.alltoall(x, [3])
    assert (output.tolist(), received.tolist()) == ([0, 1, 2], [3])
    assert hvd.reducescatter(x, op=hvd.Sum).tolist() == [0, 1, 2]
    assert hvd.grouped_allreduce([x, x.int()])[1].tolist() == [0, 1, 2]
    assert hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), None, hvd.Sum)().to_dense().sum() == 2
    assert hvd.join() == 0
    with pytest.raises(ValueError, match="123456"):
        hvd.synchronize(123456)
    hvd.barrier()


def test_the_configuration_can_be_printed() -> None:
    text = str(roundelay.config)
    assert "ROUNDELAY_THETA" in text
    assert roundelay.config.theta > 0


def test_a_launcher_without_the_mpi_module_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_modules, "built", dict)
    with pytest.raises(RuntimeError, match=r"PMIX_RANK.*mpicxx"):
        backend.choose("auto", {"PMIX_RANK": "1"})
    with pytest.raises(RuntimeError, match="ROUNDELAY_BOOTSTRAP"):
        backend.choose("mpi", {})
    assert backend.choose("auto", {})[0] is None
    assert backend.choose("single", {"PMIX_RANK": "1"})[0] is None
    assert backend.choose("auto", {"OMPI_COMM_WORLD_SIZE": "1"})[0] is None
    monkeypatch.setattr(mpi_modules, "built", lambda: {"mpich": "here.so"})
    assert backend.choose("auto", {"PMI_RANK": "0"})[0] == "here.so"


def test_the_command_line_tools_do_not_load_torch() -> None:
    script = "import roundelay, sys; print('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert result.stdout.strip() == "False"
