#!/bin/bash
# One or several hosts with torchrun, which starts the job again (three times) if a rank fails:
#     examples/launch/torchrun.sh                                        # on this host
#     HOSTS=2 FIRST_HOST=node1 examples/launch/torchrun.sh               # on each of the two
# torchrun's own port is 29400, and it listens on all addresses of the first host.
set -eu
HOSTS=${HOSTS:-1}
exec torchrun --nnodes "$HOSTS" --nproc-per-node "${RANKS:-2}" --max-restarts 3 --rdzv-id train \
  --rdzv-backend c10d --rdzv-endpoint "${FIRST_HOST:-localhost}:${PORT:-29400}" examples/digits.py "$@"
