"""Many losses in one job leave nothing, and the ranks that stay read no file."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from elastic_jobs import PROGRAMS, ROOT, ended_well, run

LOSSES = 50
TRAINING = str(PROGRAMS / "elastic_losses.py")
FLAGS = ("-np", "3", "--min-np", "2", "--max-np", "3", "--blacklist-cooldown-range", "0", "0")
MOST_GROWTH = 4 << 20  # bytes of memory from the fifth loss on; the model has two
# The names of hosts, the kernel's files, and the versions of the packages.
NO_STATE = ("/etc/hosts", "/proc/", "/sys/", "/dev/", str(ROOT / "python"), *sys.path[1:])

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


def test_fifty_losses_leave_nothing() -> None:
    status, lines, err = run(*FLAGS, program=[TRAINING, str(LOSSES)], most_s=1700.0)
    assert status == 0, err
    assert err.count("killed by SIGKILL") == LOSSES
    for rank in range(2):
        held = {line["losses"]: line for line in lines if line["rank"] == rank}
        early, late = held[5], held[LOSSES]
        for what in ("files", "threads", "shared"):
            assert late[what] <= early[what], (what, early, late)
        assert late["memory"] - early["memory"] < MOST_GROWTH, (early, late)


def test_the_example_learns_as_well_as_without_losses() -> None:
    flags = ("-np", "2", "--min-np", "1", "--max-np", "2", "--blacklist-cooldown-range", "0", "0")
    program = [str(ROOT / "examples" / "elastic.py"), "--epochs", "300"]
    out, _ = ended_well(*flags, program=program)
    out_with_losses, err = ended_well(*flags, program=[*program, "--lose-one-every", "5"])
    assert err.count("killed by SIGKILL") >= 3
    without, with_losses = (float(one.split("test accuracy")[1].split()[0]) for one in (out, out_with_losses))
    print(f"accuracy {without} without losses, {with_losses} with {err.count('killed by SIGKILL')}")
    assert with_losses > without - 0.01  # 3 of the 360 images


@pytest.mark.parametrize("kind", ["lars", "lamb", "masters", "scaler", "auto", "auto_lossy"])
def test_optimizers_of_all_kinds_go_on(kind: str) -> None:
    flags = ("-np", "3", "--min-np", "2", "--max-np", "3")
    status, lines, err = run(*flags, program=[str(PROGRAMS / "elastic_kinds.py"), kind])
    assert status == 0, err
    assert [line["equal"] for line in lines] == [True] * 3


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace")
def test_who_stays_reads_no_file(tmp_path: Path) -> None:
    trace = f"exec strace -f --seccomp-bpf -qq -e trace=openat,open -e signal=none -o {tmp_path}/$$"
    command = f"{trace} {sys.executable} {TRAINING} 3"
    status, _, err = run(*FLAGS, program=["-c", command], interpreter="sh")
    assert status == 0, err
    traces = [text for file in tmp_path.iterdir() if "goes_on2" in (text := file.read_text())]
    assert len(traces) == 2
    for text in traces:
        # By the second loss all modules are imported.
        lines = text.partition("loses1")[2].partition("goes_on2")[0].splitlines()[1:-1]
        opened = [line.split('"')[1] for line in lines if '"' in line and "= -1" not in line]
        assert opened  # /etc/hosts, at least
        assert [path for path in opened if not path.startswith(NO_STATE)] == []
