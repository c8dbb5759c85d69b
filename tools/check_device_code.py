"""Checks what nvcc makes of the kernels: no spills, few registers, wide loads that are under way together.

It compiles each file under csrc/kernels/cuda for one GPU, with the build's own flags, and reads its report
and the disassembly. It needs no GPU. Where the build has no CUDA, or there is no nvdisasm, it says so.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_ARCHITECTURE = "sm_90"
_MOST_REGISTERS = 96  # of a thread: a multiprocessor then holds two blocks of 256 threads, and more
_NEAR = 24  # instructions between two loads that are under way together: their addresses, and branches
# The kernels that move most of the bytes, and the loads that each has under way: (kernel, bits, loads).
# Types are numbers of base/dtype.h: 1 is float32, 2 float16, 3 bfloat16.
_LOADS = (
    (r"reduce_kernel<ReduceForm<[123], FloatingSum<.>, 8, 1, false>", 128, 8),
    (r"reduce_kernel<ReduceForm<[123], FloatingSum<.>, 4, 1, false>", 128, 3),
    (r"reduce_kernel<ReduceForm<[123], FloatingSum<.>, 2, 2, false>", 128, 4),
    (r"bytes_kernel\(", 128, 4),
    (r"copy_kernel<([123]), \1>", 128, 4),
    (r"copy_kernel<[23], 1>", 128, 4),
    (r"copy_kernel<1, [23]>", 64, 4),
    (r"norms_kernel<[23]>", 128, 8),
    (r"norms_kernel<1>", 128, 4),
    (r"accumulate_kernel<[123], PlainSum>", 128, 4),
    (r"accumulate_kernel<[123], MomentumSum", 128, 3),
    (r"gather_kernel<[123]>", 128, 4),
    (r"scatter_kernel<([123]), \1>", 128, 4),
    (r"scatter_kernel<1, [23]>", 64, 4),
    (r"flat_kernel<Keep<[123]>", 128, 4),
    (r"flat_kernel<GiveBack<[123]>", 128, 2),
    (r"radix_kernel<(Count|Compact)Steps>", 128, 4),
)


@dataclass(frozen=True)
class Kernel:
    """What the compiler made of a kernel. `loads`: for each width in bits, the most loads under way."""

    name: str
    registers: int
    stack: int
    spills: int
    loads: dict[int, int]

    def problems(self) -> Iterator[str]:
        """Say what is wrong with it."""
        if self.spills or self.stack:
            yield f"{self.name} spills {self.spills} bytes and has a stack of {self.stack}"
        if self.registers > _MOST_REGISTERS:
            yield f"{self.name} has {self.registers} registers, more than {_MOST_REGISTERS}"
        for pattern, bits, wanted in _LOADS:
            found = self.loads.get(bits, 0)
            if re.match(pattern, self.name) and found < wanted:
                yield f"{self.name} has {found} loads of {bits} bits under way, not {wanted}"


def plain(name: str) -> str:
    """Return a demangled kernel's name without what all names have."""
    name = re.sub(r"roundelay::(kernels::(cuda::)?)?|\(anonymous namespace\)::|^void ", "", name)
    return re.sub(r"\((?:DType|Scaling)\)", "", name)


def loads_under_way(code: str) -> dict[int, int]:
    """Return, for each width in bits, how many loads follow each other before their values are used."""
    most: dict[int, int] = {}
    run: dict[int, int] = {}
    since = 0
    for name in re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", code):
        since += 1
        if name.startswith(("LDG", "LD.")):
            run = run if since <= _NEAR else {}
            since = 0
            bits = 128 if ".128" in name else 64 if ".64" in name else 32
            run[bits] = run.get(bits, 0) + 1
            most[bits] = max(most.get(bits, 0), run[bits])
        elif name.startswith(("STG", "ATOM", "BAR", "EXIT")):
            run = {}
    return most


def kernels(report: str, disassembly: str) -> Iterator[Kernel]:
    """Read the kernels from ptxas' report and nvdisasm's text, both with demangled names."""
    section = r"\n\s*\.section\s+\.text\.([^\n]*?),\"[^\n]*\n(.*?)(?=\n\s*\.section|\Z)"
    code = {plain(name.strip()): text for name, text in re.findall(section, disassembly, re.S)}
    entry = (
        r"Compiling entry function '(.*?)' for .*?(\d+) bytes stack frame, "
        r"(\d+) bytes spill stores.*?Used (\d+) registers"
    )
    for name, stack, spills, registers in re.findall(entry, report, re.S):
        found = loads_under_way(code.get(plain(name), ""))
        yield Kernel(plain(name), int(registers), int(stack), int(spills), found)


def _commands(build: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the build's kernels and the commands that compile them."""
    database = build / "compile_commands.json"
    for entry in json.loads(database.read_text()) if database.exists() else ():
        if entry["file"].endswith(".cu"):
            yield Path(entry["file"]), shlex.split(entry["command"])


def _for_one_gpu(command: Sequence[str], output: Path) -> list[str]:
    """Return the command that compiles the same for one GPU alone, with a report."""
    kept = [word for word in command if not word.startswith("--generate-code") and word != "-c"]
    kept[kept.index("-o") + 1] = str(output)
    return [*kept, "-cubin", f"-arch={_ARCHITECTURE}", "-Xptxas", "-v"]


def _demangled(text: str) -> str:
    text = text.replace(".text.", ".text. ")  # a section's name is more than a symbol
    return subprocess.run(["c++filt"], input=text, capture_output=True, text=True, check=True).stdout


def _disassembler() -> str | None:
    installed = ROOT / "build" / "cuda" / "nvidia" / "cu13" / "bin" / "nvdisasm"
    return shutil.which("nvdisasm") or (str(installed) if installed.exists() else None)


def _check(file: Path, command: Sequence[str], disassembler: str, folder: Path) -> list[str]:
    output = folder / f"{file.stem}.cubin"
    made = subprocess.run(_for_one_gpu(command, output), capture_output=True, text=True, check=False)
    if made.returncode:
        return [f"{file.name} does not compile: {made.stderr}"]
    text = subprocess.run([disassembler, "-c", output], capture_output=True, text=True, check=True).stdout
    found = list(kernels(_demangled(made.stderr), _demangled(text)))
    if not found:
        return [f"{file.name}: no kernel in the compiler's report"]
    return [problem for kernel in found for problem in kernel.problems()]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="tools/check_device_code.py", description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "dev", help="default: build/dev")
    build = parser.parse_args(argv).build
    commands = list(_commands(build))
    disassembler = _disassembler()
    if not commands or disassembler is None:
        why = "has no CUDA" if not commands else "is not looked at: no nvdisasm"
        print(f"device code: skipped: {build} {why}; call `make cuda`")
        return 0
    with tempfile.TemporaryDirectory(prefix="roundelay-device-code-") as folder:
        problems = [
            problem
            for file, command in commands
            for problem in _check(file, command, disassembler, Path(folder))
        ]
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 1
    print(f"device code: {len(commands)} files are as they should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
