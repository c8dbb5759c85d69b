"""An unchanged script gets its strategy from the command line or the environment; its own words win."""

from __future__ import annotations

import json

import pytest

from ranks import PROGRAMS
from starts import ROUNDELAYRUN, run
from technique_libraries import NEGATE

PROGRAM = str(PROGRAMS / "horovod_training.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "variable", "arguments", "result"),
    [
        (["--strategy", f"{NEGATE}:wire=bf16"], "dense", {}, "rounded negate"),
        ([], "dense:wire=bf16", {"strategy": NEGATE}, "exact negate"),
        (["--strategy", "csc:keep=0.1,chunk_elements=10,dense_below=0"], "", {}, "rounded csc:"),
    ],
)
def test_which_strategy_is_taken(
    flags: list[str], variable: str, arguments: dict[str, str], result: str
) -> None:
    command = [*ROUNDELAYRUN, "-np", "2", "--as-horovod", *flags, "python", PROGRAM, json.dumps(arguments)]
    status, output = run(command, **({"ROUNDELAY_STRATEGY": variable} if variable else {}))
    assert (status, output.splitlines()[-1]) == (0, f"[rank 0] {result}"), output


def test_a_wrong_text_starts_no_rank() -> None:
    flags = ["--strategy", "dens:wire=bf16"]
    status, output = run([*ROUNDELAYRUN, "-np", "2", *flags, "python", "-c", "print('started')"])
    assert status == 2
    reason = "'dens:wire=bf16' is not valid: there is no strategy 'dens': did you mean dense?; known are "
    assert output.startswith(f"roundelayrun: error: --strategy {reason}")
    assert "started" not in output
