"""The site's first pages: one forwards to a version, one lists all of them."""

from __future__ import annotations

import re

import build_site


def test_the_newest_version_comes_first() -> None:
    found = re.findall(r">([\d.a-z]+)</a>", build_site.listed(["0.9.0", "0.10.0", "0.10.0rc1", "1.0.0"]))
    assert found[0] == "1.0.0"
    assert found[-1] == "0.9.0"


def test_both_lead_to_a_version_s_first_page() -> None:
    first = f"0.1.0/{build_site.FIRST_PAGE}"
    assert f'url={first}"' in build_site.forward("0.1.0")
    assert f'href="{first}"' in build_site.listed(["0.1.0"])


def test_the_first_page_is_there() -> None:
    source = build_site.ROOT / build_site.FIRST_PAGE
    assert source.with_suffix(".md").exists()
