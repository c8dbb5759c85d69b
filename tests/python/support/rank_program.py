"""Programs of ranks: functions of files in `programs`, which read like all code and are checked like it.

A test imports the file, and gives a job `program(function, *arguments)`. Each rank runs this file, which
calls the function with the rank (rank_here.py) and the arguments.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, ParamSpec

from rank_here import Rank

LIMIT_S = 200.0  # then a rank shows where it is, and ends

Parameters = ParamSpec("Parameters")


@dataclass(frozen=True)
class Program:
    """A function and its arguments but for the rank, as words of a command line."""

    module: str
    name: str
    arguments: str

    def words(self, folder: Path) -> list[str]:
        """Returns what follows `python`: main()'s arguments.

        The folder is for what the ranks and the test tell each other.
        """
        return [__file__, str(folder), self.module, self.name, self.arguments]


def program(
    function: Callable[Concatenate[Rank, Parameters], None],
    *arguments: Parameters.args,
    **named: Parameters.kwargs,
) -> Program:
    """Returns a program that calls a function of a file with these arguments, which JSON can tell."""
    return Program(function.__module__, function.__name__, json.dumps([arguments, named]))


def main(folder: str, module: str, name: str, arguments: str) -> None:
    """Runs a program in this process."""
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    sys.path.append(str(Path(__file__).parents[1]))
    function: Callable[..., None] = getattr(importlib.import_module(module), name)
    positional, named = json.loads(arguments)
    function(Rank(Path(folder)), *positional, **named)


if __name__ == "__main__":
    main(*sys.argv[1:])
