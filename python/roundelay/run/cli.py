"""`roundelayrun` (= `roundelay run`): runs a command line and returns the job's exit status."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence

from roundelay import __version__
from roundelay._internal.closed_output import nobody_reads
from roundelay.run.arguments import parser
from roundelay.run.elastic import job as elastic
from roundelay.run.elastic.driver import Driver
from roundelay.run.errors import UsageError
from roundelay.run.launcher import job
from roundelay.run.launcher.launcher import Launcher, Settings
from roundelay.run.launcher.output import Output
from roundelay.run.launcher.result import Ending, JobResult
from roundelay.run.launcher.result_pipe import ResultPipe
from roundelay.run.system import limits, standard_files


def main(
    argv: Sequence[str] | None = None, prog: str = "roundelayrun", result_pipe: ResultPipe | None = None
) -> int:
    """Runs the command line `argv` (default: this process's) and returns the exit status: 2 for wrong use.

    With a `result_pipe` the program is a function, and its caller gets the result instead of stderr.
    """

    def say(line: str) -> None:
        print(f"{prog}: {line}", file=sys.stderr, flush=True)

    standard_files.open_all()
    try:
        given = parser.parse(prog, argv)
        if given.version or given.check_build:
            from roundelay.doctor.build import check_build

            print(check_build() if given.check_build else __version__)
            return 0
        return _run(given, prog, say, result_pipe)
    except UsageError as error:
        if result_pipe is not None:
            result_pipe.refuse(str(error))
        else:
            say(f"error: {error}")
        return 2
    except BrokenPipeError:
        return nobody_reads()


def _run(
    given: argparse.Namespace, prog: str, say: Callable[[str], None], result_pipe: ResultPipe | None
) -> int:
    program = given.program[1:] if given.program[:1] == ["--"] else given.program
    if elastic.is_elastic(given):
        return _run_elastic(given, program, prog, say, result_pipe)
    if given.num_proc is None:
        raise UsageError("the number of ranks is missing: give -np N")
    if not program:
        raise UsageError(f"the program is missing: give one, {prog} -np {given.num_proc} python train.py")
    start = job.prepare(given, program, os.environ, result_pipe)
    _tell_of_no_effect(given, say)
    if start.listener is None:
        print(
            shlex.join(["env", *(f"{name}={value}" for name, value in start.added.items()), *start.command])
        )
        return 0
    if given.verbose:
        say(start.found)
        say(shlex.join(start.command))
    settings = Settings(
        num_proc=start.num_proc,
        start_timeout=start.timeout,
        verbose=given.verbose,
        mode=start.mode,
        prefix=f"{prog}: " if start.mode.is_ours else f"[{start.mode.started_by}] ",
        say=say,
        on_result=result_pipe.on_result if result_pipe is not None else None,
    )
    limits.raise_files(start.num_proc * (3 if given.output_filename is not None else 1))
    output = Output(
        start.num_proc,
        sys.stdout.buffer,
        sys.stderr.buffer,
        given.output_filename,
        timestamps=given.prefix_output_with_timestamp,
    )
    launcher = Launcher(start.command, start.environment, start.listener, output, settings)
    result = launcher.run()
    status = _tell(result, launcher.ranks.endings, list(range(start.num_proc)), output, say, result_pipe)
    if status == 0 and result_pipe is None and start.mode.is_ours and not launcher.ranks.initialised:
        _tell_of_no_init(program, start.num_proc, say)
    return status


def _tell_of_no_effect(given: argparse.Namespace, say: Callable[[str], None]) -> None:
    for flag, why in given.no_effect.items():
        say(f"{flag} has no effect: {why}")


def _run_elastic(
    given: argparse.Namespace,
    program: list[str],
    prog: str,
    say: Callable[[str], None],
    result_pipe: ResultPipe | None,
) -> int:
    if not program:
        raise UsageError(f"the program is missing: give one, {prog} --min-np 2 python train.py")
    settings, listener = elastic.prepare(given, program, os.environ, say, result_pipe)
    _tell_of_no_effect(given, say)
    output = Output(
        0,
        sys.stdout.buffer,
        sys.stderr.buffer,
        given.output_filename,
        timestamps=given.prefix_output_with_timestamp,
        word="worker",
    )
    driver = Driver(settings, listener, output)
    result = driver.run()
    return _tell(result, driver.endings, driver.last_ranks, output, say, result_pipe)


def _tell(
    result: JobResult,
    endings: list[Ending],
    ranks: list[int],
    output: Output,
    say: Callable[[str], None],
    result_pipe: ResultPipe | None,
) -> int:
    """Tells the caller, or the user, how the job ended; returns the exit status."""
    try:
        if result_pipe is not None:
            lines = output.last_lines(result.rank) if result.rank is not None else []
            result_pipe.end(result, endings, lines, ranks, output.word)
        else:
            _last_word(result, output, say)
        sys.stdout.flush()
    except OSError:  # nobody reads, or a disk is full
        unread = nobody_reads()
        return result.status or unread
    return result.status


def _last_word(result: JobResult, output: Output, say: Callable[[str], None]) -> None:
    """Says why the job failed, if it did: the failed rank's last lines, and in the last line the cause."""
    if not result.text:
        return
    lines = output.last_lines(result.rank) if result.rank is not None else []
    if lines:
        say(f"the last lines of {output.word} {result.rank} on stderr:")
        sys.stderr.buffer.write(b"".join(b"  " + line + b"\n" for line in lines))
        sys.stderr.flush()
    say(result.text + _said(result, output))


def _said(result: JobResult, output: Output) -> str:
    """Returns what the failed rank itself said of the cause: its exception, or else its last line."""
    if result.rank is None or result.status > 128:  # a signal has ended it: it could say nothing
        return ""
    exception = output.last_exception(result.rank).decode(errors="replace")
    if exception:
        return f": {exception}"
    lines = [line for line in output.last_lines(result.rank) if line.strip()]
    return f"; its last line on stderr: {lines[-1].decode(errors='replace')}" if lines else ""


def _tell_of_no_init(program: list[str], ranks: int, say: Callable[[str], None]) -> None:
    """Says that a Python program ran several times over. Others, as those of an MPI, need no init()."""
    name = os.path.basename(program[0])
    if ranks == 1 or not (name.startswith("python") or name.endswith(".py")):
        return
    with contextlib.suppress(OSError):  # nobody reads it: the job went well all the same
        say(
            f"no rank called hvd.init(), so the {ranks} processes ran on their own: call it at the beginning "
            "of the program, unless that uses torch.distributed itself"
        )


if __name__ == "__main__":
    sys.exit(main())
