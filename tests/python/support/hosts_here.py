"""Hosts that are this machine: addresses of its loopback interface, reached by an ssh of the tests' own."""

from __future__ import annotations

from pathlib import Path

# Takes the options that ssh gets; names the node, as hosts of their own have names; knows who is not there.
SSH = """#!/bin/sh
while :; do case "$1" in -o|-p|-i) shift 2 ;; -*) shift ;; *) break ;; esac; done
host=$1; shift
case $host in
127.0.9.*) echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255 ;;
127.0.8.*) echo "sh: 1: $1: not found" >&2; exit 127 ;;
127.0.7.*) exec sleep 60 ;;
esac
echo "Welcome to $host"
export ROUNDELAY_NODE_ID=$host
exec sh -c "$*"
"""


def local_ssh(folder: Path) -> Path:
    """Returns a folder for PATH, in `folder`, with that ssh."""
    place = folder / "bin"
    place.mkdir()
    (place / "ssh").write_text(SSH)
    (place / "ssh").chmod(0o755)
    return place
