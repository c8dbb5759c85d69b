"""Starts two ranks that try each channel and fabric, and checks what they found."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roundelay._internal import backend
from roundelay.doctor.check import REBUILD, Check, State, first_line, last_lines

if TYPE_CHECKING:
    import torch

LAUNCH_TIMEOUT_S = 90.0
TIMED_OUT = 124  # as coreutils' timeout says it
# The launch check tries these, by bootstrap, in the order that the library prefers.
_TRANSPORTS: dict[str, dict[str, tuple[str, ...]]] = {
    "store": {"channel": ("shm", "tcp"), "fabric": ("shm", "tcp", "c10d")},
    "mpi": {"channel": ("mpi",), "fabric": ("mpi",)},
}
# Between the ranks' GPUs, if there are some. Without ROUNDELAY_GPU_FABRIC the first that works is used.
_GPU_FABRICS = {"store": ("nccl", "staged"), "mpi": ("mpi",)}
_MEANINGS = {
    "channel shm": "control messages travel in shared memory between the ranks of a node",
    "channel tcp": "control messages travel",
    "channel mpi": "control messages travel, at the cost of idle CPU time",
    "fabric shm": "reduces between the ranks of a node, in shared memory",
    "fabric tcp": "reduces between ranks, on the CPU, over TCP",
    "fabric mpi": "reduces between ranks, on the CPU",
    "fabric c10d": "reduces between ranks, on the CPU, over PyTorch's Gloo",
    "GPU fabric nccl": "reduces between GPUs, on them",
    "GPU fabric staged": "reduces between GPUs, through host memory",
    "GPU fabric mpi": "MPI takes the GPUs' memory: ROUNDELAY_GPU_FABRIC=mpi uses it",
}


def launch(flag: str, environment: Mapping[str, str]) -> tuple[int, str, list[dict[str, Any]]]:
    """Starts two ranks that run `probe`: the exit status, what stderr said, and each rank's findings.

    flag: roundelayrun's flag, ``--gloo`` or ``--mpi``.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = "import os, sys; from roundelay.doctor import cli; "
        command += "sys.exit(cli.main(['--probe', os.path.join(sys.argv[1], str(os.getpid()))]))"
        words = [sys.executable, "-m", "roundelay.run.cli", "-np", "2", flag]
        try:
            done = subprocess.run(
                [*words, sys.executable, "-c", command, folder],
                env={
                    **environment,
                    "ROUNDELAY_BOOTSTRAP": "auto",  # the launcher's
                    "ROUNDELAY_TOPOLOGY": "",  # it describes a job on all nodes
                },
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LAUNCH_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return TIMED_OUT, f"two ranks did not come to an end within {LAUNCH_TIMEOUT_S:g} s", []
        found = [json.loads(path.read_text()) for path in Path(folder).iterdir()]
        return done.returncode, done.stderr, sorted(found, key=lambda rank: int(rank["rank"]))


def probe() -> dict[str, Any]:
    """Returns what a rank of the launch check finds.

    The dict holds the rank, the backend, the library's choices, and for each channel and fabric that
    fits how the ranks were started "" or why it fails.
    """
    import roundelay.torch as hvd
    from roundelay import _core

    path, started = backend.choose("auto")
    found: dict[str, Any] = {"rank": 0, "size": 0, "backend": "", "chosen": {}, "works": {}}
    if path is None:
        return {**found, "size": 1}

    def note() -> None:
        found.update(rank=hvd.rank(), size=hvd.size())
        found["backend"] = _core.backend_description(path)
        found["chosen"] = _core.transports()
        found["topology"] = str(hvd.topology())

    for kind, names in _TRANSPORTS[started.bootstrap].items():
        for name in names:
            with _set(f"ROUNDELAY_{kind.upper()}", name):
                found["works"][f"{kind} {name}"] = _attempt(note)
    found["works"].update(gpu_fabrics(started.bootstrap))
    _attempt(note)  # without variables, as a job would: `found` keeps the library's own choices
    return found


def gpu_fabrics(bootstrap: str) -> dict[str, str]:
    """Tries the fabrics between the GPUs of the ranks, which this bootstrap has started.

    Returns "" or why it fails for each; nothing where this process can use no GPU.
    """
    import torch

    from roundelay._internal import gpu

    if gpu.module() is None or not gpu.is_available():
        return {}
    local_rank = int(os.environ.get("LOCAL_RANK", os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")))
    torch.accelerator.set_device_index(local_rank % torch.accelerator.device_count())
    device = torch.accelerator.current_accelerator()
    works = {}
    for name in _GPU_FABRICS[bootstrap]:
        with _set("ROUNDELAY_GPU_FABRIC", name):
            works[f"GPU fabric {name}"] = _attempt(lambda: None, device)
    return works


@contextlib.contextmanager
def _set(variable: str, value: str) -> Iterator[None]:
    """Sets the variable inside the block."""
    own = os.environ.get(variable)
    os.environ[variable] = value
    try:
        yield
    finally:
        del os.environ[variable]
        if own is not None:
            os.environ[variable] = own


def _attempt(note: Callable[[], None], device: torch.device | None = None) -> str:
    """Makes a job that adds up tensors of this device. Returns "" or why that fails. note: called in it."""
    import torch

    import roundelay.torch as hvd

    try:
        hvd.init()
        total = hvd.allreduce(torch.ones(1000, device=device), op=hvd.Sum, name="doctor")
        note()
        return "" if bool((total == hvd.size()).all()) else "the sum of two ranks' ones was wrong"
    except (RuntimeError, ValueError) as error:
        return first_line(str(error))
    finally:
        hvd.shutdown()


def check_launch(flag: str, status: int, stderr: str, found: list[dict[str, Any]]) -> list[Check]:
    """Returns the launch check's rows: the launch itself, then each channel and fabric.

    status, stderr, found: the results of launch().
    """
    name = f"launch {flag}"
    sizes = [rank["size"] for rank in found]
    if status == 0 and 0 in sizes:
        rank = next(rank for rank in found if rank["size"] == 0)
        reasons = [f"{what}: {reason}" for what, reason in rank["works"].items()]
        text = "\n".join(["2 ranks were started, but init() failed", *reasons])
        return [Check(name, State.BROKEN, text, "cure what init() names, and run roundelay doctor again")]
    if status != 0 or sizes != [2, 2]:
        if status != 0:
            text = stderr.strip() or f"exit status {status}"
        else:
            text = f"2 ranks were started, but each took itself for one of {', '.join(map(str, sizes))}"
        cure = REBUILD
        if flag == "--mpi":
            cure = "make mpirun and the MPI that Roundelay was built with the same, then: " + cure
        if status == TIMED_OUT:
            cure = "run roundelay doctor again when the machine has less to do; if this comes again: " + cure
        return [Check(name, State.BROKEN, last_lines(text), cure)]
    chosen: dict[str, str] = found[0]["chosen"]
    if chosen:
        uses = ", ".join(f"{kind} {chosen[kind]}" for kind in ("channel", "fabric"))
        text = f"2 ranks met by {found[0]['backend']}, and reduced; they use {uses}"
        rows = [Check(name, State.OK, text)]
    else:
        rows = [Check(name, State.BROKEN, "2 ranks started, but nothing between them works", REBUILD)]
    for what in found[0]["works"]:
        reason = next((rank["works"][what] for rank in found if rank["works"][what]), "")
        rows.append(Check(what, State.OFF if reason else State.OK, reason or _MEANINGS[what]))
    return rows


def check_levels(rows: Sequence[Check]) -> Iterator[Check]:
    """Yields the rows of fabrics over levels, which 2 ranks cannot try: both of their fabrics must work."""
    for between in ("mpi", "tcp"):
        name, both = (
            f"fabric shm+{between}",
            [row for row in rows if row.name in ("fabric shm", f"fabric {between}")],
        )
        off = next((row for row in both if row.state is not State.OK), None)
        if off is not None:
            yield Check(name, State.OFF, f"{off.name}: {off.found}")
        elif len(both) == 2:
            text = f"for several nodes with 2 ranks or more: shm inside them, {between} between"
            yield Check(name, State.OK, text)


def check_topology(found: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    """Yields the levels of the launch check's ranks, and whether ROUNDELAY_TOPOLOGY is well-formed.

    found: the last result of launch().
    """
    from roundelay import _core

    config = _core.read_config()
    trees = [rank["topology"] for rank in found if rank.get("topology")]
    for variable, _, _, complaint in config.bad:
        if variable == "ROUNDELAY_TOPOLOGY":
            yield Check("topology", State.BROKEN, complaint, "correct it, or unset it")
            return
    if trees:
        more = f"\nROUNDELAY_TOPOLOGY={config.topology} was not used here" if config.topology else ""
        yield Check("topology", State.OK, f"these 2 ranks: {trees[0]}{more}")
