"""The bare memory work builds with the system's compiler, sums, says when it cannot, and leaves nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import bare

pytestmark = pytest.mark.skipif(bare.compiler() is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bare.build(tmp_path_factory.mktemp("bare"))


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("size", [4, 60, 64, 4100, 1 << 20])
def test_the_bare_benchmark_checks_its_sums(program: Path, ranks: int, size: int) -> None:
    running = bare.Program(program, ranks, size)
    assert all(0 < running.measure() < 60 for _ in range(3))
    assert running.close() == 0


def test_rounds_in_a_row_are_one_measurement(program: Path) -> None:
    running = bare.Program(program, 2, 256, rounds=300)
    assert all(0 < running.measure() < 60 for _ in range(3))
    assert running.close() == 0


def test_sums_that_are_wrong_end_it(program: Path, tmp_path: Path) -> None:
    source = Path(bare.__file__).with_suffix(".cc").read_text()
    wrong = source.replace("(all[kRank][line + i] + ...)", "all[0][line + i]")
    assert wrong != source
    (tmp_path / "wrong.cc").write_text(wrong)
    command = bare.compiler()
    assert command is not None
    subprocess.run([*command, *bare.FLAGS, tmp_path / "wrong.cc", "-o", tmp_path / "wrong"], check=True)
    running = bare.Program(tmp_path / "wrong", 2, 4096)
    with pytest.raises(RuntimeError, match="bare has failed: exit code 1"):
        running.measure()


@pytest.mark.parametrize("arguments", [[], ["3", "64"], ["2", "3"], ["2", "x"], ["2", "64", "0"]])
def test_wrong_arguments_are_one_line(program: Path, arguments: list[str]) -> None:
    ended = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("usage: bare RANKS BYTES")
