"""An unchanged script gets its strategy from the command line or the environment; what it says itself wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from starts import ROUNDELAYRUN, run

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
names = [name for name in ("negate", "cyclic") if name in hvd.report()]
if hvd.rank() == 0:
    print("exact" if exact else "rounded", *names)
"""


@pytest.mark.parametrize(
    ("flags", "variable", "arguments", "result"),
    [
        (["--strategy", "negate"], "", {}, "exact negate"),
        ([], "negate:wire=bf16", {}, "rounded negate"),
        (["--strategy", "negate"], "dense:wire=bf16", {}, "exact negate"),
        (["--strategy", "dense:wire=bf16"], "", {"strategy": "negate"}, "exact negate"),
    ],
)
def test_what_wins(
    flags: list[str], variable: str, arguments: dict[str, str], result: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    command = [*ROUNDELAYRUN, "-np", "2", "--as-horovod", *flags, "python", str(script), repr(arguments)]
    status, output = run(command, **({"ROUNDELAY_STRATEGY": variable} if variable else {}))
    assert (status, output.splitlines()[-1]) == (0, f"[0] {result}"), output


@pytest.mark.parametrize(
    ("flags", "variable", "given_by"),
    [(["--strategy", "dens:wire=bf16"], "", "--strategy"), ([], "dens:wire=bf16", "ROUNDELAY_STRATEGY")],
)
def test_a_wrong_text_starts_no_rank(flags: list[str], variable: str, given_by: str) -> None:
    command = [*ROUNDELAYRUN, "-np", "2", *flags, "python", "-c", "print('started')"]
    status, output = run(command, **({"ROUNDELAY_STRATEGY": variable} if variable else {}))
    assert status == 2
    assert output.startswith(
        f"roundelayrun: error: {given_by} 'dens:wire=bf16' is not valid: there is no strategy 'dens'; known are "
    )
    assert "started" not in output
