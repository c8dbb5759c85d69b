"""What the launcher and its agents say to each other, and the variables that it gives them."""

from __future__ import annotations

# The kinds of the frames that the agent sends the launcher (frames.py). HELLO and EXIT carry JSON, REPORT
# what error_report.py writes.
HELLO, STDOUT, STDERR, RESULT_PIECE, REPORT, EXIT = b"H", b"o", b"e", b"r", b"E", b"X"
# The launcher sends the agent orders of one byte. The signal's number follows SIGNAL, which is to end the
# program, and FORWARD.
SIGNAL, FORWARD, KILL, LEAVE = b"S", b"F", b"K", b"L"

# The launcher's address (agent.dial) and the job's secret in hex. The program gets the secret under another
# name, which `import roundelay` takes out of an environment.
ADDRESS, SECRET = "ROUNDELAY_RUN_ADDRESS", "ROUNDELAY_RUN_SECRET"
# Set where the program is a function: the file that holds it, and the descriptor that takes the result.
FUNCTION, RESULT = "ROUNDELAY_RUN_FUNCTION", "ROUNDELAY_RUN_RESULT"
BIND = "ROUNDELAY_RUN_BIND"  # set: the agent gives its program a share of the host's CPUs
# Elastic jobs: "WORKER ADDRESS", to which the agent adds LAUNCHER for the program. The program sends MEMBER
# with its number, then WANTED with JSON for each generation it wants a place in. The launcher answers with
# PLACE and JSON, with DISMISSED, which ends the program, or REFUSED and the reason. At any time it sends
# CHANGED and a number of membership.Change, or OVER and JSON: a generation is over, as a worker has left it.
WORKER = "ROUNDELAY_RUN_WORKER"
MEMBER, WANTED = b"M", b"W"
PLACE, DISMISSED, REFUSED, CHANGED, OVER = b"P", b"D", b"R", b"C", b"V"
FAILED = 1  # the exit status of an agent that cannot do its work and has said why
