"""Checks sizes and other rules of the source: `python tools/check_size.py [ROOT]`.

Exits with 1 and prints one line for each violation.
No file has over 400 lines, no function over 70, no prose over 120 columns; no text has notes to
self or paths of one machine.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import check_tree

FILE_LINES = 400
FUNCTION_LINES = 70
PROSE_COLUMNS = 120
CODE = {".h", ".cc", ".cu", ".cuh", ".py", ".pyi", ".cmake", ".sh"}
TEXT = {".md", ".toml", ".json", ".txt", ".yml", ".yaml", ""} | CODE
# Split, so that this file passes its own check.
BANNED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
MACHINE_PATH = re.compile(r"(?<![\w./~])/(work|home|Users)" r"/\w")
_LINK_TARGET = re.compile(r"\]\([^)\s]*\)|<?https?://\S+")
_SKIPPED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL,
)
_NO_FUNCTION = re.compile(
    r"^\s*(extern\b|(inline\s+)?namespace\b|(template\s*<.*>\s*)?(class|struct|union|enum)\b)"
)


def python_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield (name, first line, number of lines) of each function, without its decorators."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


def _blank(match: re.Match[str]) -> str:
    """Return only the line breaks of a comment or literal."""
    return "\n" * match.group().count("\n")


def cpp_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield (head, first line, number of lines) of each outermost function. Counts braces."""
    code = _SKIPPED.sub(_blank, re.sub(r"(?<=\d)'(?=\d)", "", text))
    code = re.sub(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", _blank, code, flags=re.MULTILINE)
    line, start, head = 1, 1, ""
    body: tuple[int, str, int] | None = None  # depth, head and first line of the current function
    depth = 0
    for char in code:
        if char == "\n":
            line += 1
        if not head.strip():
            start = line
        if char == "{":
            if body is None and not _NO_FUNCTION.match(head.strip()) and "(" in head:
                body = (depth, " ".join(head.split()), start)
            depth += 1
        elif char == "}":
            depth -= 1
            if body is not None and body[0] == depth:
                yield body[1], body[2], line - body[2] + 1
                body = None
        head = "" if char in "{};" else head + char


def wide_prose(text: str) -> Iterator[tuple[int, int]]:
    """Yield (line, columns) of each line of Markdown prose that is too wide.

    Tables and fenced blocks may be wider. The targets of links do not count.
    """
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.lstrip().startswith("|"):
            columns = len(_LINK_TARGET.sub("", line))
            if columns > PROSE_COLUMNS:
                yield number, columns


def check_text(name: str, text: str) -> list[str]:
    """Return one line for each violation in the file `name` with this text."""
    suffix = Path(name).suffix
    lines = text.splitlines()
    breaks = []
    for number, line in enumerate(lines, 1):
        for pattern, what in ((BANNED, "a note to self"), (MACHINE_PATH, "a path of one machine")):
            found = pattern.search(line)
            if found:
                breaks.append(f"{name}:{number}: {what} ({found.group()})")
    if suffix == ".md":
        for number, columns in wide_prose(text):
            breaks.append(f"{name}:{number}: {columns} columns of prose (at most {PROSE_COLUMNS})")
    if suffix not in CODE:
        return breaks
    if len(lines) > FILE_LINES:
        breaks.append(f"{name}: {len(lines)} lines (at most {FILE_LINES})")
    functions: Iterator[tuple[str, int, int]] = iter(())
    if suffix in {".py", ".pyi"}:
        functions = python_functions(text)
    elif suffix in {".h", ".cc", ".cu", ".cuh"}:
        functions = cpp_functions(text)
    for function, first, size in functions:
        if size > FUNCTION_LINES:
            breaks.append(f"{name}:{first}: {function[:60]}: {size} lines (at most {FUNCTION_LINES})")
    return breaks


def own_files(root: Path) -> list[Path]:
    """Return the text files that git tracks or would add."""
    command = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    paths = [root / name for name in sorted(set(names)) if Path(name).suffix in TEXT]
    return [path for path in paths if path.is_file()]


def check(root: Path) -> list[str]:
    """Return one line for each break in the files of `root`."""
    return [
        line
        for path in own_files(root)
        for line in check_text(str(path.relative_to(root)), path.read_text(encoding="utf-8"))
    ]


if __name__ == "__main__":
    check_tree.main("size", check)
