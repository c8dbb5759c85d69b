"""`roundelayrun` (= `roundelay run`): from the command line to the job's exit status."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from roundelay import __version__, stand_in
from roundelay.run import agent, arguments, hosts, mpi, starter
from roundelay.run.errors import UsageError
from roundelay.run.launcher import Launcher, Settings
from roundelay.run.link import Listener
from roundelay.run.output import Output
from roundelay.run.verdict import Verdict
from roundelay.run.way import use_mpi

DEFAULT_START_TIMEOUT_S = 30.0


def main(argv: Sequence[str] | None = None, prog: str = "roundelayrun") -> int:
    """Runs the command line `argv` (default: this process's) and returns the exit status: 2 for wrong use."""

    def say(line: str) -> None:
        print(f"{prog}: {line}", file=sys.stderr, flush=True)

    try:
        given = arguments.make_parser(prog).parse_args(argv)
        if given.version or given.check_build:
            from roundelay import doctor

            print(doctor.check_build() if given.check_build else __version__)
            return 0
        return _run(given, prog, say)
    except UsageError as error:
        say(f"error: {error}")
        return 2
    except BrokenPipeError:
        return _nobody_reads()


def _run(given: argparse.Namespace, prog: str, say: Callable[[str], None]) -> int:
    program = given.program[1:] if given.program[:1] == ["--"] else given.program
    if given.num_proc is None:
        raise UsageError("how many ranks? give -np N")
    if not program:
        raise UsageError(f"what to run? give a program: {prog} -np {given.num_proc} python train.py")
    named, given_by = _hosts(given)
    one_machine = hosts.one_machine(named, os.environ)
    if named:
        hosts.check(named, given.num_proc, given_by, given.mpi_args)
    if one_machine or any(hosts.is_local(host.name) for host in named):
        check_program(program[0])
    if given.timeline_filename is not None:
        check_timeline(given.timeline_filename)
    mpirun = mpi.find_mpirun(os.environ) if use_mpi(given, one_machine, os.environ) else None
    # A line is shown when it is printed.
    added = {"PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1"), **arguments.knob_variables(given)}
    if given.as_horovod:
        check_stand_in()
        added["PYTHONPATH"] = stand_in.python_path(os.environ)
    environment = {**os.environ, **added}
    listener = None if given.dry_run else Listener(named, one_machine)
    if listener is not None:
        environment.update({agent.ADDRESS: listener.address, agent.TOKEN: listener.token.hex()})
    python = [sys.executable, "-I", "-S"]
    job = mpi.Job(
        num_proc=given.num_proc,
        hosts=named,
        one_machine=one_machine,
        exports=mpi.exported(environment, one_machine),
        mpi_args=given.mpi_args,
        program=[*python, agent.__file__, "--", *program],
    )
    if mpirun is not None:
        command = mpi.command_line(mpirun, job)
    else:
        command = [*python, starter.__file__, str(given.num_proc), "--", *job.program]
    if listener is None:
        print(shlex.join(["env", *(f"{name}={value}" for name, value in added.items()), *command]))
        return 0
    if given.verbose:
        found = f"{mpirun.flavour.value} {mpirun.version} found {mpirun.found}" if mpirun else "without MPI"
        say(found)
        say(shlex.join(command))
    settings = Settings(
        num_proc=given.num_proc,
        start_timeout=float(given.start_timeout or DEFAULT_START_TIMEOUT_S),
        verbose=given.verbose,
        started_by="starter" if mpirun is None else "mpirun",
        say=say,
    )
    output = Output(given.num_proc, sys.stdout.buffer, sys.stderr.buffer, given.output_filename)
    return _launch(Launcher(command, environment, listener, output, settings), output, say)


def _launch(launcher: Launcher, output: Output, say: Callable[[str], None]) -> int:
    verdict = launcher.run()
    try:
        _last_word(verdict, output, say)
        sys.stdout.flush()
    except BrokenPipeError:
        return _nobody_reads()
    return verdict.status


def _last_word(verdict: Verdict, output: Output, say: Callable[[str], None]) -> None:
    """Says what became of the job unless all went well; the failed rank's last lines come last."""
    if not verdict.text:
        return
    words = output.last_words(verdict.rank) if verdict.rank is not None else []
    ending = "; its last lines on stderr:" if words else ""
    say(verdict.text + ending)
    sys.stderr.buffer.write(b"".join(b"  " + word + b"\n" for word in words))
    sys.stderr.flush()


def _hosts(given: argparse.Namespace) -> tuple[list[hosts.Host], str]:
    """The hosts and the flag they came from."""
    if given.hosts is not None:
        return hosts.parse_hosts(given.hosts), f"-H {given.hosts}"
    if given.hostfile is not None:
        return hosts.read_hostfile(given.hostfile), f"--hostfile {given.hostfile}"
    return [], ""


def check_program(program: str) -> None:
    """Raises UsageError if `program` cannot be started here."""
    if shutil.which(program) is not None:
        return
    if Path(program).is_file():
        cure = f"; did you mean 'python {program}'?" if program.endswith(".py") else ""
        raise UsageError(f"the program {program!r} is not executable{cure}")
    where = "no such file" if "/" in program else "not found on PATH"
    raise UsageError(f"the program {program!r} is missing: {where}")


def check_stand_in() -> None:
    """Raises UsageError if Roundelay must not take Horovod's place here."""
    try:
        stand_in.check()
    except RuntimeError as error:
        raise UsageError(f"--as-horovod: {error}") from error


def check_timeline(path: str) -> None:
    """Raises UsageError if the timeline cannot be written to `path`."""
    if path == "DYNAMIC":
        return
    folder = Path(path).parent
    if Path(path).is_dir():
        reason = "it is a folder"
    elif not folder.is_dir():
        reason = f"there is no folder {os.fspath(folder)!r}"
    elif not os.access(path if Path(path).exists() else folder, os.W_OK):
        reason = "permission denied"
    else:
        return
    raise UsageError(f"cannot write --timeline-filename {path!r}: {reason}")


def _nobody_reads() -> int:
    """Our reader is gone: keeps the interpreter from complaining about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + 13


if __name__ == "__main__":
    sys.exit(main())
