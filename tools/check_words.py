"""Checks that the source speaks the glossary's language: `python tools/check_words.py [ROOT]`.

Exit code 1 with one line a break. docs/glossary.md defines at most 40 terms, each with a link to a file, and
ends with a table of retired words: no identifier and no file name in csrc or python/roundelay has one. A word
in backquotes is retired as a whole name only.
"""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import check_tree

TERMS = 40
FOLDERS = ("csrc", "python/roundelay")
CPP = {".h", ".cc", ".cu", ".cuh"}
_TERM = re.compile(r"^- \*\*(?P<term>[^*]+)\*\*", re.MULTILINE)
_RETIRED = re.compile(r"^\| (?P<words>[a-z`][A-Za-z`_ ,]*) \| [^|]+ \|$", re.MULTILINE)
_LINK = re.compile(r"\]\((?P<target>[^)#]+)\)")
_NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|^\s*#\s*include[^\n]*|R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"',
    re.DOTALL | re.MULTILINE,
)
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def parts(identifier: str) -> tuple[str, ...]:
    """Return the words of a snake_case or CamelCase name, in lower case."""
    return tuple(part.lower() for part in _PART.findall(identifier))


def _cpp_identifiers(text: str) -> Iterator[tuple[int, str]]:
    code = _NOT_CODE.sub(lambda match: "\n" * match.group().count("\n"), text)
    for number, line in enumerate(code.splitlines(), 1):
        for name in re.findall(r"[A-Za-z_]\w*", line):
            yield number, name


def _python_identifiers(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            yield token.start[0], token.string


def retired_words(glossary: str) -> dict[tuple[str, ...], str]:
    """Return the retired words of the table: their parts, and the words themselves."""
    rows = (match["words"] for match in _RETIRED.finditer(glossary))
    words = (word.strip() for row in rows for word in row.split(","))
    return {tuple(word.split()): word for word in words if word != "retired"}


def _has(name: tuple[str, ...], words: tuple[str, ...]) -> bool:
    size = len(words)
    return any(name[start : start + size] == words for start in range(len(name) - size + 1))


def check_source(name: str, text: str, retired: dict[tuple[str, ...], str]) -> list[str]:
    """Return one line for each retired word in the file's name or in one of its identifiers."""
    path = Path(name)
    found = [(0, path.stem), *(_cpp_identifiers(text) if path.suffix in CPP else _python_identifiers(text))]
    breaks: dict[str, str] = {}
    for line, identifier in found:
        spoken = parts(identifier)
        for words, word in retired.items():
            if _has(spoken, words) or word == f"`{identifier}`":
                breaks.setdefault(identifier, f"{name}:{line}: {identifier}: the glossary retired {word!r}")
    return list(breaks.values())


def check_glossary(text: str, folder: Path) -> list[str]:
    """Return one line for each break of the glossary's own rules; links start at `folder`."""
    terms = [match["term"] for match in _TERM.finditer(text)]
    breaks = [] if len(terms) <= TERMS else [f"docs/glossary.md: {len(terms)} terms (at most {TERMS})"]
    for number, line in enumerate(text.splitlines(), 1):
        links = [match["target"] for match in _LINK.finditer(line)]
        if _TERM.match(line) and not links:
            breaks.append(f"docs/glossary.md:{number}: a term without a link to its header")
        breaks += [
            f"docs/glossary.md:{number}: no file {link}" for link in links if not (folder / link).is_file()
        ]
    return breaks


def check(root: Path) -> list[str]:
    """Return one line for each break below `root`."""
    glossary = (root / "docs" / "glossary.md").read_text(encoding="utf-8")
    breaks = check_glossary(glossary, root / "docs")
    retired = retired_words(glossary)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in CPP | {".py", ".pyi"}:
                text = path.read_text(encoding="utf-8")
                breaks += check_source(str(path.relative_to(root)), text, retired)
    return breaks


if __name__ == "__main__":
    check_tree.main("words", check)
