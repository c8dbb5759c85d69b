"""A release has the package's version, and CHANGELOG.md tells of it; workflows run pinned actions only."""

from __future__ import annotations

import re

import pytest

import release
import roundelay
from ranks import ROOT


def test_the_version_is_the_packages() -> None:
    text = (ROOT / "python" / "roundelay" / "__init__.py").read_text()
    assert release.version(text) == roundelay.__version__


def test_a_release() -> None:
    assert (
        release.wrong("v1.2.0", "1.2.0", "# Changelog\n\n## 1.2.0 (2026-11-28)\n\n## 1.1.0 (2026-01-02)\n")
        is None
    )


@pytest.mark.parametrize(
    ("tag", "changelog", "text"),
    [
        (
            "v1.2.1",
            "## 1.2.0 (2026-11-28)",
            "the tag is v1.2.1, but python/roundelay/__init__.py has version 1.2.0",
        ),
        ("v1.2.0", "## 1.2.0 (unreleased)", "CHANGELOG.md begins with '1.2.0 (unreleased)', but"),
        ("v1.2.0", "## 1.1.0 (2026-01-02)", "CHANGELOG.md begins with '1.1.0 (2026-01-02)', but"),
        ("v1.2.0", "nothing", "CHANGELOG.md begins with 'nothing', but"),
    ],
)
def test_no_release(tag: str, changelog: str, text: str) -> None:
    assert (release.wrong(tag, "1.2.0", changelog) or "").startswith(text)


def test_a_tag_of_another_version_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["--check", "v0.0.1"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_workflows_pin_their_actions() -> None:
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        used = re.findall(r"uses: (\S+)", workflow.read_text())
        assert used
        assert [action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)] == []
