"""What the documentation shows is true: its programs run, its commands succeed, its links lead somewhere.

The ```python blocks of a page run in order, as one program; each ```sh block runs as one script. A block
without a language is not run: it needs other machines, takes long, or is output.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import config_docs
from ranks import ROOT, launch

FOLDERS = tuple(
    ROOT / folder for folder in (".", "docs", "docs/techniques", "docs/results", "examples", "csrc")
)
PAGES = sorted(page for folder in FOLDERS for page in folder.glob("*.md"))
RUN_PAGES = [page for page in PAGES if page.parent.name != "csrc"]
LIMIT_S = 240.0
LONGEST_PAGE = 125  # lines, of those that are short by intent
SHORT_PAGES = ("optimizer.md", "parameters.md", "configuration.md", "threads.md", "gpu.md")

# The same command, sooner: the full training is `make train`'s, which CI calls itself.
SOONER = {
    "make train\n": "mkdir -p out/train\n"
    "roundelayrun -np 2 --timeline-filename out/train/timeline.json python examples/digits.py\n",
    "examples/digits.py": "examples/digits.py --epochs 1 --width 16",
    "-np 4": "-np 2",
}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(page.read_text()) if kind == language]


def _clean_environment() -> dict[str, str]:
    prefixes = ("ROUNDELAY_", "HOROVOD_", "OMPI_", "PMIX_", "PRTE_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return {
        **clean,
        "PYTHONPATH": str(ROOT / "python"),
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "Agg",
        # Root, and more ranks than cores: what a user of an own machine has no need to say.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like the repository's root, into which commands may write."""
    folder = tmp_path_factory.mktemp("checkout")
    for entry in ROOT.iterdir():
        if entry.name not in ("out", "build", "bin"):
            (folder / entry.name).symlink_to(entry)
    (folder / "train.py").write_text("\n".join(_blocks(ROOT / "README.md", "python")))
    commands = folder / "bin"
    commands.mkdir()
    for command, module in (("roundelay", "roundelay.cli"), ("roundelayrun", "roundelay.run.cli")):
        (commands / command).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        (commands / command).chmod(0o755)
    return folder


def _run(command: list[str], folder: Path) -> None:
    path = [str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    run = subprocess.run(
        command,
        cwd=folder,
        env={**_clean_environment(), "PATH": os.pathsep.join(path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert run.returncode == 0, f"{command}: exit status {run.returncode}\n{run.stdout}"


@pytest.mark.starts_jobs
@pytest.mark.parametrize("page", [page for page in RUN_PAGES if _blocks(page, "python")], ids=_name)
def test_python_blocks_run(page: Path, checkout: Path) -> None:
    program = checkout / f"{page.stem}_blocks.py"
    program.write_text("\n".join(_blocks(page, "python")))
    _run([sys.executable, str(program)], checkout)


@pytest.mark.starts_jobs
@pytest.mark.parametrize(
    "page",
    [
        *("first_script.md", "optimizer.md", "parameters.md", "master_weights.md", "strategies.md"),
        "uneven_batches.md",
        "techniques/algorithms.md",
    ],
)
def test_pages_hold_on_two_ranks(page: str, tmp_path: Path) -> None:
    program = tmp_path / "blocks.py"
    there = f"import os; os.chdir({str(tmp_path)!r})"  # a page may write files
    program.write_text("\n".join([there, *_blocks(ROOT / "docs" / page, "python")]))
    run = launch([sys.executable, str(program)], 2)
    assert run.returncode == 0, run.output


def _scripts() -> list[Any]:
    """Returns each script once, with the page that has it first."""
    pages = {script: page for page in reversed(RUN_PAGES) for script in _blocks(page, "sh")}
    return [_as_parameters(page, script) for script, page in pages.items()]


def _as_parameters(page: Path, script: str) -> Any:
    """A script that trains takes long."""
    trains = re.search(r"\w+\.py\b", script) and "--dry-run" not in script
    return pytest.param(page, script, marks=pytest.mark.nightly if trains else ())


@pytest.mark.starts_jobs
@pytest.mark.parametrize(
    ("page", "script"),
    _scripts(),
    ids=lambda value: value.stem if isinstance(value, Path) else value.splitlines()[0],
)
def test_commands_run(page: Path, script: str, checkout: Path) -> None:
    for text, sooner in SOONER.items():
        script = script.replace(text, sooner)
    _run(["sh", "-exc", script], checkout)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    for target in LINK.findall(text):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{_name(page)} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in slugs, f"{_name(page)} links to {target}"


def test_the_configuration_page_is_what_the_core_says() -> None:
    page = config_docs.PAGE.read_text()
    assert config_docs.with_tables(page) == page, "call tools/config_docs.py"
    assert "ROUNDELAY_THETA" in page
    stub = config_docs.STUB.read_text()
    assert config_docs.with_properties(stub) == stub, "call tools/config_docs.py"


def test_the_diagrams_are_what_the_script_draws() -> None:
    script = ROOT / "docs" / "images" / "draw.py"
    run = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("name", SHORT_PAGES)
def test_pages_are_short(name: str) -> None:
    assert len((ROOT / "docs" / name).read_text().splitlines()) <= LONGEST_PAGE
