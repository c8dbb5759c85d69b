"""Enforces the include table of csrc: `python tools/check_layers.py [ROOT]`.

Exits with 1 and prints one line for each violation. csrc/README.md shows the table.
Includes of the project's own files are written in quotes and start at csrc.
"""

from __future__ import annotations

import re
from pathlib import Path

import check_tree

BELOW = {"base", "wire"}  # every folder may include these
# folder -> the folders that it may include; "x": the subfolder of the same name (for bootstrap/mpi: mpi)
TABLE: dict[str, set[str]] = {
    "base": set(),
    "trust": {"base"},
    "platform": {"base", "trust"},
    "wire": {"base"},
    "kernels": {"base", "platform/x"},
    "submit": BELOW,
    "fuse": BELOW | {"kernels"},
    "bootstrap": BELOW | {"trust", "platform/x"},
    "negotiate": BELOW | {"fuse/plan.h", "fuse/layout.h"},
    "channel": BELOW | {"kernels", "trust", "platform/x"},
    "collective": BELOW | {"kernels", "trust", "platform/x"},
    "complete": {"base", "submit"},
    "timeline": {"base"},
    "compress": {"base", "kernels", "collective/fabric.h", "collective/call.h", "collective/task.h"},
    "model": {"base", "fuse/plan.h"},
}
BELOW_RUNTIME = set(TABLE)
TABLE["launcher"] = {"base"}
TABLE["preload"] = {"base", "platform/device/pointer_cache.h"}
TABLE["runtime"] = BELOW_RUNTIME
TABLE["adapter"] = BELOW_RUNTIME | {"runtime"}
TABLE["gradients"] = {"base", "wire", "submit", "compress", "kernels", "timeline", "adapter"} | {
    "runtime/context.h"
}
TABLE["bindings"] = BELOW_RUNTIME | {"runtime", "adapter", "gradients"}

# Only folders of that name may include headers of these patterns.
FOREIGN: list[tuple[re.Pattern[str], str, set[str]]] = [
    (re.compile(r"mpi(-ext)?\.h$"), "mpi.h", {"mpi"}),
    (re.compile(r"nccl\.h$"), "nccl.h", {"nccl"}),
    (re.compile(r"cuda\w*\.h$"), "a CUDA header", {"cuda", "nccl"}),
    (
        re.compile(r"(torch|ATen|c10|pybind11)/|Python\.h$"),
        "a torch header",
        {"adapter", "bindings", "c10d", "gradients"},
    ),
]
# Only folders of the same name, and the runtime's folder of that name, may include these platform folders.
OPTIONAL = {"mpi", "cuda", "c10d"}
# A sub-folder may include its folder's own headers, and only these of its siblings.
SIBLINGS: dict[str, set[str]] = {
    "runtime/cuda": {"gpu"},
    "runtime/lane": {"gpu"},
    "runtime/session": {"gpu", "lane", "control"},
    "runtime/startup": {"gpu", "lane", "control", "session"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def _allowed(folders: tuple[str, ...], target: str) -> bool:
    """Return whether a file in `folders` (("bootstrap", "mpi")) may include `target` (a path in csrc)."""
    parts = Path(target).parts
    top, kind = parts[0], parts[1] if len(parts) > 2 else ""
    if top not in TABLE:
        return False
    if kind in OPTIONAL and kind not in folders[1:]:
        return False
    if top == folders[0]:
        # A backend may not include its siblings: channel/tcp does not include channel/inproc.
        return len(folders) == 1 or kind in {"", folders[1]} | SIBLINGS.get("/".join(folders[:2]), set())
    for entry in TABLE[folders[0]]:
        head, _, tail = entry.partition("/")
        if head != top:
            continue
        if not tail or target == entry or (tail == "x" and kind and kind in folders[1:]):
            return True
    return False


def check_file(path: Path, csrc: Path) -> list[str]:
    """Return one line for each forbidden include of one file."""
    relative = path.relative_to(csrc)
    folders = relative.parts[:-1]
    if not folders or folders[0] not in TABLE:
        return [f"{relative}: not in a folder of the design ({', '.join(TABLE)})"]
    breaks = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, target = match.groups()
        where = f"{relative}:{number}"
        for pattern, name, homes in FOREIGN:
            if pattern.match(target) and not homes & set(folders):
                breaks.append(f"{where}: {name} ({target}) belongs under {' or '.join(sorted(homes))} only")
        if quote != '"':
            continue
        if not (csrc / target).is_file():
            breaks.append(f'{where}: "{target}" is no file of csrc (includes start at csrc)')
        elif not _allowed(folders, target):
            breaks.append(f"{where}: {'/'.join(folders)} may not include {target}")
    return breaks


def check(root: Path) -> list[str]:
    """Return one line for each violation of the table in `root`/csrc."""
    csrc = root / "csrc"
    files = sorted(path for suffix in ("*.h", "*.cc", "*.cu", "*.cuh") for path in csrc.rglob(suffix))
    return [line for path in files for line in check_file(path, csrc)]


if __name__ == "__main__":
    check_tree.main("layers", check)
