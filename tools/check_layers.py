"""Enforces csrc/includes.txt, who may include whom: `python tools/check_layers.py [ROOT]`.

Exits with 1 and prints one line for each violation. `--write` draws the picture in csrc/README.md anew.
Includes of the project's own files are written in quotes and start at csrc.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath

import check_tree

ROWS = "includes.txt"
PICTURE = "README.md"
BASE = "base"  # every folder may include it
# Only folders of these names may include headers of these patterns.
FOREIGN: list[tuple[re.Pattern[str], str, set[str]]] = [
    (re.compile(r"mpi(-ext)?\.h$"), "mpi.h", {"mpi"}),
    (re.compile(r"nccl\.h$"), "nccl.h", {"nccl"}),
    (re.compile(r"cuda\w*\.h$"), "a CUDA header", {"cuda", "nccl"}),
    (
        re.compile(r"(torch|ATen|c10|pybind11)/|Python\.h$"),
        "a torch header",
        {"adapter", "bindings", "c10d", "gradients", "process_group"},
    ),
]
# modules/x.cc is a module of the folders named x: it may include none of the other names.
MODULES, OPTIONAL = "modules", {"mpi", "cuda", "c10d"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[>"]')
_BLOCK = re.compile(r"(?<=```mermaid\n).*?(?=```)", re.DOTALL)


@dataclass(frozen=True)
class Rows:
    """The rows of includes.txt: a folder, and the folders and headers that it may include."""

    allowed: dict[str, list[str]]

    @classmethod
    def read(cls, csrc: Path) -> Rows:
        """Return the rows of a tree."""
        lines = (csrc / ROWS).read_text(encoding="utf-8").splitlines()
        pairs = [line.split(":") for line in lines if line and not line.startswith("#")]
        return cls({folder: names.split() for folder, names in pairs})

    def folder_of(self, path: str) -> str | None:
        """Return the row that a file or a folder belongs to: its own, or that of a folder around it."""
        parents = [path, *(str(parent) for parent in PurePath(path).parents)]
        return next((one for one in parents if one in self.allowed), None)

    def allow(self, folder: str, header: str) -> bool:
        """Return whether files of `folder`'s row may include this header, a path in csrc."""
        row, target = self.folder_of(folder), self.folder_of(header)
        if row is None or target is None:
            return False
        return target in {row, BASE, *self.allowed[row]} or header in self.allowed[row]

    def breaks(self, csrc: Path) -> list[str]:
        """Return one line for each name in a row that is not an earlier row, or a header of one."""
        found, earlier = [], set[str]()
        for folder, names in self.allowed.items():
            for name in names:
                home = name if name in self.allowed else self.folder_of(name)
                if home not in earlier or (home != name and not (csrc / name).is_file()):
                    found.append(f"{ROWS}: {folder} names {name}, no earlier row and no header of one")
            earlier.add(folder)
        return found

    @cached_property
    def arrows(self) -> list[tuple[str, str]]:
        """The picture's arrows between top folders: those that others do not imply, without base."""
        below: dict[str, set[str]] = {}
        for folder, names in self.allowed.items():
            tops = {PurePath(name).parts[0] for name in names} - {PurePath(folder).parts[0]}
            below.setdefault(PurePath(folder).parts[0], set()).update(tops)

        def reach(top: str) -> set[str]:
            return below[top].union(*(reach(one) for one in below[top]))

        return [
            (top, one)
            for top, others in below.items()
            for one in below
            if one in others and not any(one in reach(other) for other in others)
        ]

    @property
    def picture(self) -> str:
        """The text of the picture."""
        return "\n".join(["flowchart TD", *(f"  {top} --> {one}" for top, one in reversed(self.arrows)), ""])


def check_file(path: Path, csrc: Path, rows: Rows) -> list[str]:
    """Return one line for each forbidden include of one file."""
    relative = path.relative_to(csrc)
    folders = relative.parts[:-1]
    folder = "/".join(folders)
    if rows.folder_of(folder) is None:
        return [f"{relative}: not in a folder of csrc/{ROWS}"]
    names = {*folders, relative.stem} if folder == MODULES else set(folders)
    breaks = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, target = match.groups()
        where = f"{relative}:{number}"
        for pattern, name, homes in FOREIGN:
            if pattern.match(target) and not homes & names:
                breaks.append(f"{where}: {name} ({target}) belongs under {' or '.join(sorted(homes))} only")
        if quote != '"':
            continue
        kinds = OPTIONAL & set(PurePath(target).parts[:-1])
        if not (csrc / target).is_file():
            breaks.append(f'{where}: "{target}" is no file of csrc (includes start at csrc)')
        elif not rows.allow(folder, target) or not kinds <= names:
            breaks.append(f"{where}: {relative if folder == MODULES else folder} may not include {target}")
    return breaks


def check(root: Path) -> list[str]:
    """Return one line for each violation in `root`/csrc."""
    csrc = root / "csrc"
    rows = Rows.read(csrc)
    files = sorted(path for suffix in ("*.h", "*.cc", "*.cu", "*.cuh") for path in csrc.rglob(suffix))
    breaks = rows.breaks(csrc) + [line for path in files for line in check_file(path, csrc, rows)]
    drawn = _BLOCK.search((csrc / PICTURE).read_text(encoding="utf-8"))
    if drawn is None or drawn.group() != rows.picture:
        breaks.append(f"csrc/{PICTURE}: not the picture of {ROWS}: call python tools/check_layers.py --write")
    return breaks


def write(root: Path) -> None:
    """Draw the picture in README.md anew."""
    page = root / "csrc" / PICTURE
    picture = Rows.read(root / "csrc").picture
    page.write_text(_BLOCK.sub(lambda _: picture, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write(Path(__file__).resolve().parent.parent)
    else:
        check_tree.main("layers", check)
