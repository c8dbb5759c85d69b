"""Makes a rig with a process in it, says so, and waits to be killed: `rig_owner.py SECONDS`."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.rig import Rig

with Rig(nodes=2) as rig:
    subprocess.Popen([*rig.on(1), "sleep", sys.argv[1]])
    look = [*rig.on(1), "pgrep", "-f", "^sleep " + sys.argv[1]]
    while subprocess.run(look, capture_output=True, check=False).returncode:
        time.sleep(0.02)
    print("ready", flush=True)
    time.sleep(60)
