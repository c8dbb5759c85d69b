"""tools/check_imports.py finds what is imported and not declared, and the other way round."""

from __future__ import annotations

from pathlib import Path

import pytest

import check_imports
from ranks import ROOT

DECLARED = ["torch==2.13.*", "numpy", "pyyaml", "rich>=13", 'matplotlib; extra == "timeline"']
PACKAGE = {
    "__init__.py": "import os\nimport torch\nfrom roundelay import pages\n",
    "pages.py": "import rich\nimport yaml.nodes\n\ndef draw():\n    from roundelay.picture import draw\n",
    "picture.py": "import matplotlib\n",
}


def _tree(root: Path, folder: str, files: dict[str, str]) -> list[check_imports.Import]:
    for name, text in files.items():
        path = root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return check_imports.imports_of(root, folder)


def _package(root: Path, declared: list[str] = DECLARED, **changed: str) -> list[str]:
    files = {**PACKAGE, **{f"{name}.py": text for name, text in changed.items()}}
    return list(check_imports.wrong_in_package(_tree(root, "python/roundelay", files), declared))


def test_a_package_that_declares_what_it_imports(tmp_path: Path) -> None:
    assert _package(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    import matplotlib\n",
        "try:\n    import matplotlib\nexcept ImportError:\n    pass\n",
        "def f(comm):\n    from mpi4py import MPI\n",
        "from . import pages\n",
    ],
)
def test_guarded_imports_need_no_declaration(tmp_path: Path, text: str) -> None:
    assert _package(tmp_path, more=text) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import requests\n", "more.py:1: requests is imported, and nothing declares it"),
        ("def f():\n    from requests import get\n", "more.py:2: requests is imported, and nothing declares"),
        ("import matplotlib\n", "more.py:1: matplotlib is imported, and only an extra has it"),
        ("try:\n    import matplotlib\nfinally:\n    pass\n", "more.py:2: matplotlib"),
        ("from roundelay.picture import draw\n", "picture.py:1: matplotlib is imported, and only an extra"),
        ("from roundelay import picture\n", "picture.py:1: matplotlib is imported, and only an extra has it"),
        ("from mpi4py import MPI\n", "more.py:1: mpi4py is imported, and nothing declares it"),
    ],
)
def test_what_is_not_declared(tmp_path: Path, text: str, why: str) -> None:
    wrong = _package(tmp_path, more=text)
    assert wrong
    assert all(line.startswith(f"python/roundelay/{why}") for line in wrong), wrong


@pytest.mark.parametrize("unused", ["flask>=3", 'flask; extra == "web"'])
def test_an_unused_declaration_is_named(tmp_path: Path, unused: str) -> None:
    (line,) = _package(tmp_path, [*DECLARED, unused])
    assert line.startswith("flask is declared")


EXAMPLE = {"digits.py": "import torch\nfrom sklearn import datasets\nimport data\n", "data.py": ""}
EXTRAS = ['roundelay[plan,timeline]; extra == "examples"', 'scikit-learn; extra == "plan"']
BUILD = ["ninja", "torch>=2.12"]
TRAIN = ["torch==2.13.0", "numpy", "pyyaml", "rich>=13", "ninja"]


@pytest.mark.parametrize(
    ("train", "wrong"),
    [
        (TRAIN, []),
        ([one for one in TRAIN if one != "pyyaml"], ["the package needs pyyaml, which"]),
        ([one for one in TRAIN if one != "ninja"], ["the build needs ninja, which"]),
        ([*TRAIN, "flask"], ["tools/requirements-train.txt has flask, which nothing needs"]),
        (["torch==2.11.9", *TRAIN[1:]], ["pyproject.toml builds with torch>=2.12, tools/requirements-tr"]),
    ],
)
def test_the_list_for_training_has_what_is_imported(train: list[str], wrong: list[str]) -> None:
    found = list(check_imports.wrong_in_train(DECLARED, BUILD, train))
    assert len(found) == len(wrong), found
    assert all(line.startswith(start) for line, start in zip(found, wrong, strict=True)), found


@pytest.mark.parametrize(
    ("declared", "wrong"),
    [
        ([*DECLARED, *EXTRAS], []),
        ([*DECLARED, 'scikit-learn; extra == "examples"'], []),
        (
            [*DECLARED, EXTRAS[1]],
            ["examples/digits.py:2 needs scikit-learn, which the extra `examples` lacks"] * 2,
        ),
        (
            [*DECLARED, EXTRAS[0]],
            ["examples/digits.py:2 needs scikit-learn, which the extra `examples` lacks"] * 2,
        ),
    ],
)
def test_what_examples_need(tmp_path: Path, declared: list[str], wrong: list[str]) -> None:
    examples = _tree(tmp_path, "examples", EXAMPLE)
    assert list(check_imports.wrong_in_examples(examples, declared)) == wrong


def test_files_that_include_others(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("# all\n-r b.txt\ntorch==2.13.0  # the one\n\n")
    (tmp_path / "b.txt").write_text("numpy\n")
    assert check_imports.lines_of(tmp_path / "a.txt") == ["numpy", "torch==2.13.0"]


def test_this_repository_declares_what_it_imports(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_imports.main(ROOT) == 0, capsys.readouterr().out
