"""Scripts that find hosts, and that fail at it in all ways."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from in_time import wait_until
from roundelay.run.elastic import discovery
from roundelay.run.elastic.discovery import Discovery
from roundelay.run.errors import UsageError

LIMIT_S = 60.0

# What a script prints, or does in a shell's words; and what is said of it.
FAULTS = {
    "echo a:0": "bad host 'a:0'",
    "echo a:-1": "bad host 'a:-1'",
    "echo a:1000000000": "more than 4096 slots",
    "echo a; echo a:2": "host 'a' is listed twice",
    "echo a:b:c": "bad host 'a:b:c'",
    "printf ':2\\n'": "bad host ':2'",
    "printf '\\377\\376\\n'": "failed: 'utf-8' codec can't decode",
    "true": "printed no host",
    "exit 7": "failed: exit code 7",
    "echo down >&2; exit 1": "failed: down",
    "kill -9 $$": "failed: killed by SIGKILL",
    "sleep 1000; echo a:1": "takes longer than 0.5 s",
}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs scripts often. No thread is left: its children would hold this process's locks for a moment."""
    monkeypatch.setattr(discovery, "INTERVAL_S", 0.01)
    monkeypatch.setattr(discovery, "_SCRIPT_S", 0.5)
    yield
    gc.collect()
    wait_until(lambda: discovery.THREAD not in [t.name for t in threading.enumerate()], LIMIT_S, "it runs")


@pytest.mark.parametrize("script", FAULTS)
def test_a_first_run_that_fails_is_an_error(script: str) -> None:
    with pytest.raises(UsageError) as raised:
        Discovery(script, 1, print)
    assert FAULTS[script] in str(raised.value)


@pytest.mark.parametrize("script", ["echo a:0", "exit 7", "sleep 1000; echo a:1"])
def test_a_later_run_that_fails_changes_nothing_and_is_told_of_once(script: str, tmp_path: Path) -> None:
    now, runs = tmp_path / "script", tmp_path / "runs"
    said: list[str] = []

    def put(words: str) -> None:
        (tmp_path / "new").write_text(f"echo >> {runs}; {words}")
        (tmp_path / "new").rename(now)

    def count() -> int:
        return len(runs.read_text().splitlines())

    put("echo a:2")
    hosts = Discovery(f"sh {now}", 1, said.append).hosts
    assert hosts() == {"a": 2}
    put(script)
    wait_until(lambda: bool(said), LIMIT_S, "nothing is said")
    before = count()
    wait_until(lambda: count() > before + 1, LIMIT_S, "it runs no more")
    assert hosts() == {"a": 2}
    put("echo a:2; echo b")
    wait_until(lambda: hosts() == {"a": 2, "b": 1}, LIMIT_S, "it has not recovered")
    assert len(said) == 1
    assert said[0].endswith("; going on with the hosts that are known")


def test_a_run_that_hangs_leaves_no_process(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="takes longer"):
        Discovery(f"sh -c 'echo $$ > {tmp_path}/pid; sleep 1000; true'; true", 1, print)
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not _runs(pid), LIMIT_S, "the script's child is left")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
