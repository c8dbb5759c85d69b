"""Keeps classes small: `python tools/check_classes.py [ROOT]`.

Exit code 1 with one line a break. A class of csrc whose header has its name has at most 20 data members, and
400 lines in that header and the .cc files beside it that define its member functions. A class of
python/roundelay has at most 250 lines, 25 methods, and 15 attributes of its objects. EXCEPTIONS may only
shrink.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import check_tree

# class -> its sizes: no more than these, and gone from here when it keeps the limits.
EXCEPTIONS: dict[str, Size] = {}
MOST_EXCEPTIONS = 5

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DATA = re.compile(r"\w_(\[[^\]]*\])?(GUARDED_BY\([^)]*\))?(=.*|\{\})?$", re.DOTALL)


class Size(NamedTuple):
    """Of one class, or the most that one may have."""

    lines: int  # in C++ of its files
    members: int  # data members, and attributes that its methods or annotations give its objects
    methods: int = 0  # 0 in C++, where a class has its lines alone


CPP = Size(400, 20)
PYTHON = Size(250, 15, 25)
_WORDS = {
    CPP: ("lines with its .cc files", "data members", "methods"),
    PYTHON: ("lines", "attributes", "methods"),
}


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


def python_classes(text: str) -> Iterator[tuple[str, Size]]:
    """Yield name and size of each class of a module, also of those in functions and in classes."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            methods = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield node.name, Size(lines, len(_attributes(node, methods)), len(methods))


def _attributes(node: ast.ClassDef, methods: list[ast.FunctionDef | ast.AsyncFunctionDef]) -> set[str]:
    """Return what the methods assign to `self`, and the fields that annotations declare."""
    found = {
        one.target.id
        for one in node.body
        if isinstance(one, ast.AnnAssign)
        and isinstance(one.target, ast.Name)
        and not ast.unparse(one.annotation).startswith(("ClassVar", "typing.ClassVar"))
    }
    for method in methods:
        if not method.args.args or any(ast.unparse(one) == "staticmethod" for one in method.decorator_list):
            continue
        own = method.args.args[0].arg
        found |= {
            one.attr
            for one in ast.walk(method)
            if isinstance(one, ast.Attribute)
            and isinstance(one.ctx, ast.Store)
            and isinstance(one.value, ast.Name)
            and one.value.id == own
        }
    return found


def _measured(root: Path) -> Iterator[tuple[str, str, Size, Size]]:
    """Yield file, name, size and limits of every class that is checked."""
    for header in sorted((root / "csrc").rglob("*.h")):
        measured = measure(header)
        if measured is not None:
            yield str(header.relative_to(root)), *measured, CPP
    for module in sorted((root / "python" / "roundelay").rglob("*.py")):
        for name, size in python_classes(module.read_text(encoding="utf-8")):
            yield str(module.relative_to(root)), name, size, PYTHON


def check(root: Path, exceptions: dict[str, Size] = EXCEPTIONS) -> list[str]:
    """Return one line for each class of `root` that is too large, and for exceptions that are none."""
    breaks = []
    needed = set()
    for file, name, size, limits in _measured(root):
        most = exceptions.get(name, limits)
        for number, allowed, words in zip(size, most, _WORDS[limits], strict=True):
            if number > allowed:
                breaks.append(f"{file}: {name}: {number} {words} (at most {allowed})")
        if any(number > limit for number, limit in zip(size, limits, strict=True)):
            needed.add(name)
    for name in exceptions.keys() - needed:
        breaks.append(f"{name} is no exception any more: remove it from tools/check_classes.py")
    if len(exceptions) > MOST_EXCEPTIONS:
        breaks.append(f"{len(exceptions)} exceptions (at most {MOST_EXCEPTIONS})")
    return breaks


if __name__ == "__main__":
    check_tree.main("classes", check)
