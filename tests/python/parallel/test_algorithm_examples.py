"""The examples of algorithms give on all ranks the bits of a sequential loop over their functions."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from unittest import mock

import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

from ranks import ROOT, Check, run_check
from roundelay.algorithms import Algorithm, run
from roundelay.algorithms.trees import digest
from sequential import divided, last_state

FOLDER = ROOT / "examples" / "algorithms"
LONGEST = 65  # lines


@pytest.mark.parametrize("np", [2, *(pytest.param(np, marks=pytest.mark.nightly) for np in (1, 3, 4))])
def test_examples(np: int, check: Check) -> None:
    run_check(check, np)


def test_examples_are_short() -> None:
    assert all(len(file.read_text().splitlines()) < LONGEST for file in FOLDER.glob("*.py"))


@pytest.mark.usefixtures("job_of_one")
def test_examples_learn() -> None:
    """k-means ends where scikit-learn's does; chance gives the classifiers a loss of 2.3."""
    images = load_digits().data
    theirs = KMeans(10, init=images[:10], n_init=1, tol=0.0, max_iter=1000).fit(images).inertia_
    found = _example("k_means").main()
    assert found.converged
    assert found.state.distance == pytest.approx(theirs, rel=1e-5)
    for name, most in (("rprop", 1e-3), ("conjugate_gradients", 0.1), ("sgd_by_shards", 0.25)):
        assert _example(name).main().state.loss < most, name


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
