"""The sub-modules that scripts reach into have their public names, also those whose time is still to come."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from roundelay import horovod_shim
from roundelay.errors import HorovodInternalError
from roundelay.torch import elastic, mpi_ops, process_sets
from roundelay.torch._internal import global_state, operations

LIFE = """
init shutdown is_initialized rank size local_rank local_size cross_rank cross_size is_homogeneous
mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built cuda_built
rocm_built start_timeline stop_timeline
"""


@pytest.fixture
def horovod(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The stand-in, imported for the time of a test."""
    before = {name for name in sys.modules if name.partition(".")[0] == "horovod"}
    assert not before
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    horovod_shim.install()
    yield importlib.import_module("horovod")
    for name in [name for name in sys.modules if name.partition(".")[0] == "horovod"]:
        del sys.modules[name]


def test_mpi_ops_has_operations_life_and_process_sets() -> None:
    for module in (operations, process_sets):
        for name in getattr(module, "__all__", []):
            assert getattr(mpi_ops, name) is getattr(module, name)
    for name in LIFE.split():
        assert getattr(mpi_ops, name) is getattr(global_state, name)


def test_elastic_classes_are_horovods() -> None:
    assert issubclass(elastic.TorchState, elastic.ObjectState)
    assert issubclass(elastic.ObjectState, elastic.State)
    assert elastic.HorovodInternalError is HorovodInternalError
    assert elastic.HostsUpdatedInterrupt(skip_sync=True).skip_sync
    assert issubclass(elastic.HostsUpdatedInterrupt, RuntimeError)


def test_run_is_roundelays(horovod: Any) -> None:
    assert horovod.run(divmod, (7, 2), num_proc=2) == [(3, 1)] * 2


def test_frameworks_that_are_not_there(horovod: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tensorflow", "keras", "mxnet", "spark", "ray", "torch.nothing"):
        with pytest.raises(ImportError, match="horovod"):
            importlib.import_module(f"horovod.{name}")
    for name in ("spark", "ray"):
        with pytest.raises(ImportError, match=rf"Roundelay has no horovod\.{name}: start ranks with"):
            importlib.import_module(f"horovod.{name}")
    util: Any = importlib.import_module("horovod.common.util")
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", "file", "mpi_lib_v2")
    with pytest.raises(ImportError, match=r"there is no horovod\.tensorflow"):
        util.check_extension("horovod.tensorflow")
    assert util.extension_available("torch")
    assert not util.extension_available("mxnet", verbose=True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert util.gpu_available("torch")
    assert not util.gpu_available("tensorflow")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not util.gpu_available("torch", verbose=True)


def test_horovods_helpers(horovod: ModuleType) -> None:
    util: Any = importlib.import_module("horovod.common.util")
    assert util.split_list([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4, 5]]
    assert util.split_list([1], 1) == [[1]]
    assert [number for number in range(-2, 9) if util.num_rank_is_power_2(number)] == [1, 2, 4, 8]
    assert util.is_iterable([])
    assert not util.is_iterable(1)
    os.environ["H_B"] = "before"
    with util.env(H_A="1", H_B=None):
        assert os.environ["H_A"] == "1"
        assert "H_B" not in os.environ
    assert os.environ.pop("H_B") == "before"
    assert "H_A" not in os.environ


def test_the_stand_in_is_the_same_modules(horovod: Any) -> None:
    import roundelay.torch

    assert importlib.import_module("horovod.torch") is roundelay.torch
    for name in ("mpi_ops", "compression", "functions", "optimizer", "sync_batch_norm", "elastic"):
        ours = importlib.import_module(f"roundelay.torch.{name}")
        assert importlib.import_module(f"horovod.torch.{name}") is ours
        assert ours.__spec__ is not None
        assert ours.__spec__.name == f"roundelay.torch.{name}"
    assert horovod.torch is roundelay.torch
    assert Path(str(horovod.__file__)).is_relative_to(horovod_shim.SITE)
