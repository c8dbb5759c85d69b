"""tools/check_device_code.py: what it reads from the compiler's report and the disassembly."""

from __future__ import annotations

from pathlib import Path

import pytest

import check_device_code as device_code

_NAME = "void roundelay::kernels::cuda::(anonymous namespace)::norms_kernel<(roundelay::DType)1>(Work)"
_REPORT = """ptxas info    : Compiling entry function '{name}' for 'sm_90'
ptxas info    : Function properties for {name}
    {stack} bytes stack frame, {spills} bytes spill stores, {spills} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers
"""
_LOAD = "        /*0{at:03x}0*/                   LDG.E.128 R8, desc[UR4][R8.64] ;"
_ADD = "        /*0{at:03x}0*/              @!P0 DADD R8, R8, R12 ;"


def _code(*lines: str) -> str:
    body = "\n".join(line.format(at=at) for at, line in enumerate(lines))
    return f'header\n\t.section\t.text. {_NAME},"ax",@progbits\n{body}\n\t.section\t.text. other,"ax"\n'


def _kernel(code: str, stack: int = 0, spills: int = 0, registers: int = 40) -> device_code.Kernel:
    report = _REPORT.format(name=_NAME, stack=stack, spills=spills, registers=registers)
    (found,) = device_code.kernels(report, code)
    return found


def test_loads_that_follow_each_other_are_under_way_together() -> None:
    kernel = _kernel(_code(*[_LOAD, _ADD] * 4))
    assert (kernel.name, kernel.loads) == ("norms_kernel<1>(Work)", {128: 4})
    assert list(kernel.problems()) == []


def test_a_load_behind_the_arithmetic_of_another_is_alone() -> None:
    kernel = _kernel(_code(*[_LOAD, *[_ADD] * 30] * 4))
    assert list(kernel.problems()) == ["norms_kernel<1>(Work) has 1 loads of 128 bits under way, not 4"]


@pytest.mark.parametrize(
    ("stack", "spills", "registers", "said"),
    [
        (8, 0, 40, "spills 0 bytes and has a stack of 8"),
        (16, 12, 40, "spills 12 bytes and has a stack of 16"),
        (0, 0, 98, "has 98 registers, more than 96"),
    ],
)
def test_spills_and_many_registers_are_problems(stack: int, spills: int, registers: int, said: str) -> None:
    kernel = _kernel(_code(*[_LOAD] * 4), stack, spills, registers)
    assert list(kernel.problems()) == [f"norms_kernel<1>(Work) {said}"]


def test_a_build_without_cuda_is_skipped_with_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert device_code.main(["--build", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"device code: skipped: {tmp_path} has no CUDA; call `make cuda`\n"
