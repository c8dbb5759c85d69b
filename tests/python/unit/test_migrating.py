"""docs/migrating.md is complete and true: every name of Horovod's interface has a line, every line a test."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import PROGRAMS, ROOT
from roundelay import _core
from roundelay.run.agent import horovod_variables
from roundelay.run.arguments import parser as arguments
from roundelay.run.errors import UsageError

PAGE = ROOT / "docs" / "migrating.md"
TESTS = ROOT / "tests" / "python"
KINDS = ("works", "differs", "absent")


def words(text: str) -> list[str]:
    return text.split()


# Horovod's interface as it is documented: what a program may call, with which arguments.
SCALES = "prescale_factor=1.0, postscale_factor=1.0"
SET = "process_set=global_process_set"
REDUCED = f"average=None, name=None, op=None, {SCALES}, {SET}"
REDUCED_BLOCKING = f"average=None, name=None, compression=Compression.none, op=None, {SCALES}, {SET}"
SCATTERED = f"name=None, op=Average, {SET}, {SCALES}"
SCATTERED_BLOCKING = f"name=None, compression=Compression.none, op=Average, {SET}, {SCALES}"
SIGNATURES = {
    "init": "comm=None, process_sets=None",
    **dict.fromkeys(("shutdown", "is_initialized", "rank", "size", "local_rank", "local_size"), ""),
    **dict.fromkeys(("cross_rank", "cross_size", "mpi_threads_supported", "mpi_enabled", "mpi_built"), ""),
    **dict.fromkeys(("gloo_enabled", "gloo_built", "nccl_built", "ddl_built", "ccl_built"), ""),
    **dict.fromkeys(("cuda_built", "rocm_built", "is_homogeneous", "stop_timeline"), ""),
    "start_timeline": "file_path, mark_cycles=False",
    "allreduce": f"tensor, {REDUCED_BLOCKING}",
    **dict.fromkeys(("allreduce_async", "allreduce_", "allreduce_async_"), f"tensor, {REDUCED}"),
    "grouped_allreduce": f"tensors, {REDUCED_BLOCKING}",
    **dict.fromkeys(
        ("grouped_allreduce_async", "grouped_allreduce_", "grouped_allreduce_async_"), f"tensors, {REDUCED}"
    ),
    "sparse_allreduce_async": f"tensor, name, op, {SET}",
    **dict.fromkeys(("allgather", "allgather_async"), f"tensor, name=None, {SET}"),
    **dict.fromkeys(("grouped_allgather", "grouped_allgather_async"), f"tensors, name=None, {SET}"),
    **dict.fromkeys(
        ("broadcast", "broadcast_async", "broadcast_", "broadcast_async_"),
        f"tensor, root_rank, name=None, {SET}",
    ),
    **dict.fromkeys(("alltoall", "alltoall_async"), f"tensor, splits=None, name=None, {SET}"),
    "reducescatter": f"tensor, {SCATTERED_BLOCKING}",
    "reducescatter_async": f"tensor, {SCATTERED}",
    "grouped_reducescatter": f"tensors, {SCATTERED_BLOCKING}",
    "grouped_reducescatter_async": f"tensors, {SCATTERED}",
    "join": "device=-1",
    "barrier": SET,
    **dict.fromkeys(("poll", "synchronize"), "handle"),
    "ProcessSet": "ranks_or_comm",
    **dict.fromkeys(("add_process_set", "remove_process_set"), "process_set"),
    "broadcast_parameters": "params, root_rank",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None",
    "broadcast_object": f"obj, root_rank=0, name=None, {SET}",
    "allgather_object": "obj, name=None",
    "SyncBatchNorm": "num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True",
    "DistributedOptimizer": "optimizer, named_parameters=None, compression=Compression.none, "
    "backward_passes_per_step=1, op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, "
    f"sparse_as_dense=False, {SET}",
}
OTHER_NAMES = (
    *("Average", "Sum", "Adasum", "Min", "Max", "Product"),
    *("HorovodInternalError", "Compression", "global_process_set"),
)
OF_THE_OPTIMIZER = (
    *("synchronize", "skip_synchronize", "step", "zero_grad", "load_state_dict", "find_duplicates"),
    *("set_backward_passes_per_step", "_parameter_names", "_handles", "_requires_update"),
    *("named_parameters", "compression", "backward_passes_per_step", "op", "gradient_predivide_factor"),
    *("num_groups", "groups", "sparse_as_dense", "process_set"),
)
MODULES = ("mpi_ops", "compression", "functions", "optimizer", "sync_batch_norm", "elastic")
VARIABLES = words("""
FUSION_THRESHOLD CYCLE_TIME CACHE_CAPACITY BATCH_D2D_MEMCOPIES HIERARCHICAL_ALLREDUCE HIERARCHICAL_ALLGATHER
TORUS_ALLREDUCE NUM_NCCL_STREAMS DISABLE_GROUP_FUSION ENABLE_ASYNC_COMPLETION DYNAMIC_PROCESS_SETS
THREAD_AFFINITY MPI_THREADS_DISABLE CONTROLLER CPU_OPERATIONS ADASUM_MPI_CHUNK_SIZE AUTOTUNE AUTOTUNE_LOG
AUTOTUNE_WARMUP_SAMPLES AUTOTUNE_STEPS_PER_SAMPLE AUTOTUNE_BAYES_OPT_MAX_SAMPLES
AUTOTUNE_GAUSSIAN_PROCESS_NOISE TIMELINE TIMELINE_MARK_CYCLES STALL_CHECK_DISABLE STALL_CHECK_TIME_SECONDS
STALL_SHUTDOWN_TIME_SECONDS LOG_LEVEL LOG_HIDE_TIME DISABLE_NVTX_RANGES ELASTIC GLOO_IFACE
GLOO_TIMEOUT_SECONDS GLOO_RENDEZVOUS_ADDR GLOO_RENDEZVOUS_PORT HOSTNAME RANK SIZE LOCAL_RANK LOCAL_SIZE
CROSS_RANK CROSS_SIZE START_TIMEOUT ELASTIC_TIMEOUT SECRET_KEY ENABLE_XLA_OPS CCL_CACHE SPARK_START_TIMEOUT
SPARK_USE_LOCAL_RANK_GPU_INDEX SPARK_PYTHONPATH SPARK_WORK_DIR TEST_GPU MIXED_INSTALL
""")
FLAGS = words("""
-v --version -np --num-proc -cb --check-build --disable-cache --start-timeout --network-interfaces
--network-interface --output-filename --verbose --config-file -p --ssh-port -i --ssh-identity-file
--fusion-threshold-mb --cycle-time-ms --cache-capacity --hierarchical-allreduce --no-hierarchical-allreduce
--hierarchical-allgather --no-hierarchical-allgather --torus-allreduce --no-torus-allreduce --autotune
--no-autotune --autotune-log-file --autotune-warmup-samples --autotune-steps-per-sample
--autotune-bayes-opt-max-samples --autotune-gaussian-process-noise --min-np --min-num-proc --max-np
--max-num-proc --slots-per-host --elastic-timeout --reset-limit --blacklist-cooldown-range
--timeline-filename --timeline-mark-cycles --no-timeline-mark-cycles --no-stall-check --stall-check
--stall-check-warning-time-seconds --stall-check-shutdown-time-seconds --mpi-threads-disable
--no-mpi-threads-disable --mpi-args --tcp --binding-args --num-nccl-streams --thread-affinity
--gloo-timeout-seconds --log-level --log-with-timestamp --log-without-timestamp
-prefix-timestamp --prefix-output-with-timestamp --log-hide-timestamp --no-log-hide-timestamp -H --hosts
-hostfile --hostfile --host-discovery-script --gloo --mpi --jsrun
""")


@dataclass(frozen=True)
class Line:
    """One line of a table; names are the words in backticks of its first cell."""

    section: str
    names: tuple[str, ...]
    kind: str
    why: str
    test: str


@cache
def lines() -> tuple[Line, ...]:
    found, section = [], ""
    for text in PAGE.read_text().splitlines():
        if text.startswith("## "):
            section = text.removeprefix("## ")
        cells = [cell.strip() for cell in text.strip("|").split("|")] if text.startswith("|") else []
        if not cells or cells[0] == "Horovod" or set(cells[0]) == {"-"}:
            continue
        assert len(cells) == 4, text
        what, kind, why, test = cells
        found.append(Line(section, tuple(re.findall(r"`([^`]+)`", what)), kind, why, test))
    return tuple(found)


def names_of(kinds: tuple[str, ...] = KINDS, *sections: str) -> set[str]:
    chosen = [line for line in lines() if line.kind in kinds and (not sections or line.section in sections)]
    return {re.sub(r"\(.*\)$", "", name) for line in chosen for name in line.names}


def test_every_name_of_horovods_has_a_line() -> None:
    variables = [f"HOROVOD_{name}" for name in VARIABLES]
    modules = [f"hvd.{name}" for name in MODULES]
    wanted = [*SIGNATURES, *OTHER_NAMES, *OF_THE_OPTIMIZER, *modules, *variables, *FLAGS]
    assert not [name for name in wanted if name not in names_of()]


def test_every_line_says_what_and_names_its_test() -> None:
    missing = []
    for line in lines():
        assert line.kind in KINDS, line
        assert line.kind == "works" or line.why, f"{line.names}: how does it differ, why is it absent?"
        match = re.fullmatch(r"`([\w/]+\.py)::(\w+)`", line.test)
        assert match is not None, line
        file, function = match.groups()
        if function not in functions_of(TESTS / file):
            missing.append(f"{line.names}: {file}::{function}")
    assert not missing, "\n".join(missing)


@cache
def functions_of(file: Path) -> frozenset[str]:
    if not file.exists():
        return frozenset()
    tree = ast.parse(file.read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return frozenset(name for name in functions if name.startswith(("test_", "check_")))


def test_names_that_the_page_lists_are_there_or_absent() -> None:
    of_hvd = {name for name in names_of(("works", "differs")) if name in {*SIGNATURES, *OTHER_NAMES}}
    assert not [name for name in of_hvd if not hasattr(hvd, name)]
    absent = {name for line in lines() if line.kind == "absent" for name in line.names}
    assert not [name for name in absent if name in SIGNATURES and hasattr(hvd, name)]


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    """Ours begins with Horovod's arguments; what comes after them has defaults."""
    horovods = eval(f"lambda {SIGNATURES[name]}: None", dict(vars(hvd)))
    expected = list(inspect.signature(horovods).parameters.values())
    try:
        ours = list(inspect.signature(getattr(hvd, name)).parameters.values())
    except ValueError:  # a function of the core, whose stub has the signature
        assert getattr(hvd, name).__doc__.partition("->")[0].strip() == f"{name}()"
        assert not expected
        return
    assert [(each.name, each.default) for each in ours[: len(expected)]] == [
        (each.name, each.default) for each in expected
    ]
    assert all(each.default is not each.empty for each in ours[len(expected) :])


@pytest.mark.usefixtures("job_of_one")
def test_the_optimizers_methods() -> None:
    model = torch.nn.Linear(2, 1)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer: Any = hvd.DistributedOptimizer(plain, model.named_parameters())
    model(torch.ones(1, 2)).backward()
    assert optimizer._handles == {}
    assert optimizer._requires_update == set(model.parameters())
    assert {name: parameter for parameter, name in optimizer._parameter_names.items()} == dict(
        model.named_parameters()
    )
    optimizer.synchronize()
    optimizer.set_backward_passes_per_step(2)
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    optimizer.load_state_dict(optimizer.state_dict())
    assert not hasattr(optimizer, "find_duplicates")


@pytest.mark.usefixtures("job_of_one")
def test_sets_of_communicators_are_refused() -> None:
    class Communicator:
        """What mpi4py's look like."""

        def Get_rank(self) -> int:  # noqa: N802
            return 0

    with pytest.raises(hvd.NotInThisVersionError, match="list of world ranks"):
        hvd.ProcessSet(Communicator())  # type: ignore[arg-type]


@pytest.mark.usefixtures("job_of_one")
def test_other_devices_are_refused() -> None:
    """A tensor of the kind that every machine can make."""
    with pytest.raises(ValueError, match="on device meta, but Roundelay works on the CPU and on CUDA"):
        hvd.allreduce(torch.ones(1, device="meta"))


@pytest.mark.usefixtures("job_of_one")
def test_the_timeline_needs_its_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="DYNAMIC"):
        hvd.start_timeline(str(tmp_path / "never.json"))
    hvd.shutdown()
    monkeypatch.setenv("HOROVOD_TIMELINE", "DYNAMIC")
    hvd.init()
    hvd.start_timeline(str(tmp_path / "trace.json"), mark_cycles=True)
    hvd.allreduce(torch.ones(1), name="in.the.trace")
    hvd.stop_timeline()
    hvd.shutdown()
    assert "in.the.trace" in (tmp_path / "trace.json").read_text()


def test_modules() -> None:
    horovods = {
        "mpi_ops": [name for name in SIGNATURES if name.startswith(("all", "group", "broadcast_a", "poll"))],
        "compression": ["Compression", "NoneCompressor", "FP16Compressor"],
        "functions": ["broadcast_parameters", "broadcast_optimizer_state", "broadcast_object"],
        "optimizer": ["DistributedOptimizer"],
        "sync_batch_norm": ["SyncBatchNorm"],
    }
    horovods["mpi_ops"].remove("allgather_object")
    horovods["mpi_ops"] += [*OTHER_NAMES, "synchronize", "join", "barrier", "rank", "init", "is_homogeneous"]
    for module, names in horovods.items():
        found = importlib.import_module(f"roundelay.torch.{module}")
        assert not [name for name in names if not hasattr(found, name)], module
        same = [name for name in names if hasattr(hvd, name)]
        assert all(getattr(found, name) is getattr(hvd, name) for name in same), module


@pytest.mark.parametrize("there", [True, False])
def test_gpu_available(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert hvd.mpi_ops.gpu_available("torch") is there
    assert hvd.mpi_ops.gpu_available("torch", verbose=True) is there
    assert hvd.mpi_ops.gpu_available("tensorflow") is False


def test_what_the_stand_in_has_not() -> None:
    others = ("spark", "ray", "data", "tensorflow", "keras", "mxnet")
    assert {f"horovod.{name}" for name in others} <= names_of(("absent",), "Modules")
    script = str(PROGRAMS / "horovod_modules_that_are_absent.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    run = subprocess.run(
        [sys.executable, script, *others], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_run_under_horovods_name() -> None:
    script = str(PROGRAMS / "horovod_run.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    run = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "['roundelay.torch', 'roundelay.torch']\n"


def test_flags() -> None:
    section = "Flags of horovodrun"
    there, absent = names_of(("works", "differs"), section), names_of(("absent",), section)
    assert there | absent == set(FLAGS)
    parser = arguments.make_parser("roundelayrun")
    assert there <= set(parser._option_string_actions)
    for flag in absent:
        command = ["-np", "2", flag, "1", "true"]
        why = next(line.why for line in lines() if line.section == section and flag in line.names)
        if why.startswith("refused"):
            with pytest.raises(UsageError, match=f"^{flag}: "):
                parser.parse_args(command)
        else:
            assert flag in parser.parse_args(command).no_effect


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("HOROVOD_", "ROUNDELAY_")):
            monkeypatch.delenv(name)
    of_elastic_jobs = {
        "HOROVOD_ELASTIC",
        "HOROVOD_ELASTIC_TIMEOUT",
    }  # roundelayrun's: unit/test_elastic_state.py
    there = names_of(("works", "differs"), "Variables") - {*horovod_variables.NAMES} - of_elastic_jobs
    for name in VARIABLES:
        variable = f"HOROVOD_{name}"
        with monkeypatch.context() as patch:
            patch.setenv(variable, "debug" if name == "LOG_LEVEL" else "1")
            config = _core.load_config()
        read = variable in [source for _, _, source, _ in config.lines]
        reasons = [text for text in config.no_effect if re.match(rf"{variable}\b", text)]
        assert (read, len(reasons)) == ((True, 0) if variable in there else (False, 1)), variable
    of_the_launcher = [line for line in lines() if set(line.names) & {*horovod_variables.NAMES}]
    assert all("`roundelayrun` sets them" in line.why for line in of_the_launcher)
    assert {name for line in of_the_launcher for name in line.names} == {*horovod_variables.NAMES}


def test_variables_of_the_build_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WITH_PYTORCH", "WITHOUT_GLOO", "WITH_MPI", "GPU_OPERATIONS", "CUDA_HOME"):
        monkeypatch.setenv(f"HOROVOD_{name}", "1")
    assert _core.load_config().no_effect == []
