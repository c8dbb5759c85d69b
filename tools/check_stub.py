"""Compares the stubs of compiled modules with these: `python tools/check_stub.py`.

Exits with 1 if they differ. The stub may import all names of further stubs beside it.
mypy's stubtest cannot see signatures of compiled functions. pybind11 writes them into docstrings.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).resolve().parent.parent / "python" / "roundelay"
Names = dict[str, "list[str] | None"]  # a function's parameters, None for other names


def stub_names(text: str) -> tuple[Names, dict[str, set[str]]]:
    """Return the stub's names, and the members of each class."""
    names: Names = {}
    members: dict[str, set[str]] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            names[node.name] = [argument.arg for argument in node.args.args + node.args.kwonlyargs]
        elif isinstance(node, ast.ClassDef):
            names[node.name] = None
            members[node.name] = {
                child.target.id
                for child in node.body
                if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name)
            } | {child.name for child in node.body if isinstance(child, ast.FunctionDef)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = None
        elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            further = PACKAGE / (f"{(node.module or '').rpartition('.')[2]}.pyi")
            their_names, their_members = stub_names(further.read_text())
            names |= their_names
            members |= their_members
    return names, members


def parameters(signature: str) -> list[str]:
    """Return the parameter names in pybind11's "f(a: int, b: list[tuple[int, int]]) -> None"."""
    inside = signature.partition("(")[2].rpartition(")")[0]
    while (flat := re.sub(r"[\[(][^\[\]()]*[\])]", "", inside)) != inside:
        inside = flat
    # A lone * begins the arguments that are given by name.
    return [re.split("[:=]", part)[0].strip(" *") for part in inside.split(",") if part.strip(" *")]


def module_names(module: ModuleType) -> Names:
    """Return the module's public names."""
    names: Names = {}
    for name, value in vars(module).items():
        if name.startswith("_") and name != "__version__":
            continue
        documented = (getattr(value, "__doc__", None) or "").splitlines()
        plain = callable(value) and not isinstance(value, type)
        names[name] = parameters(documented[0]) if plain and documented else None
    return names


def differences(stub_text: str, module: ModuleType) -> list[str]:
    """Return one line for each difference."""
    stub, members = stub_names(stub_text)
    built = module_names(module)
    lines = [f"{name}: in the stub only" for name in sorted(stub.keys() - built.keys())]
    lines += [f"{name}: in the module only" for name in sorted(built.keys() - stub.keys())]
    for name in sorted(stub.keys() & built.keys()):
        ours, theirs = stub[name], built[name]
        if ours is None or theirs is None:
            continue
        named = not any(re.fullmatch(r"arg\d+", parameter) for parameter in theirs)
        if len(ours) != len(theirs) or (named and ours != theirs):
            lines.append(f"{name}: the stub has {ours}, the module {theirs}")
    for name, expected in members.items():
        absent = expected - set(dir(getattr(module, name, None)))
        lines += [f"{name}.{member}: in the stub only" for member in sorted(absent)]
    return lines


def main() -> int:
    """Compare; return the exit code."""
    from roundelay import _core, _model

    lines = []
    for module in (_core, _model):
        stub = PACKAGE / f"{module.__name__.rpartition('.')[2]}.pyi"
        lines += [f"{stub.name}: {line}" for line in differences(stub.read_text(), module)]
    for line in lines:
        print(f"stub: {line}", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
