"""How a program comes to backend roundelay: by itself, beside ``hvd``, after a restart, in a forked child."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import DebugLevel, HashStore, set_debug_level

import roundelay.torch as hvd
from process_groups import world
from ranks import ROOT, Check, run_check

ALONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}


def _python(body: str, **variables: str) -> str:
    environment = {**os.environ, **ALONE, "PYTHONPATH": str(ROOT / "python"), **variables}
    run = subprocess.run(
        [sys.executable, "-c", body],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_import_torch_knows_the_backend_and_loads_no_core() -> None:
    said = _python(
        "import sys, torch; import torch.distributed as dist\n"
        "print('roundelay' in dist.Backend.backend_list, 'roundelay' in sys.modules)"
    )
    assert said == "True False\n"


def test_without_autoload_an_import_is_needed() -> None:
    said = _python(
        "import torch.distributed as dist\n"
        "before = 'roundelay' in dist.Backend.backend_list\n"
        "import roundelay.torch.distributed\n"
        "print(before, 'roundelay' in dist.Backend.backend_list)",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert said == "False True\n"


def test_a_torch_without_distributed_is_left_alone() -> None:
    said = _python(
        "import torch.distributed as dist, roundelay_autoload\n"
        "dist.is_available = lambda: False\n"
        "dist.Backend.backend_list.clear()\n"
        "roundelay_autoload.register()\n"
        "del dist.Backend\n"
        "dist.is_available = lambda: True\n"
        "roundelay_autoload.register()\n"
        "print('quiet')"
    )
    assert said == "quiet\n"


def test_a_forked_child_gets_an_error_and_ends() -> None:
    said = _python(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('roundelay')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        dist.all_reduce(torch.ones(1))\n"
        "    except Exception as error:\n"
        "        print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "dist.destroy_process_group()"
    )
    assert said.startswith("this process was forked from one with a process group")


def test_the_groups_timeline_names_its_calls(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('roundelay')\n"
        "for _ in range(3): dist.all_reduce(torch.ones(1000))\n"
        "dist.destroy_process_group()\n"
    )
    _torchrun([str(program)], ROUNDELAY_TIMELINE=str(path))
    [written] = tmp_path.glob("events.*.json")
    assert "call 3" in json.dumps(json.loads(written.read_text()))


def test_restarted_workers_meet_anew(tmp_path: Path) -> None:
    """The agent's store still has what the dead workers have written."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, pathlib, sys, torch, torch.distributed as dist\n"
        "dist.init_process_group('roundelay')\n"
        "tensor = torch.ones(5); dist.all_reduce(tensor)\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': os._exit(7)\n"
        f"if dist.get_rank() == 0: pathlib.Path({str(tmp_path / 'sum')!r}).write_text(str(tensor.tolist()))\n"
        "dist.destroy_process_group()\n"
    )
    _torchrun(["--max-restarts", "1", str(program)])
    assert (tmp_path / "sum").read_text() == "[2.0, 2.0, 2.0, 2.0, 2.0]"


def _torchrun(words: list[str], **variables: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", **variables}
    run = subprocess.run(
        [*command, *words], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("np", [2])
def test_both_doors(np: int, check: Check) -> None:
    run_check(check, np)


def check_both_are_open_at_once() -> None:
    with world():
        works = [dist.all_reduce(torch.ones(100_000), async_op=True) for _ in range(4)]
        handles = [hvd.allreduce_async(torch.ones(100_000), name=f"h{i}", op=hvd.Sum) for i in range(4)]
        for work, handle in zip(works, handles, strict=True):
            assert hvd.synchronize(handle).sum() == hvd.size() * 100_000
            work.wait()
            assert work.result()[0].sum() == hvd.size() * 100_000


def check_another_world_is_refused() -> None:
    with pytest.raises(
        RuntimeError, match=r"rank . of 2 in hvd.init\(\), and rank 0 of 1 in init_process_group"
    ):
        dist.init_process_group("roundelay", store=HashStore(), rank=0, world_size=1)
    dist.destroy_process_group() if dist.is_initialized() else None


def check_debug_detail_speaks_first() -> None:
    set_debug_level(DebugLevel.DETAIL)
    try:
        with world(), pytest.raises(RuntimeError, match="Detected mismatch between collectives on ranks"):
            dist.all_reduce(torch.ones(3 + hvd.rank()))
    finally:
        set_debug_level(DebugLevel.OFF)
