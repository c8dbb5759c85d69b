"""Prints the claims of the papers beside the model's predictions: `python -m benchmarks.papers`."""

from __future__ import annotations

import argparse

from benchmarks.report import papers


def main() -> None:
    """Print the tables, or write them into docs/results/papers.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__)
    parser.add_argument("--docs", action="store_true", help="write docs/results/papers.md's tables")
    if parser.parse_args().docs:
        papers.PART.write(papers.tables())
    else:
        print(papers.tables())


if __name__ == "__main__":
    main()
