"""Models that hvd.compile cuts: their values, and when their gradients are there."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import roundelay.torch as hvd
from compiled_training import Pieces
from ranks import Check, run_check

WIDTH, DEPTH = 16, 6
LAYER_BYTES = 4 * (WIDTH + 1) * WIDTH


@pytest.mark.parametrize("np", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_compiled_pieces(np: int, check: Check) -> None:
    run_check(check, np)


class Layers(torch.nn.Module):
    """Linear layers. broken: there is a break of the graph in the middle; kept: they are checkpointed."""

    def __init__(self, *, broken: bool = False, kept: bool = False) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))
        self._broken, self._kept = broken, kept

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self._part(x, 0)
        if self._broken:
            torch._dynamo.graph_break()
        return self._part(x, DEPTH // 2)

    def _part(self, x: torch.Tensor, begin: int) -> torch.Tensor:
        for layer in self.layers[begin : begin + DEPTH // 2]:
            y: torch.Tensor = checkpoint(layer, x, use_reentrant=False) if self._kept else layer(x)
            x = y.tanh()
        return x


def trained(
    model: torch.nn.Module, run: Callable[[torch.Tensor], torch.Tensor], rows: Callable[[int], int]
) -> list[torch.Tensor]:
    """Train for six steps: from the third one on gradients lie in a pool."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    generator = torch.Generator().manual_seed(hvd.rank())
    for step in range(6):
        optimizer.zero_grad()
        run(torch.randn(rows(step), WIDTH, generator=generator)).square().mean().backward()
        optimizer.step()
    found = [parameter.detach() for parameter in model.parameters()]
    for parameter in found:
        assert torch.equal(parameter, hvd.broadcast(parameter, 0))
    return found


def compare(
    events: list[str], rows: Callable[[int], int] = lambda _: 8, make: Any = Layers, **arguments: Any
) -> int:
    """Check that a model that is cut trains as without; return how many pieces it had."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = make()
    alone = copy.deepcopy(model)
    backend = Pieces(events)
    run = hvd.compile(model, backend=backend, piece_bytes=LAYER_BYTES, **arguments)
    found, expected = trained(model, run, rows), trained(alone, alone, rows)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    return backend.pieces


def check_gradients_come_while_backward_goes_on() -> None:
    events: list[str] = []

    def make() -> Layers:
        model = Layers()
        last = next(iter(model.layers[-1].parameters()))
        last.register_post_accumulate_grad_hook(lambda _: events.append("last layer"))
        return model

    assert compare(events, make=make) == DEPTH
    backward = events[events.index("last layer") :]
    assert backward.index("last layer") < backward.index("backward 0"), events


def check_large_models_have_about_16_pieces() -> None:
    torch._dynamo.reset()
    backend = Pieces([])
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(32)))  # 128 MiB
    hvd.compile(model, backend=backend)(torch.ones(1, 1024))
    assert 14 <= backend.pieces <= 17
    with torch.no_grad():
        backend.pieces = 0
        hvd.compile(model, backend=backend)(torch.ones(1, 1024))
        assert backend.pieces == 1


def check_shapes_that_change() -> None:
    assert compare([], rows=lambda step: 3 + step) == 2 * DEPTH  # for the first shape, and for all others
    assert compare([], rows=lambda step: 3 + step, dynamic=True) == DEPTH


def check_a_break_of_the_graph() -> None:
    assert compare([], make=lambda: Layers(broken=True)) == DEPTH


def check_checkpointed_layers() -> None:
    assert compare([], make=lambda: Layers(kept=True), fullgraph=True) >= 1


def check_two_models_in_one_function() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    both = torch.nn.ModuleList([Layers(), Layers()])
    alone = copy.deepcopy(both)
    backend = Pieces([])
    one, two = (hvd.compile(model, backend=backend, piece_bytes=LAYER_BYTES) for model in both)
    found = trained(both, lambda x: two(one(x)), lambda _: 8)
    expected = trained(alone, lambda x: alone[1](alone[0](x)), lambda _: 8)
    for parameter, other in zip(found, expected, strict=True):
        torch.testing.assert_close(parameter, other)
    assert backend.pieces == 2 * DEPTH


class Branches(torch.nn.Module):
    """Two towers with a normalisation in common. stops: the second one has no gradients."""

    def __init__(self, *, stops: bool) -> None:
        super().__init__()
        self.towers = torch.nn.ModuleList(Layers() for _ in range(2))
        self.norm = torch.nn.BatchNorm1d(WIDTH)
        self._stops = stops

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.norm(self.towers[0](x))
        with torch.set_grad_enabled(not self._stops):
            second = self.norm(self.towers[1 - self._stops](x + 1.0))
        difference: torch.Tensor = first - 0.5 * second
        return difference


def check_pieces_run_in_the_order_of_the_model() -> None:
    for stops in (False, True):
        assert compare([], make=lambda stops=stops: Branches(stops=stops)) > 2
        both = []
        for cut in (False, True):
            torch._dynamo.reset()
            torch.manual_seed(0)
            model = Branches(stops=stops)
            run = hvd.compile(model, backend=Pieces([]), piece_bytes=LAYER_BYTES) if cut else model
            for scale in (1.0, 3.0):
                run(torch.linspace(-scale, scale, 8 * WIDTH).view(8, WIDTH)).square().mean().backward()
            both.append([model.norm.running_mean, *(one.grad for one in model.towers[0].parameters())])
        torch.testing.assert_close(*both)


def check_numbers_of_python_in_a_graph_of_any_shape() -> None:
    def make() -> torch.nn.Module:
        layers = (torch.nn.Linear(WIDTH, WIDTH), torch.nn.BatchNorm1d(WIDTH))
        return torch.nn.Sequential(*layers, *copy.deepcopy(layers))

    pieces = compare([], make=make, dynamic=True)
    assert pieces == 3  # the first one twice


def check_what_cannot_be_cut_is_compiled_whole() -> None:
    class Fails(Pieces):
        def __call__(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
            if len(inputs) < 2 * DEPTH:  # not all weights and biases
                raise NotImplementedError("no pieces\nhere")
            return super().__call__(graph, inputs)

    torch._dynamo.reset()
    model = Layers()
    backend = Fails([])
    trained(model, hvd.compile(model, backend=backend, piece_bytes=LAYER_BYTES), lambda _: 8)
    assert backend.pieces == 1


def check_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="piece_bytes=0: at least 1"):
        hvd.compile(Layers(), piece_bytes=0)
    with pytest.raises(RuntimeError, match="Unrecognized mode"):
        hvd.compile(Layers(), mode="fast")
