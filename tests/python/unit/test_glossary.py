"""tools/check_words.py finds retired words, tools/check_classes.py large classes."""

from __future__ import annotations

from pathlib import Path

import pytest

import check_classes
import check_words

GLOSSARY = """# Glossary
- **rank**: a process. [a.h](../csrc/a.h)
| retired | the word now |
|---|---|
| rouse | wake |
| turn book, seat, `Turn` | GPU order, lane thread |
| `life` | global state |
"""
RETIRED = check_words.retired_words(GLOSSARY)


def test_retired_words_are_read_from_the_table() -> None:
    assert RETIRED == {
        ("rouse",): "rouse",
        ("turn", "book"): "turn book",
        ("seat",): "seat",
        ("`Turn`",): "`Turn`",
        ("`life`",): "`life`",
    }


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("csrc/a.cc", "void rouse_lanes();", "rouse_lanes"),
        ("csrc/a.h", "class TurnBook;", "TurnBook"),
        ("csrc/turn_book.h", "", "turn_book"),
        ("csrc/a.cc", "Seat seat_;", "Seat"),
        ("csrc/a.h", "struct Turn { int turn; };", "Turn"),
        ("python/roundelay/life.py", "", "life"),
        ("python/roundelay/a.py", "def rouse(): pass", "rouse"),
    ],
)
def test_a_retired_word_is_found(name: str, text: str, found: str) -> None:
    breaks = check_words.check_source(name, text, RETIRED)
    assert breaks
    assert found in breaks[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("csrc/a.cc", 'log("rouse");  // rouse the seat'),
        ("csrc/a.cc", '#include "x/rouse.h"'),
        ("csrc/a.cc", "int carousel, seated, turn, book;"),
        ("csrc/a.cc", "void on_sign_of_life(int turn);"),
        ("python/roundelay/a.py", '"""To rouse."""\nx = "seat"  # seat'),
    ],
)
def test_text_and_longer_words_are_no_identifiers(name: str, text: str) -> None:
    assert check_words.check_source(name, text, RETIRED) == []


def test_glossary_has_links_that_exist_and_few_terms(tmp_path: Path) -> None:
    assert check_words.check_glossary(GLOSSARY, tmp_path) == ["docs/glossary.md:2: no file ../csrc/a.h"]
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "a.h").write_text("")
    (tmp_path / "docs").mkdir()
    assert check_words.check_glossary(GLOSSARY, tmp_path / "docs") == []
    many = GLOSSARY + "- **x**: y. [a.h](../csrc/a.h)\n" * 40
    assert check_words.check_glossary(many, tmp_path / "docs") == ["docs/glossary.md: 41 terms (at most 40)"]
    assert "a term without a link" in check_words.check_glossary("- **x**: y.\n", tmp_path)[0]


CLASS = """
class Lane {
 public:
  explicit Lane(int a);
  int a() const { return a_; }
  struct Inner { int not_mine_; };
 private:
  int a_ = 0;  // b_;
  std::map<int, std::function<void(int)>> tasks_;
  Mutex mutex_;
  bool held_ GUARDED_BY(mutex_) = false;
  std::atomic<int> count_{0};
};
"""


def test_data_members_are_counted() -> None:
    assert check_classes.data_members(CLASS, "Lane") == 5
    assert check_classes.data_members(CLASS, "Other") == 0


def test_a_class_has_the_lines_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "csrc" / "runtime"
    folder.mkdir(parents=True)
    (folder / "lane.h").write_text(CLASS)
    (folder / "lane.cc").write_text("Lane::Lane(int a) {}\n" * 200)
    (folder / "other.cc").write_text("void other() {}\n" * 300)
    assert check_classes.check(tmp_path, {}) == []
    (folder / "lane_more.cc").write_text("int Lane::more() {}\n" * 200)
    breaks = check_classes.check(tmp_path, {})
    assert breaks == ["csrc/runtime/lane.h: Lane: 413 lines with its .cc files (at most 400)"]


def test_exceptions_of_class_sizes_only_shrink(tmp_path: Path) -> None:
    test_a_class_has_the_lines_of_its_files(tmp_path)
    assert check_classes.check(tmp_path, {"Lane": check_classes.Size(413, 5)}) == []
    assert "at most 412" in check_classes.check(tmp_path, {"Lane": check_classes.Size(412, 5)})[0]
    (tmp_path / "csrc" / "runtime" / "lane_more.cc").unlink()
    assert "no exception any more" in check_classes.check(tmp_path, {"Lane": check_classes.Size(412, 5)})[0]
