"""Ships launched_script.py's own main() to two ranks: `main_as_function.py SCRIPT FOLDER`."""

from __future__ import annotations

import json
import runpy
import sys

import roundelay

if __name__ == "__main__":
    main = runpy.run_path(sys.argv[1])["main"]
    print("said", json.dumps(roundelay.run(main, args=(sys.argv[2],), np=2)))
