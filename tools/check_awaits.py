"""Finds temporaries in `co_await` expressions of csrc and tests/cpp: `python tools/check_awaits.py [ROOT]`.

Compilers in use miscompile a co_await whose expression has a temporary with a destructor: it is destroyed
twice, or while it is in use. So the operand is one call, and its arguments have no part that could be such a
temporary: they are names, numbers, their members and elements, arithmetic, calls on these, and text in quotes
for a std::string_view. Whatever else is needed is a variable before the co_await.
"""

from __future__ import annotations

import re
from pathlib import Path

import check_tree

CURE = "make it a variable before the co_await"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_AWAIT = re.compile(r"\bco_await\b([^;]*);")
_NAME = r"\*?[A-Za-z_]\w*(?:(?:\.|->)\w+|\[[^][(){}\"]*\])*"  # also its members and elements
_CAST = re.compile(r"static_cast<[\w: ]+>(?=\()")
_NUMBER = rf"(?:{_NAME}|\d+)(?:\s*[-+*]\s*(?:{_NAME}|\d+))*"
# What such a call returns counts as a name: ours return references and numbers.
_PLAIN_CALL = re.compile(rf"(?<![\w:.>]){_NAME}\(\s*(?:{_NUMBER}(?:\s*,\s*{_NUMBER})*)?\s*\)")
_OPERAND = re.compile(rf"(?:\w+::)*{_NAME}\((?P<arguments>[^(){{}}]*)\)")
_ARGUMENT = re.compile(rf"{_NUMBER}|\"[^\"]*\"")


def _has_temporary(operand: str) -> bool:
    operand = _CAST.sub("cast", " ".join(operand.split()))
    head, _, arguments = operand.partition("(")
    simple = f"{head}({_PLAIN_CALL.sub('plain', arguments)}"
    match = _OPERAND.fullmatch(simple)
    if match is None:
        return True
    arguments = match["arguments"].strip()
    return any(not _ARGUMENT.fullmatch(one.strip()) for one in arguments.split(",")) if arguments else False


def check_text(path: str, text: str) -> list[str]:
    """Return one line for each co_await that may have a temporary with a destructor."""
    text = _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    return [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: co_await{match[1]} may have a temporary: {CURE}"
        for match in _AWAIT.finditer(text)
        if _has_temporary(match[1].strip())
    ]


def check(root: Path) -> list[str]:
    """Return one line for each such co_await in the sources of `root`."""
    folders = (root / "csrc", root / "tests" / "cpp")
    files = sorted(path for folder in folders for kind in ("*.h", "*.cc") for path in folder.rglob(kind))
    return [
        line
        for path in files
        for line in check_text(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
    ]


if __name__ == "__main__":
    check_tree.main("awaits", check)
