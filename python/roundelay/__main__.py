"""`python -m roundelay` is the command `roundelay`, for an environment whose commands are not on PATH."""

import sys

from roundelay.cli import main

sys.exit(main())
