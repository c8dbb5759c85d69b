"""Keeps the core's classes small: `python tools/check_classes.py [ROOT]`.

Exit code 1 with one line a break. A class whose header has its name has at most 20 data members, and 400
lines in that header and the .cc files beside it that define its member functions. EXCEPTIONS may only shrink.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import check_tree

LINES = 400
MEMBERS = 20
# class -> its lines and data members: no more than these, and gone from here when it keeps the limits.
EXCEPTIONS: dict[str, tuple[int, int]] = {}
MOST_EXCEPTIONS = 5

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DATA = re.compile(r"\w_(\[[^\]]*\])?(GUARDED_BY\([^)]*\))?(=.*|\{\})?$", re.DOTALL)


@dataclass(frozen=True)
class Size:
    """Of one class: lines of its files, data members."""

    lines: int
    members: int


def _body(code: str, name: str) -> str | None:
    """Return what is directly in the class's braces; inner braces come out as `{}`."""
    head = re.search(rf"\b(class|struct) {name}\b[^;{{]*\{{", code)
    if head is None:
        return None
    depth, found = 1, []
    for char in code[head.end() :]:
        depth -= char == "}"
        if depth == 0:
            break
        if depth == 1 or (char == "{" and depth == 1):
            found.append(char)
        depth += char == "{"
    return "".join(found)


def data_members(code: str, name: str) -> int:
    """Count the class's data members; they end in an underscore."""
    body = _body(_COMMENT.sub("", code), name) or ""
    # A function's body ends a statement as a semicolon does; an initialiser's braces come before one.
    statements = (re.sub(r"\s+", "", part) for part in re.split(r";|(?<=\{\})(?!\s*;)", body))
    return sum(1 for statement in statements if _DATA.search(statement) and "(" not in _before(statement))


def _before(statement: str) -> str:
    """Return what comes before lock and initialiser, without template arguments: a function has a bracket."""
    statement = re.split(r"GUARDED_BY|=|\{", statement)[0]
    while (inner := re.sub(r"<[^<>]*>", "", statement)) != statement:
        statement = inner
    return statement


def measure(header: Path) -> tuple[str, Size] | None:
    """Return name and size of the class that the header is named after; None where it declares none."""
    name = "".join(part.capitalize() for part in header.stem.split("_"))
    text = header.read_text(encoding="utf-8")
    declared = re.search(rf"\b(?:class|struct) ({name})\b[^;{{]*\{{", text, re.IGNORECASE)
    if declared is None:
        return None
    name = declared[1]
    lines = len(text.splitlines())
    for source in header.parent.glob("*.cc"):
        code = source.read_text(encoding="utf-8")
        # clang-format indents calls, but not definitions.
        if re.search(rf"^(\S.*\b)?{name}::~?\w+\(", _COMMENT.sub("", code), re.MULTILINE):
            lines += len(code.splitlines())
    return name, Size(lines, data_members(text, name))


def check(root: Path, exceptions: dict[str, tuple[int, int]] = EXCEPTIONS) -> list[str]:
    """Return one line for each class of `root`/csrc that is too large, and for exceptions that are none."""
    breaks = []
    found: dict[str, Size] = {}
    for header in sorted((root / "csrc").rglob("*.h")):
        measured = measure(header)
        if measured is None:
            continue
        name, size = measured
        found[name] = size
        lines, members = exceptions.get(name, (LINES, MEMBERS))
        where = f"{header.relative_to(root)}: {name}"
        if size.lines > lines:
            breaks.append(f"{where}: {size.lines} lines with its .cc files (at most {lines})")
        if size.members > members:
            breaks.append(f"{where}: {size.members} data members (at most {members})")
    for name in exceptions:
        if name not in found or (found[name].lines <= LINES and found[name].members <= MEMBERS):
            breaks.append(f"{name} is no exception any more: remove it from tools/check_classes.py")
    if len(exceptions) > MOST_EXCEPTIONS:
        breaks.append(f"{len(exceptions)} exceptions (at most {MOST_EXCEPTIONS})")
    return breaks


if __name__ == "__main__":
    check_tree.main("classes", check)
