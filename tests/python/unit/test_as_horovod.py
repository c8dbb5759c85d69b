"""Roundelay in Horovod's place: in this process, its children, and never where a real Horovod is."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from setuptools import find_namespace_packages

from ranks import ROOT
from roundelay import horovod_shim
from roundelay.run import cli

LIMIT_S = 240.0


def run(
    *words: str, cwd: Path, env: Mapping[str, str] | None = None, path: str = ""
) -> subprocess.CompletedProcess[str]:
    """Python with these words, in whose path is the source and what is given."""
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ROUNDELAY_")},
        "PYTHONPATH": os.pathsep.join(filter(None, [path, str(ROOT / "python")])),
        **(env or {}),
    }
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=variables,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def passes(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


# What libraries and scripts import, and that it is Roundelay's own, not a copy.
IMPORTS = """
import horovod
import horovod.torch as hvd
import horovod.torch.optimizer
import roundelay.torch
import roundelay.torch.optimizer
assert hvd is roundelay.torch
assert roundelay.torch.__spec__.name == "roundelay.torch"
assert horovod.torch.optimizer is roundelay.torch.optimizer
from horovod.torch.mpi_ops import (
    Adasum, Average, Max, Min, Product, Sum, ProcessSet, Compression, HorovodInternalError,
    allreduce, allreduce_async_, broadcast_, barrier, poll, synchronize, global_process_set,
    init, shutdown, rank, size, local_rank, local_size, cross_rank, cross_size, is_homogeneous,
    is_initialized, mpi_threads_supported, mpi_built, nccl_built, start_timeline, stop_timeline,
)
assert rank is hvd.rank and allreduce is hvd.allreduce and HorovodInternalError is hvd.HorovodInternalError
from horovod.torch.compression import Compressor, NoneCompressor, FP16Compressor, Compression
from horovod.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from horovod.torch.functions import allgather_object
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.sync_batch_norm import SyncBatchNorm
from horovod.torch.elastic import run, TorchState, ElasticSampler
from horovod.torch.elastic.state import State, ObjectState, TorchState
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.common.elastic import run_fn, State, ObjectState
from horovod.common.exceptions import HorovodInternalError as same, HostsUpdatedInterrupt
assert same is hvd.HorovodInternalError
from horovod.common.exceptions import HorovodVersionMismatchError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import (
    check_extension, env, extension_available, gpu_available, is_iterable, mpi_built, nccl_built,
    num_rank_is_power_2, split_list,
)
from horovod.runner import run as by_runner
assert by_runner is horovod.run is horovod.runner.run
import horovod.run
assert horovod.run.run is by_runner and callable(horovod.run)
from horovod.common.basics import HorovodBasics
assert HorovodBasics("path", "mpi_lib_v2").rank is hvd.rank
from horovod.torch import _DistributedOptimizer
from horovod.torch.optimizer import _DistributedOptimizer
assert horovod.__version__.startswith("0.28.1+roundelay.")
import importlib.util
assert importlib.util.find_spec("horovod.torch") and not importlib.util.find_spec("horovod.tensorflow")
hvd.init()
assert hvd.size() == 1
assert hvd.mpi_ops._basics.size() == 1
assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: [0]}
print("all is there")
"""

WRAPPED = """
import copy, pickle
import roundelay.as_horovod
import torch
import horovod.torch as hvd
hvd.init()
plain = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=1.0, momentum=0.5)
shown = str(plain)
optimizer = hvd.DistributedOptimizer(plain)
assert optimizer is plain and isinstance(plain, torch.optim.SGD) and str(plain) == shown
assert str(plain.__class__) == "<class 'horovod.torch.optimizer.SGD'>"  # Lightning looks for this
for copied in (copy.copy(plain), copy.deepcopy(plain), pickle.loads(pickle.dumps(plain))):
    assert type(copied) is torch.optim.SGD
hvd.DistributedOptimizer(plain, strategy="csc:keep=0.5,momentum=masked")  # which is for SGD alone
assert type(plain).__mro__[1] is torch.optim.SGD
print("wrapped")
"""

CHILDREN = """
import multiprocessing, subprocess, sys

def child(queue):
    import horovod.torch as hvd
    queue.put(hvd.__name__)

if __name__ == "__main__":
    print(sys.argv[1:], sys.path[0].endswith("site"), __spec__ is None)
    for way in ("spawn", "fork"):
        context = multiprocessing.get_context(way)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        print(way, queue.get(timeout=60))
        process.join()
    line = "import horovod.torch as hvd; print('subprocess', hvd.__name__)"
    print(subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True).stdout)
"""


def test_everything_that_is_imported_resolves(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import roundelay.as_horovod\n" + IMPORTS)
    assert "all is there" in passes(run(str(script), cwd=tmp_path))


def test_the_class_of_a_wrapped_optimizer_has_horovods_name(tmp_path: Path) -> None:
    assert "wrapped" in passes(run("-c", WRAPPED, cwd=tmp_path))


@pytest.mark.slow
def test_children_of_every_kind(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CHILDREN)
    out = passes(run("-m", "roundelay.as_horovod", str(script), "--flag", "x", cwd=tmp_path))
    assert "['--flag', 'x']" in out
    for way in ("spawn", "fork", "subprocess"):
        assert f"{way} roundelay.torch" in out
    script.write_text("import roundelay.as_horovod\n" + CHILDREN)
    out = passes(run(str(script), cwd=tmp_path))
    for way in ("spawn", "fork", "subprocess"):
        assert f"{way} roundelay.torch" in out


def test_modules_and_code_run_as_with_python(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import horovod, sys; print(horovod.__name__, sys.argv[1:], __name__)")
    assert "horovod ['a'] __main__" in passes(
        run("-m", "roundelay.as_horovod", "-m", "train", "a", cwd=tmp_path)
    )
    code = "import horovod, sys; print(sys.flags.optimize, horovod.run.__name__)"
    assert "1 run" in passes(run("-O", "-m", "roundelay.as_horovod", "-c", code, cwd=tmp_path))


def test_the_exit_status_is_the_programs(tmp_path: Path) -> None:
    assert run("-m", "roundelay.as_horovod", "-c", "raise SystemExit(7)", cwd=tmp_path).returncode == 7


def test_wrong_use(tmp_path: Path) -> None:
    for words, text in (([], "usage:"), (["no_such.py"], "no_such.py")):
        done = run("-m", "roundelay.as_horovod", *words, cwd=tmp_path)
        assert done.returncode == 2
        assert text in done.stderr
    assert run("-m", "roundelay.as_horovod", "--help", cwd=tmp_path).returncode == 0


@pytest.fixture
def real(tmp_path: Path) -> str:
    """A folder with a Horovod in it."""
    package = tmp_path / "installed" / "horovod"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("real = True\n")
    return str(package.parent)


REFUSED = "a real Horovod is installed in "


def test_an_installed_horovod_is_not_shadowed(tmp_path: Path, real: str) -> None:
    for words in (["-c", "import roundelay.as_horovod"], ["-m", "roundelay.as_horovod", "-c", "pass"]):
        done = run(*words, cwd=tmp_path, path=real)
        assert done.returncode != 0
        assert REFUSED + real in done.stderr
        assert "ROUNDELAY_RUN_AS_HOROVOD=force" in done.stderr
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_a_child_that_has_a_horovod_of_its_own_is_told(tmp_path: Path, real: str) -> None:
    """The parent has none, but hands down the stand-in."""
    child = f"import sys; sys.path.append({real!r})\ntry: import horovod\nexcept ImportError: pass"
    code = "import roundelay.as_horovod, subprocess, sys\n"
    code += f"sys.exit(subprocess.run([sys.executable, '-c', {child!r}]).returncode)"
    done = run("-c", code, cwd=tmp_path)
    assert done.returncode == 1
    assert REFUSED + real in done.stderr


def test_it_can_be_forced_and_then_says_so(tmp_path: Path, real: str) -> None:
    force = {"ROUNDELAY_RUN_AS_HOROVOD": "force"}
    done = run(
        "-c", "import roundelay.as_horovod, horovod; print(horovod.run)", cwd=tmp_path, path=real, env=force
    )
    assert "run" in passes(done)
    assert f"the Horovod in {real}" in done.stderr
    done = run("-c", "import horovod, roundelay.as_horovod", cwd=tmp_path, path=real, env=force)
    assert done.returncode == 1
    assert f"horovod was imported from {real}" in done.stderr


def test_an_editable_horovod_is_one_too(tmp_path: Path) -> None:
    """It has no folder on the path, only a description."""
    description = tmp_path / "site-packages" / "horovod-0.28.1.dist-info"
    description.mkdir(parents=True)
    (description / "METADATA").write_text("Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n")
    done = run("-c", "import roundelay.as_horovod", cwd=tmp_path, path=str(description.parent))
    assert REFUSED in done.stderr


def test_a_folder_that_is_no_package_is_no_horovod(tmp_path: Path) -> None:
    (tmp_path / "horovod").mkdir()
    passes(run("-c", "import roundelay.as_horovod, horovod; horovod.run", cwd=tmp_path))
    done = run("-c", "import horovod, roundelay.as_horovod", cwd=tmp_path)
    assert f"horovod was imported from {tmp_path / 'horovod'} before" in done.stderr


def test_another_copy_of_roundelay_is_no_horovod(tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "roundelay" / "horovod_shim"
    copy.mkdir(parents=True)
    (copy / "site").symlink_to(horovod_shim.SITE)
    passes(
        run("-c", "import roundelay.as_horovod, horovod; horovod.run", cwd=tmp_path, path=str(copy / "site"))
    )


def test_python_path_has_it_once_and_first() -> None:
    once = horovod_shim.python_path({"PYTHONPATH": os.pathsep.join(["a", "", horovod_shim.SITE, "b"])})
    assert once.split(os.pathsep) == [horovod_shim.SITE, "a", "b"]
    assert horovod_shim.python_path({}) == horovod_shim.SITE


def test_the_launcher_hands_it_to_the_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-np", "2", "--mpi", "--as-horovod", "--dry-run", "true"]) == 0
    line = capsys.readouterr().out
    assert f"PYTHONPATH={horovod_shim.SITE}" in line
    assert "-x PYTHONPATH" in line or "-genvlist" in line


def test_the_launcher_refuses_where_a_horovod_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, real: str
) -> None:
    monkeypatch.syspath_prepend(real)
    assert cli.main(["-np", "2", "--as-horovod", "--dry-run", "true"]) == 2
    assert f"--as-horovod: {REFUSED}{real}" in capsys.readouterr().err


def test_ranks_train_under_horovods_name(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nimport horovod.torch as hvd\nhvd.init()\n"
        "print('sum', hvd.allreduce(torch.ones(1), op=hvd.Sum).item())\n"
    )
    command = ["-m", "roundelay.run.cli", "-np", "2", "--as-horovod", sys.executable, str(script)]
    assert passes(run(*command, cwd=tmp_path)).count("sum 2.0") == 2


def test_the_stand_in_is_packaged() -> None:
    found = find_namespace_packages(str(ROOT / "python"))
    folders = {path.parent for path in Path(horovod_shim.SITE).rglob("*.py")}
    assert folders
    for folder in folders:
        assert str(folder.relative_to(ROOT / "python")).replace(os.sep, ".") in found


def test_no_horovod_is_claimed_to_be_installed() -> None:
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("horovod")
