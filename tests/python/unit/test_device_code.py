"""tools/check_device_code.py: what it reads from the use of resources and the disassembly."""

from __future__ import annotations

from pathlib import Path

import pytest

import check_device_code as device_code

_NAME = "void roundelay::kernels::cuda::(anonymous namespace)::norms_kernel<(roundelay::DType)1>(Work)"
_USAGE = """
Resource usage:
 Common:
  GLOBAL:0
 Function {name}:
  REG:{registers} STACK:{stack} SHARED:4096 LOCAL:0 CONSTANT[0]:376 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
_LOAD = "        /*0{at:03x}0*/                   LDG.E.128 R8, desc[UR4][R8.64] ;"
_ADD = "        /*0{at:03x}0*/              @!P0 DADD R8, R8, R12 ;"
_OTHER = "        /*0{at:03x}0*/                   {other} R8, R8, R12, !PT ;"
_FORM = "ReduceForm<(roundelay::DType)1, roundelay::kernels::cuda::Steps<(roundelay::DType)1>, 2, 1, true>"
_EXTREMES = f"void roundelay::kernels::cuda::(anonymous namespace)::reduce_kernel<{_FORM} >(Work)"


def _code(*lines: str, name: str = _NAME) -> str:
    body = "\n".join(line.format(at=at) for at, line in enumerate(lines))
    return f'header\n\t.section\t.text. {name},"ax",@progbits\n{body}\n\t.section\t.text. other,"ax"\n'


def _kernel(code: str, stack: int = 0, registers: int = 40, name: str = _NAME) -> device_code.Kernel:
    usage = _USAGE.format(name=name, stack=stack, registers=registers)
    (found,) = device_code.kernels("sm_90", usage, code)
    return found


def test_loads_that_follow_each_other_are_under_way_together() -> None:
    kernel = _kernel(_code(*[_LOAD, _ADD] * 4))
    assert (kernel.name, kernel.loads) == ("norms_kernel<1>(Work)", {128: 4})
    assert list(kernel.problems()) == []


def test_a_load_behind_the_arithmetic_of_another_is_alone() -> None:
    kernel = _kernel(_code(*[_LOAD, *[_ADD] * 30] * 4))
    assert list(kernel.problems()) == [
        "norms_kernel<1>(Work) for sm_90 has 1 loads of 128 bits under way, not 4"
    ]


@pytest.mark.parametrize(
    ("stack", "registers", "said"),
    [
        (8, 40, "has a stack of 8 bytes, for spilled registers or an array"),
        (0, 98, "has 98 registers, more than 96"),
    ],
)
def test_a_stack_and_many_registers_are_problems(stack: int, registers: int, said: str) -> None:
    kernel = _kernel(_code(*[_LOAD] * 4), stack, registers)
    assert list(kernel.problems()) == [f"norms_kernel<1>(Work) for sm_90 {said}"]


def _with(*others: str, name: str) -> list[str]:
    lines = [_OTHER.replace("{other}", other) for other in others]
    kernel = _kernel(_code(*[_LOAD] * 4, *lines, name=name), name=name)
    return [problem.removeprefix(f"{kernel.name} for sm_90 ") for problem in kernel.problems()]


@pytest.mark.parametrize(
    "lossy", ["FMNMX", "FMNMX.FTZ", "FMNMX3", "HMNMX2", "HMNMX2.BF16_V2", "VHMNMX", "DSETP.MIN.AND"]
)
def test_what_loses_a_nan_is_a_problem_in_any_kernel(lossy: str) -> None:
    said = [f"has {lossy}, which gives the number if the other one is a NaN"]
    assert _with("FMNMX.NAN", lossy, name=_NAME) == said
    assert _with("FMNMX.NAN", lossy, name=_EXTREMES) == said


def test_integers_have_no_nan() -> None:
    assert _with("IMNMX", "VIMNMX.U32", "UIMNMX", name=_NAME) == []


@pytest.mark.parametrize(
    ("others", "said"),
    [
        (["FMNMX.NAN"], []),
        (["HMNMX2.BF16_V2.NAN"], []),
        (["FSETP.GEU.AND", "FSEL"], []),
        (["DSETP.GEU.AND", "SEL"], []),
        (["FSETP.GEU.AND"], ["has no minimum, and no comparison that chooses"]),
        (["FSEL"], ["has no minimum, and no comparison that chooses"]),
    ],
)
def test_minima_keep_a_nan(others: list[str], said: list[str]) -> None:
    assert _with(*others, name=_EXTREMES) == said


def test_what_is_looked_for_exists() -> None:
    kernel = _kernel(_code(*[_LOAD] * 4))
    problems = list(device_code.missing([kernel]))
    assert "no kernel is a norms_kernel<1>" not in problems
    assert r"no kernel is a bytes_kernel\(" in problems


def test_a_build_without_cuda_is_skipped_with_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert device_code.main(["--build", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"device code: skipped: {tmp_path} has no CUDA; call `make cuda`\n"
