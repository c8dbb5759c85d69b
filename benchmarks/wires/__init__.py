"""Compares UCX and plain sockets as a data plane between nodes: `python -m benchmarks.wires`."""
