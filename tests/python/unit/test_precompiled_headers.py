"""Who includes precompiled headers has their options: g++ 13 warns of others, and reads the headers again."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from ranks import ROOT

BUILT = ROOT / "build" / "dev" / "compile_commands.json"


def _options(words: list[str]) -> tuple[str, list[str]]:
    """Return the level of optimisation, of which the last word counts, and what chooses code or language."""
    level = [word for word in words if word.startswith("-O")][-1]
    return level, sorted({word for word in words if word.startswith(("-f", "-m", "-std"))})


@pytest.mark.skipif(not BUILT.exists(), reason="no build/dev")
def test_precompiled_headers_have_the_options_of_those_who_include_them() -> None:
    commands = [(entry["file"], shlex.split(entry["command"])) for entry in json.loads(BUILT.read_text())]
    headers = {file.removesuffix(".cxx"): _options(words) for file, words in commands if "cmake_pch" in file}
    assert headers
    users = 0
    for file, words in commands:
        for header in re.findall(r"-include (\S+cmake_pch\.hxx)", " ".join(words)):
            assert _options(words) == headers[header], Path(file).relative_to(ROOT)
            users += 1
    assert users > len(headers)
