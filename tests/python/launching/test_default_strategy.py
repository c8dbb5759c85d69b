"""An unchanged script gets its strategy from the command line or the environment; its own words win."""

from __future__ import annotations

from pathlib import Path

import pytest

from starts import ROUNDELAYRUN, run
from technique_libraries import NEGATE

# A program written for Horovod.
PROGRAM = """
import sys, torch, horovod.torch as hvd
hvd.init()
parameter = torch.nn.Parameter(torch.zeros(100))
optimizer = torch.optim.SGD([parameter], lr=1.0)
arguments = eval(sys.argv[1])
optimizer = hvd.DistributedOptimizer(optimizer, [("weight", parameter)], op=hvd.Sum, **arguments)
for _ in range(6):
    optimizer.zero_grad()
    (parameter * (1 + 2.0**-12)).sum().backward()
    optimizer.step()
exact = bool((parameter == -6 * hvd.size() * (1 + 2.0**-12)).all())
names = [name for name in ("negate", "csc:") if name in hvd.report().partition("bucket")[2]]
if hvd.rank() == 0:
    print("exact" if exact else "rounded", *names)
"""


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
    flags: list[str], variable: str, arguments: dict[str, str], result: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    command = [*ROUNDELAYRUN, "-np", "2", "--as-horovod", *flags, "python", str(script), repr(arguments)]
    status, output = run(command, **({"ROUNDELAY_STRATEGY": variable} if variable else {}))
    assert (status, output.splitlines()[-1]) == (0, f"[rank 0] {result}"), output


def test_a_wrong_text_starts_no_rank() -> None:
    flags = ["--strategy", "dens:wire=bf16"]
    status, output = run([*ROUNDELAYRUN, "-np", "2", *flags, "python", "-c", "print('started')"])
    assert status == 2
    reason = "'dens:wire=bf16' is not valid: there is no strategy 'dens': did you mean dense?; known are "
    assert output.startswith(f"roundelayrun: error: --strategy {reason}")
    assert "started" not in output
