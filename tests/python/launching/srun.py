#!/usr/bin/env python3
"""Stands in for srun: the options that docs and examples use, and the variables that Slurm sets in a step.

    srun [-n N] [-N NODES] [--ntasks-per-node=N] [--kill-on-bad-exit=1] [--label] program [arguments]

Within a job (SLURM_JOB_ID and SLURM_NTASKS are set, as sbatch does) N is the job's. All tasks run here.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys


def main() -> int:
    parser = argparse.ArgumentParser(prog="srun", allow_abbrev=False)
    parser.add_argument("-n", "--ntasks", type=int, default=int(os.environ.get("SLURM_NTASKS", "1")))
    parser.add_argument("-N", "--nodes", type=int, default=1)
    parser.add_argument("--ntasks-per-node", type=int)
    parser.add_argument("--kill-on-bad-exit", type=int, nargs="?", const=1)
    parser.add_argument("--label", action="store_true")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    size = given.ntasks_per_node * given.nodes if given.ntasks_per_node else given.ntasks
    step = {
        "SLURM_JOB_ID": os.environ.get("SLURM_JOB_ID", str(os.getpid())),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_NTASKS": str(size),
        "SLURM_STEP_NODELIST": "localhost",
    }
    tasks = [
        subprocess.Popen(
            given.program,
            env={**os.environ, **step, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)},
        )
        for rank in range(size)
    ]
    return max(task.wait() for task in tasks)


if __name__ == "__main__":
    sys.exit(main())
