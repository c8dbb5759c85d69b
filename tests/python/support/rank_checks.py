"""The program of a test's ranks: runs the checks of files, and ends the process if one fails.

Each rank runs `python rank_checks.py FILE ...`. After RANKS_LIMIT_S seconds (a variable) it dumps its stacks
and ends.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence

from in_time import TooLateError


def _checks_of(file: str) -> dict[str, object]:
    specification = importlib.util.spec_from_file_location("checks", file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["checks"] = module  # lets the file's classes be pickled
    specification.loader.exec_module(module)
    return {name: value for name, value in vars(module).items() if name.startswith("check_")}


def prepare() -> None:
    """Prepares torch and, with RANKS_DEVICE, the GPU."""
    import torch

    torch.set_num_threads(1)
    if "RANKS_DEVICE" in os.environ:
        import gpu_device

        gpu_device.use()


def main(files: Sequence[str], limit_s: float) -> None:
    """Runs the checks of `files` on this rank. Exits with status 1 at the first that fails."""
    faulthandler.dump_traceback_later(limit_s, exit=True)
    prepare()
    import roundelay.torch as hvd

    hvd.init()
    _assert_no_rank_fell_back()
    for file in files:
        _run_checks_of(file)
    sys.stdout.write(f"all checks passed on rank {hvd.rank()}\n")
    sys.stdout.flush()
    hvd.shutdown()
    faulthandler.cancel_dump_traceback_later()


def _assert_no_rank_fell_back() -> None:
    """Checks that ranks on one node use the fabric of the checks: shm, or the one in ROUNDELAY_FABRIC."""
    import roundelay.torch as hvd
    from roundelay import _core

    if hvd.size() > 1 and hvd.local_size() == hvd.size():
        wanted, found = os.environ.get("ROUNDELAY_FABRIC", "shm"), _core.transports()["fabric"]
        assert found == wanted, f"rank {hvd.rank()} fell back to fabric {found}, the checks are for {wanted}"


def _run_checks_of(file: str) -> None:
    import torch

    import roundelay.torch as hvd

    checks = _checks_of(file)
    assert checks, f"{file} has no check_ functions"
    for name, check in checks.items():
        torch.manual_seed(0)
        try:
            assert callable(check)
            check()
            hvd.barrier()
        except BaseException as error:
            how = "was too late" if isinstance(error, TooLateError) else "failed"
            print(f"rank {hvd.rank() if hvd.is_initialized() else '?'} {how} in {name}", file=sys.stderr)
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        if hvd.rank() == 0:
            print(f"passed {name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:], float(os.environ["RANKS_LIMIT_S"]))
