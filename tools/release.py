"""Makes a release: `python tools/release.py` tags HEAD as this version, and pushing the tag does the rest.

The version is the one of python/roundelay/__init__.py. Exits with 1 and one line if CHANGELOG.md does not
begin with that version and its date. `--check TAG` only compares (.github/workflows/release.yml). Needs a
Python and nothing else.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def version(package: str) -> str:
    """Return the version in the package's text."""
    found = re.search(r'^__version__ = "([0-9.]+)"$', package, re.MULTILINE)
    assert found is not None, "python/roundelay/__init__.py has no __version__"
    return found[1]


def wrong(tag: str, released: str, changelog: str) -> str | None:
    """Return what keeps the tag from being a release of the version; None if nothing does."""
    if tag != f"v{released}":
        return f"the tag is {tag}, but python/roundelay/__init__.py has version {released}"
    newest = re.search(r"^## (.*)$", changelog, re.MULTILINE)
    heading = newest[1] if newest else "nothing"
    if not re.fullmatch(rf"{re.escape(released)} \(\d{{4}}-\d\d-\d\d\)", heading):
        return f"CHANGELOG.md begins with {heading!r}, but a release has its date: '{released} (2026-01-31)'"
    return None


def main(words: Sequence[str] | None = None) -> int:
    """Check, and tag HEAD unless told not to; return the exit code."""
    parser = argparse.ArgumentParser(description="Tags HEAD as a release of this version.")
    parser.add_argument("--check", metavar="TAG", help="only tell whether this tag may be a release")
    given = parser.parse_args(words)
    released = version((ROOT / "python" / "roundelay" / "__init__.py").read_text())
    tag = given.check or f"v{released}"
    complaint = wrong(tag, released, (ROOT / "CHANGELOG.md").read_text())
    if complaint is not None:
        print(f"release: {complaint}", file=sys.stderr)
        return 1
    if given.check is None:
        subprocess.run(
            ["git", "tag", "--annotate", tag, "--message", f"Roundelay {released}"], cwd=ROOT, check=True
        )
        print(f"tagged {tag}; git push origin {tag} publishes it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
