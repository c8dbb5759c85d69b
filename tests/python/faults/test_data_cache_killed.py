"""Jobs that are killed while they keep samples: the next one uses what is on disk, and cleans node memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parent.parent / "support"
LIMIT_S = 240.0


@pytest.mark.parametrize(
    ("seed", "kills"), [(1, 8), *(pytest.param(seed, 60, marks=pytest.mark.nightly) for seed in range(2, 6))]
)
def test_killed_at_any_moment(tmp_path: Path, seed: int, kills: int) -> None:
    run = subprocess.run(
        [sys.executable, str(SUPPORT / "killed_caches.py"), str(tmp_path), str(seed), str(kills)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1].startswith(f"{kills} jobs killed")
