"""Builds the site of the documentation into out/site/VERSION, strictly: `make docs`.

Versions that are there stay. out/site is what to serve: its index.html forwards to this version, and
versions.html lists all of them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import roundelay

ROOT = Path(__file__).resolve().parents[1]
FIRST_PAGE = "docs/site/index.html"
HEAD = '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Roundelay</title>\n'


def forward(version: str) -> str:
    """Make the page that forwards to a version."""
    first = f"{version}/{FIRST_PAGE}"
    link = f'<a href="{first}">Roundelay {version}</a>\n'
    return f'{HEAD}<meta http-equiv="refresh" content="0; url={first}">\n{link}'


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def listed(versions: list[str]) -> str:
    """Make the list of versions, the newest first."""
    newest = sorted(versions, key=_numbers, reverse=True)
    lines = [f'<li><a href="{version}/{FIRST_PAGE}">{version}</a></li>' for version in newest]
    return "\n".join([f"{HEAD}<h1>Roundelay</h1>", "<ul>", *lines, "</ul>", ""])


def main(site: Path) -> int:
    """Build; return the exit code. A warning is an error: a link that leads nowhere, too."""
    version = roundelay.__version__
    strictly = ("-W", "--keep-going", "--quiet", "-c", ROOT / "docs" / "site", "-d", ROOT / "build" / "site")
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *strictly, ROOT, site / version], check=False, cwd=ROOT
    )
    if built.returncode == 0:
        (site / "index.html").write_text(forward(version))
        versions = [page.parents[2].name for page in site.glob(f"*/{FIRST_PAGE}")]
        (site / "versions.html").write_text(listed(versions))
        print(f"wrote {site.relative_to(ROOT)}/index.html")
    return built.returncode


if __name__ == "__main__":
    sys.exit(main(ROOT / "out" / "site"))
