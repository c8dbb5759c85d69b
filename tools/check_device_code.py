"""Checks what nvcc has made of the kernels: no spills, few registers, wide loads together, no lost NaN.

It reads the code for each GPU from the build's own objects, and needs no GPU. Where the build has no CUDA, or
there is no cuobjdump or nvdisasm, it says so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_MOST_REGISTERS = 96  # of a thread: a multiprocessor then holds two blocks of 256 threads, and more
_NEAR = 24  # instructions between two loads that are under way together: their addresses, and branches
# The kernels that move most of the bytes, and the loads that each has under way: (kernel, bits, loads).
# Types are numbers of base/dtype.h: 0 is float64, 1 float32, 2 float16, 3 bfloat16.
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

# Minimum and maximum of numbers. If one of the two is a NaN, so is the result. FMNMX.NAN, or its like for
# halves, does that; without .NAN it loses the NaN, and so does DSETP.MIN. kernels/element.h compares, and
# chooses.
_EXTREMES = r"reduce_kernel<ReduceForm<[0-3], Steps<"
_EXTREME = r"\b(?:V?[FDH]MNMX|DSETP\.M(?:IN|AX))[\w.]*"
_COMPARED = r"\b[FDH]SETP[\w.]*", r"\bF?SEL\b"


@dataclass(frozen=True)
class Kernel:
    """What the compiler made of a kernel for a GPU. `loads`: for each width in bits, the most under way."""

    name: str
    gpu: str
    registers: int
    stack: int
    loads: dict[int, int]
    loses_nan: str | None  # the first instruction that does
    chooses: bool  # has an instruction for minimum or maximum, or comparisons that choose

    def problems(self) -> Iterator[str]:
        """Say what is wrong with it."""
        name = f"{self.name} for {self.gpu}"
        if self.stack:
            yield f"{name} has a stack of {self.stack} bytes, for spilled registers or an array"
        if self.registers > _MOST_REGISTERS:
            yield f"{name} has {self.registers} registers, more than {_MOST_REGISTERS}"
        for pattern, bits, wanted in _LOADS:
            found = self.loads.get(bits, 0)
            if re.match(pattern, self.name) and found < wanted:
                yield f"{name} has {found} loads of {bits} bits under way, not {wanted}"
        if self.loses_nan:
            yield f"{name} has {self.loses_nan}, which gives the number if the other one is a NaN"
        if re.match(_EXTREMES, self.name) and not self.chooses:
            yield f"{name} has no minimum, and no comparison that chooses"


def missing(found: Iterable[Kernel]) -> Iterator[str]:
    """Say what is looked for in kernels that the build does not have."""
    names = {kernel.name for kernel in found}
    for pattern in (*(pattern for pattern, _, _ in _LOADS), _EXTREMES):
        if not any(re.match(pattern, name) for name in names):
            yield f"no kernel is a {pattern}"


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


def kernels(gpu: str, usage: str, disassembly: str) -> Iterator[Kernel]:
    """Read the kernels from cuobjdump's use of resources and nvdisasm's text, both with demangled names."""
    section = r"\n\s*\.section\s+\.text\.([^\n]*?),\"[^\n]*\n(.*?)(?=\n\s*\.section|\Z)"
    code = {plain(name.strip()): text for name, text in re.findall(section, disassembly, re.S)}
    for name, registers, stack in re.findall(r"Function (.*):\n\s*REG:(\d+) STACK:(\d+)", usage):
        own = code.get(plain(name), "")
        extremes = re.findall(_EXTREME, own)
        yield Kernel(
            plain(name),
            gpu,
            int(registers),
            int(stack),
            loads_under_way(own),
            next((one for one in extremes if ".NAN" not in one), None),
            bool(extremes) or all(re.search(one, own) for one in _COMPARED),
        )


def _objects(build: Path) -> list[Path]:
    """Return the objects that the build makes of kernels."""
    database = build / "compile_commands.json"
    entries = json.loads(database.read_text()) if database.exists() else ()
    return [Path(entry["directory"]) / entry["output"] for entry in entries if entry["file"].endswith(".cu")]


def _tool(name: str) -> str | None:
    installed = ROOT / "build" / "cuda" / "nvidia" / "cu13" / "bin" / name
    return shutil.which(name) or (str(installed) if installed.exists() else None)


def _said(*command: str | Path, folder: Path, words: str | None = None) -> str:
    done = subprocess.run(command, cwd=folder, input=words, capture_output=True, text=True, check=True)
    return done.stdout


def _read(binary: Path, cuobjdump: str, nvdisasm: str) -> list[Kernel]:
    """Read the kernels of an object."""
    found: list[Kernel] = []
    with tempfile.TemporaryDirectory(prefix="roundelay-device-code-") as name:
        folder = Path(name)
        _said(cuobjdump, "-xelf", "all", binary, folder=folder)
        for code in sorted(folder.glob("*.cubin")):  # FILE.cu.NUMBER.GPU.cubin
            usage = _said(cuobjdump, "-res-usage", code, folder=folder)
            if "Function " in usage:
                text = _said(nvdisasm, "-ndf", "-c", code, folder=folder).replace(
                    ".text.", ".text. "
                )  # a symbol alone
                both = (_said("c++filt", folder=folder, words=words) for words in (usage, text))
                found += kernels(code.suffixes[-2].removeprefix("."), *both)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="tools/check_device_code.py", description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "dev", help="default: build/dev")
    build = parser.parse_args(argv).build
    objects = _objects(build)
    cuobjdump, nvdisasm = _tool("cuobjdump"), _tool("nvdisasm")
    if not objects or cuobjdump is None or nvdisasm is None:
        why = "has no CUDA" if not objects else "is not looked at: no cuobjdump or no nvdisasm"
        print(f"device code: skipped: {build} {why}; call `make cuda`")
        return 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        read = pool.map(lambda one: _read(one, cuobjdump, nvdisasm), objects)
        found = [kernel for some in read for kernel in some]
    problems = [*(problem for kernel in found for problem in kernel.problems()), *missing(found)]
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 1
    gpus = ", ".join(sorted({kernel.gpu for kernel in found}))
    print(f"device code: {len(found)} kernels for {gpus} are as they should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
