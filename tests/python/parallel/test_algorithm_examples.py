"""The examples of algorithms give on all ranks the bits of a sequential loop over their functions."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from unittest import mock

import pytest

from ranks import ROOT, run_checks
from roundelay.algorithms import Algorithm, run
from roundelay.algorithms.trees import digest
from sequential import divided, last_state

FOLDER = ROOT / "examples" / "algorithms"
LONGEST = 60  # lines


@pytest.mark.parametrize("np", [2, *(pytest.param(np, marks=pytest.mark.nightly) for np in (1, 3, 4))])
def test_examples(np: int) -> None:
    run_checks(__file__, np)


def test_examples_are_short() -> None:
    assert all(len(file.read_text().splitlines()) < LONGEST for file in FOLDER.glob("*.py"))


def _example(name: str) -> ModuleType:
    file = FOLDER / f"{name}.py"
    specification = importlib.util.spec_from_file_location(name, file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # dataclasses look there
    specification.loader.exec_module(module)
    return module


def check_examples() -> None:
    """Each example gives on all ranks the bits of a sequential loop over its own functions."""
    for file in sorted(FOLDER.glob("*.py")):
        example = _example(file.stem)
        found = example.main(steps=3)
        with mock.patch.object(example, "run", side_effect=lambda *given, **options: (given, options)):
            (algorithm, data, steps), options = example.main(steps=3)
        functions = (algorithm.evaluate, algorithm.combine, algorithm.update)
        expected = last_state(algorithm.state, functions, divided(data, options.get("shards", 64)), steps)
        again = run(Algorithm(found.state, algorithm.evaluate, algorithm.update), data, 0)  # numbers, settled
        assert digest(again.state) == digest(expected), file
