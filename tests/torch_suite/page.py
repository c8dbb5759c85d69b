"""Writes the outcomes into docs/results: a page of counts, and each test's outcome as JSON."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import torch

from benchmarks.row_json import as_rows
from tests.torch_suite.exceptions import EXEMPT, PUT_ASIDE
from tests.torch_suite.listing import GLOO, PARTS
from tests.torch_suite.results import Outcome

Outcomes = Mapping[str, Outcome]
Files = Mapping[int, Mapping[str, Outcomes]]  # by world size and backend

_HEAD = """# PyTorch's own tests

PyTorch tests its backends with the class `DistributedTest` of its wheel, and chooses by the backend's name
what to run. `python -m tests.torch_suite --docs` runs it for `roundelay` wherever it lists `gloo`, and for
`gloo` beside it, with torch {version}. Most tests of DDP ask for GPUs and need none: they run with tensors on
the CPU. A test that fails for both backends needs what this machine lacks, or what the harness cannot stand
for. [torch_suite.json](torch_suite.json) has each test's outcome.

Passed / failed:

| ranks | tests | gloo | roundelay | gloo alone passes | roundelay alone passes |
|---|---|---|---|---|---|
"""


def write(files: Files, folder: Path) -> None:
    """Write torch_suite.md and torch_suite.json."""
    text = _HEAD.format(version=torch.__version__.partition("+")[0])
    for size, backends in files.items():
        text += "".join(_row(size, part, backends) for part in PARTS)
    text += "\n" + _exceptions(files)
    (folder / "torch_suite.md").write_text(text)
    kinds = {
        str(size): {
            backend: {name: one.kind for name, one in outcomes.items() if one.kind != "skipped"}
            for backend, outcomes in backends.items()
        }
        for size, backends in files.items()
    }
    (folder / "torch_suite.json").write_text(as_rows(dict(sorted(kinds.items()))) + "\n")


def _row(size: int, part: str, backends: Mapping[str, Outcomes]) -> str:
    ran = {
        backend: {name: one.kind for name, one in outcomes.items() if one.part == part}
        for backend, outcomes in backends.items()
    }
    gloo, ours = ran[GLOO], next(kinds for backend, kinds in ran.items() if backend != GLOO)
    cells = [f"{size}", PARTS[part].what]
    for kinds in (gloo, ours):
        seen = Counter(kinds.values())
        cells.append(f"{seen['passed']} / {seen['failed']}")
    cells += [_alone(gloo, ours), _alone(ours, gloo)]
    return "| " + " | ".join(cells) + " |\n"


def _alone(passing: Mapping[str, str], other: Mapping[str, str]) -> str:
    names = [name for name, kind in passing.items() if kind == "passed" and other.get(name) != "passed"]
    some = ", ".join(f"`{name}`" for name in sorted(names))
    return str(len(names)) if len(names) > 6 else some or "-"


def _exceptions(files: Files) -> str:
    """Return why tests that gloo alone passes say nothing of roundelay, and what the harness puts aside."""
    text = "Exceptions, by the line of PyTorch's that makes them:\n\n"
    for name, one in {**EXEMPT, **PUT_ASIDE}.items():
        text += _wrapped(f"- `{name}` ({one.line}) {one.why}.", "  ")
    both = {
        name
        for backends in files.values()
        for name, one in backends[GLOO].items()
        if one.kind == "failed" and all(outcomes[name].kind == "failed" for outcomes in backends.values())
    }
    names = ", ".join(f"`{name}`" for name in sorted(both))
    return text + "\n" + _wrapped(f"Failed for both backends on some number of ranks ({len(both)}): {names}.")


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 110, subsequent_indent=indent, break_long_words=False) + "\n"
