"""Trains a small transformer to fill in masked characters of a text, of which ranks have unequal shares.

    roundelayrun -np 2 python examples/masked_language_model.py

The texts are the docstrings of Python's standard library, so there is nothing to download. Every rank reads
modules of its own and has as many batches as they give: who is done first joins, and the others go on.
Forward and loss run in bfloat16 where autocast finds that safe.
"""

from __future__ import annotations

import argparse
import ast
import math
import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

import roundelay.torch as hvd

CHARACTERS = " abcdefghijklmnopqrstuvwxyz.,:;()'`\"-"
MASK = len(CHARACTERS)
MASKED_PART = 0.15
TEST_EVERY = 8  # modules: one of so many is only for the test
IGNORED = -100  # cross_entropy leaves such labels out


def docstrings(module: Path) -> str:
    """All docstrings of a module, in lower case, other characters than ours as spaces."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(module.read_bytes())) if isinstance(node, kinds))
    text = " ".join(ast.get_docstring(node) or "" for node in nodes).lower()
    return re.sub(f"[^{re.escape(CHARACTERS)}]+| +", " ", text)


def sequences(modules: list[Path], length: int) -> torch.Tensor:
    """The modules' text as characters' numbers, of shape (sequences, length)."""
    numbers = {character: number for number, character in enumerate(CHARACTERS)}
    text = "".join(docstrings(module) for module in modules)
    tokens = torch.tensor([numbers[character] for character in text], dtype=torch.long)
    return tokens[: len(tokens) // length * length].view(-1, length)


def masked(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs with some characters masked, and labels that name them; both of tokens' shape."""
    chosen = torch.rand(tokens.shape) < MASKED_PART
    return tokens.masked_fill(chosen, MASK), tokens.masked_fill(~chosen, IGNORED)


class Encoder(nn.Module):
    """From characters (batch, length) to logits (batch, length, characters)."""

    def __init__(self, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(len(CHARACTERS) + 1, width)
        self.neighbours = nn.Conv1d(width, width, 5, padding=2)  # so that places need not be learned first
        self.places = nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(CHARACTERS)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of every character at every place."""
        characters = self.characters(tokens).transpose(1, 2)
        features = nn.functional.gelu(self.neighbours(characters)).transpose(1, 2) + self.places
        logits: torch.Tensor = self.head(self.layers(features))
        return logits


def losses_of(model: nn.Module, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and correctness of each masked character, both of shape (masked characters,)."""
    inputs, labels = masked(tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(inputs)
    logits, labels = logits.float()[labels != IGNORED], labels[labels != IGNORED]
    losses = nn.functional.cross_entropy(logits, labels, reduction="none")
    return losses, logits.detach().argmax(dim=1) == labels


@torch.no_grad()
def test(model: nn.Module, tokens: torch.Tensor, batch: int) -> tuple[float, float]:
    """Mean loss and accuracy over the masked characters of all ranks, of which each has another number."""
    results = [losses_of(model, some) for some in tokens.split(batch)]
    losses = hvd.allgather(torch.cat([losses for losses, _ in results]), name="test.losses")
    correct = hvd.allgather(torch.cat([correct for _, correct in results]), name="test.correct")
    return losses.mean().item(), correct.float().mean().item()


def rate(step: int, options: argparse.Namespace) -> float:
    """The learning rate: warmed up from that of one rank to the scaled one."""
    return float(options.rate * (1 + (hvd.size() - 1) * min(1, step / options.warmup_steps)))


def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[torch.Tensor],
    first_step: int,
    options: argparse.Namespace,
) -> int:
    """A step for each batch of this rank; returns the rank that had the most, on all ranks.

    Steps are numbered alike on all ranks, so that those which are in one step have one learning rate.
    """
    with hvd.join_context(optimizer) as joined:
        for step, tokens in enumerate(batches, first_step):
            for group in optimizer.param_groups:
                group["lr"] = rate(step, options)
            optimizer.zero_grad()
            losses, _ = losses_of(model, tokens)
            losses.mean().backward()
            optimizer.step()
    assert joined.last_rank is not None  # None only before the end of the block
    return joined.last_rank


def train(
    model: nn.Module, mine: torch.Tensor, test_mine: torch.Tensor, options: argparse.Namespace
) -> float:
    """All epochs, tested after each; returns the last accuracy. mine: this rank's sequences."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    steps = hvd.allgather(torch.tensor([math.ceil(len(mine) / options.batch)]), name="steps")
    if hvd.rank() == 0:
        print(f"steps an epoch of each rank: {steps.tolist()}")

    loss, accuracy = test(model, test_mine, options.batch)
    for epoch in range(options.epochs):
        if hvd.rank() == 0:
            print(f"epoch {epoch:2}  test loss {loss:.3f}  accuracy {accuracy:.3f}", flush=True)
        batches = mine[torch.randperm(len(mine))].split(options.batch)
        last = train_epoch(model, optimizer, batches, epoch * int(steps.max()), options)
        # Who joined earlier has missed the last steps.
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)
        hvd.broadcast_optimizer_state(optimizer, root_rank=last)
        loss, accuracy = test(model, test_mine, options.batch)
    if hvd.rank() == 0:
        print(f"epoch {options.epochs:2}  test loss {loss:.3f}  accuracy {accuracy:.3f}")
    return accuracy


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows the text as it is written, and defaults."""


def main() -> None:
    """Reads, trains, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=Help)
    parser.add_argument("--epochs", type=int, default=8, help="passes over the data")
    parser.add_argument("--batch", type=int, default=64, help="sequences a step on each rank")
    parser.add_argument("--rate", type=float, default=2e-3, help="learning rate of one rank")
    parser.add_argument("--warmup-steps", type=int, default=50, help="until the full learning rate")
    parser.add_argument("--length", type=int, default=32, help="characters of a sequence")
    parser.add_argument("--width", type=int, default=64, help="numbers that stand for a character")
    parser.add_argument("--layers", type=int, default=2, help="of the encoder")
    parser.add_argument("--modules", type=int, default=80, help="how many modules' docstrings are read")
    parser.add_argument("--quick", action="store_true", help="a few epochs on a few modules")
    options = parser.parse_args()
    if options.quick:
        options.epochs, options.modules, options.layers = min(options.epochs, 2), 30, 1

    hvd.init()
    torch.manual_seed(hvd.rank())  # each rank its own masks and order; broadcasting makes the models equal
    torch.set_num_threads(1)  # the layers are small, and processes share the cores
    folder = Path(sysconfig.get_paths()["stdlib"])
    modules = sorted(folder.glob("[a-z]*.py"))[: options.modules]
    tested, learned = modules[::TEST_EVERY], [module for i, module in enumerate(modules) if i % TEST_EVERY]
    test_mine, mine = (
        sequences(some[hvd.rank() :: hvd.size()], options.length) for some in (tested, learned)
    )
    accuracy = train(Encoder(options.width, options.layers, options.length), mine, test_mine, options)
    if hvd.rank() == 0:
        print(f"accuracy  {accuracy:.3f}  ({hvd.size()} processes)")
    hvd.shutdown()


if __name__ == "__main__":
    main()
