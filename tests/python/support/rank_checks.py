"""Runs checks of test files on this rank, between init() and shutdown().

As a program, `python rank_checks.py FILE ...`, it runs all checks of the files and ends at the first that
fails. After RANKS_LIMIT_S seconds (a variable) it dumps its stacks and ends. served_checks.py runs single
checks.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType

from in_time import TooLateError
from named_checks import checks_in


def _module_of(file: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location("checks", file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["checks"] = module  # lets the file's classes be pickled
    specification.loader.exec_module(module)
    return module


def prepare() -> None:
    """Prepares torch and, with RANKS_DEVICE, the GPU."""
    gc.disable()  # the collector would look through torch again and again
    import torch

    import roundelay.torch  # noqa: F401

    gc.freeze()
    gc.enable()
    torch.set_num_threads(1)
    if "RANKS_DEVICE" in os.environ:
        import gpu_device

        gpu_device.use()


class Session:
    """The checks between one init() and its shutdown(). Imports a file at its first check."""

    def __init__(self) -> None:
        import roundelay.torch as hvd

        hvd.init()
        _assert_no_rank_fell_back()
        self._modules: dict[str, ModuleType] = {}

    def run(self, file: str, name: str) -> None:
        """Runs one check, with the same random numbers whatever ran before."""
        import torch

        if file not in self._modules:
            self._modules[file] = _module_of(file)
        module = self._modules[file]
        sys.modules["checks"] = module
        torch.manual_seed(0)
        getattr(module, name)()

    def end(self) -> None:
        """Shuts Roundelay down."""
        import roundelay.torch as hvd

        hvd.shutdown()


def report_of(error: BaseException, name: str) -> str:
    """Returns what is said of the error that is being handled: the rank, the check and the stack."""
    import roundelay.torch as hvd

    how = "was too late" if isinstance(error, TooLateError) else "failed"
    rank = hvd.rank() if hvd.is_initialized() else "?"
    return f"rank {rank} {how} in {name}\n{traceback.format_exc()}"


def _assert_no_rank_fell_back() -> None:
    """Checks that ranks on one node use the fabric of the checks: shm, or the one in ROUNDELAY_FABRIC."""
    import roundelay.torch as hvd
    from roundelay import _core

    if hvd.size() > 1 and hvd.local_size() == hvd.size():
        wanted, found = os.environ.get("ROUNDELAY_FABRIC", "shm"), _core.transports()["fabric"]
        assert found == wanted, f"rank {hvd.rank()} fell back to fabric {found}, the checks are for {wanted}"


def main(files: Sequence[str], limit_s: float) -> None:
    """Runs the checks of `files` on this rank. Exits with status 1 at the first that fails."""
    faulthandler.dump_traceback_later(limit_s, exit=True)
    prepare()
    import roundelay.torch as hvd

    session = Session()
    for file in files:
        checks = checks_in(file)
        assert checks, f"{file} has no check_ functions"
        for check in checks:
            if check.fits(hvd.size()):
                _run_or_exit(session, file, check.name)
    sys.stdout.write(f"all checks passed on rank {hvd.rank()}\n")
    sys.stdout.flush()
    session.end()
    faulthandler.cancel_dump_traceback_later()


def _run_or_exit(session: Session, file: str, name: str) -> None:
    import roundelay.torch as hvd

    try:
        session.run(file, name)
        hvd.barrier()
    except BaseException as error:
        print(report_of(error, name), file=sys.stderr, flush=True)
        os._exit(1)
    if hvd.rank() == 0:
        print(f"passed {name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:], float(os.environ["RANKS_LIMIT_S"]))
