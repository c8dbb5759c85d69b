"""The check that classes are small."""

from __future__ import annotations

from pathlib import Path

import pytest

import check_classes


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / "csrc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_class_counts_its_header_and_the_files_that_define_its_functions(tmp_path: Path) -> None:
    """A file that only calls a function of the class is another class's."""
    header = "#pragma once\nclass Track {\n public:\n  static void run();\n  int length_;\n};\n"
    files = {
        "lane/track.h": header,
        "lane/track.cc": "void Track::run() {\n}\n" + "\n" * 300,
        "lane/lane.cc": "void Lane::step() {\n  Track::run();\n}\n" + "\n" * 300,
    }
    root = _tree(tmp_path, files)
    assert check_classes.measure(root / "csrc/lane/track.h") == ("Track", check_classes.Size(308, 1))
    assert check_classes.check(root, {}) == []
    (root / "csrc/lane/track_end.cc").write_text("Track::~Track() = default;\n" + "\n" * 300)
    assert check_classes.check(root, {}) == [
        "csrc/lane/track.h: Track: 609 lines with its .cc files (at most 400)"
    ]


PYTHON_CLASS = """
class Track:
    length: int
    kinds: ClassVar[int] = 3

    def __init__(self, other):
        self.a, (self.b, self.c) = 1, (2, 3)
        self.a += 1
        other.d = self.length = 4
        with open("x") as self.e:
            pass

    @staticmethod
    def make(one):
        one.f = 1

    async def run(self):
        class Inner:
            def __init__(self):
                pass
        self.g: int = 0
"""


def test_a_python_class_counts_its_methods_and_the_attributes_of_its_objects() -> None:
    found = dict(check_classes.python_classes(PYTHON_CLASS))
    lines = len(PYTHON_CLASS.strip().splitlines())
    assert found["Track"] == check_classes.Size(lines, 6, 3)  # length, a, b, c, e, g
    assert found["Inner"] == check_classes.Size(3, 0, 1)


@pytest.mark.parametrize(
    ("body", "broken"),
    [
        ("\n".join(f"    a{number}: int" for number in range(15)), ""),
        ("\n".join(f"    a{number}: int" for number in range(16)), "16 attributes (at most 15)"),
        ("\n".join(f"    def f{number}(self): ..." for number in range(25)), ""),
        ("\n".join(f"    def f{number}(self): ..." for number in range(26)), "26 methods (at most 25)"),
        ("\n" * 248 + "    pass", ""),
        ("\n" * 249 + "    pass", "251 lines (at most 250)"),
    ],
)
def test_a_python_class_has_limits(tmp_path: Path, body: str, broken: str) -> None:
    module = tmp_path / "python" / "roundelay" / "inner" / "one.py"
    module.parent.mkdir(parents=True)
    module.write_text(f"class Large:\n{body}\n")
    expected = [f"python/roundelay/inner/one.py: Large: {broken}"] if broken else []
    assert check_classes.check(tmp_path, {}) == expected


def test_the_limits_are_checked_on_this_tree() -> None:
    """A moved folder would make the check pass for nothing."""
    found = [file for file, *_ in check_classes._measured(Path(check_classes.__file__).parents[1])]
    for folder in ("csrc/", "python/roundelay/"):
        assert sum(file.startswith(folder) for file in found) > 100
