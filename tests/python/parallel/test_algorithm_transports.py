"""Algorithms give the same bits by every transport. A transport that cannot be is refused on every rank."""

from __future__ import annotations

import os

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check
from roundelay import config
from roundelay.algorithms import Algorithm, run
from roundelay.algorithms.transport import TRANSPORTS
from roundelay.algorithms.trees import digest
from sequential import divided, last_state

SHARDS = 11


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_over_mpi(np: int, check: Check) -> None:
    run_check(check, np, env={"ROUNDELAY_FABRIC": "mpi"}, fresh=True)


def _rows() -> torch.Tensor:
    """Returns numbers whose sum depends on the order: they differ by many powers of two."""
    seed = torch.Generator().manual_seed(1)
    return torch.randn(500, 9, generator=seed) * 10.0 ** torch.randint(-4, 5, (500, 9), generator=seed)


def _evaluate(state: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return (rows * state).sum(0)


def _update(state: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    return state - 1e-4 * total


def _joined(transport: str | None) -> str:
    """Returns the digest of a run in a new job, and leaves that job open."""
    hvd.shutdown()
    found = run(Algorithm(torch.ones(9), _evaluate, _update), _rows(), 3, shards=SHARDS, transport=transport)
    return digest(found.state).hex()


def check_every_transport_gives_the_bits_of_one_process() -> None:
    pieces = divided(_rows(), SHARDS)
    functions = (_evaluate, lambda first, second: first + second, _update)
    expected = digest(last_state(torch.ones(9), functions, pieces, 3)).hex()
    for transport in (None, *TRANSPORTS):
        assert _joined(transport) == expected, transport
        assert config.effective().algorithm == (transport or "auto")
        assert "ROUNDELAY_ALGORITHM" not in os.environ


def check_a_job_with_another_algorithm() -> None:
    _joined("ring")
    algorithm = Algorithm(torch.ones(9), _evaluate, _update)
    with pytest.raises(ValueError, match="the job was joined with algorithm 'ring': call run before"):
        run(algorithm, _rows(), 1, transport="pairwise")
    run(algorithm, _rows(), 1, transport="ring")  # the job goes on
    run(algorithm, _rows(), 1)


def check_unknown_names() -> None:
    algorithm = Algorithm(torch.ones(9), _evaluate, _update)
    for name in ("pigeon", "halving_doubling", ""):
        with pytest.raises(ValueError, match=f"transport is '{name}', but must be None or one of"):
            run(algorithm, _rows(), 1, transport=name)


@needs_ranks(2)
def check_a_rank_with_another_transport() -> None:
    _joined("ring")
    algorithm = Algorithm(torch.ones(9), _evaluate, _update)
    last = hvd.size() - 1
    own = "pairwise" if hvd.rank() == last else "ring"
    with pytest.raises(ValueError, match=f"rank {last}: transport is 'pairwise', but the job was joined"):
        run(algorithm, _rows(), 1, transport=own)
