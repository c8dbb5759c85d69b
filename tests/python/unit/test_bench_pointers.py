"""The table of the pointer cache's times, and its page."""

from __future__ import annotations

import json

from benchmarks import pointers
from benchmarks.table.markdown import with_table


def test_the_page_holds_what_the_json_says() -> None:
    found = json.loads(pointers.PAGE.with_suffix(".json").read_text())
    page = pointers.PAGE.read_text()
    assert with_table(page, pointers.page_text(found), pointers.BEGIN) == page


def test_a_row_for_each_stand_in_and_number_of_threads() -> None:
    times = {"1": {"driver_ns": 1234.5, "cache_ns": 12.34}, "8": {"driver_ns": 80000.0, "cache_ns": 50.0}}
    assert pointers.table({"cells": [{"driver": "1 us", "threads": times}]}) == [
        ["1 us", "1", "1,234", "12"],
        ["1 us", "8", "80,000", "50"],
    ]
