"""An example that lacks a package says in one line which extra brings it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import check_imports
from ranks import ROOT

_LACKS = "import runpy, sys; sys.modules['sklearn'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
EXAMPLES = sorted(
    {
        one.place.partition(":")[0]
        for one in check_imports.imports_of(ROOT, "examples")
        if one.package == "scikit-learn"
    }
)


def test_there_are_such_examples() -> None:
    assert "examples/digits.py" in EXAMPLES
    assert "examples/algorithms/k_means.py" in EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: Path(example).stem)
def test_an_example_without_its_package(example: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _LACKS, str(ROOT / example)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stderr == "this example needs scikit-learn: pip install 'roundelay[examples]'\n"
