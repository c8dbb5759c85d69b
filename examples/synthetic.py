"""How fast a model trains on made-up data: images or tokens a second, per rank and of all ranks.

roundelayrun -np 2 python examples/synthetic.py --model cnn
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import itertools
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import roundelay.torch as hvd


class Residual(nn.Module):
    """Two convolutions and a way around them. Images of shape (batch, channels, height, width)."""

    def __init__(self, channels: int, wide: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, wide, 3, stride, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU(),
            nn.Conv2d(wide, wide, 3, 1, 1, bias=False),
            nn.BatchNorm2d(wide),
        )
        self.around = nn.Conv2d(channels, wide, 1, stride, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Halve height and width where the stride is 2."""
        return torch.relu(self.body(images) + self.around(images))


class Transformer(nn.Module):
    """Predicts the next of `words` tokens. Tokens of shape (batch, length)."""

    def __init__(self, words: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits of shape (batch * length, words)."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        logits: torch.Tensor = self.head(self.encoder(self.embedding(tokens), mask=mask, is_causal=True))
        return logits.flatten(0, 1)


@dataclasses.dataclass(frozen=True)
class Job:
    """A model with a batch for it, and how many units of `unit` the batch is."""

    model: nn.Module
    inputs: torch.Tensor
    classes: torch.Tensor
    unit: str

    @property
    def units(self) -> int:
        """Images, or tokens, in a batch."""
        return self.classes.numel()


def mlp(batch: int) -> Job:
    """Build eight fully connected layers on vectors of 784."""
    widths = [784, *[512] * 7]
    layers = [m for a, b in itertools.pairwise(widths) for m in (nn.Linear(a, b), nn.ReLU())]
    return Job(
        nn.Sequential(*layers, nn.Linear(512, 10)),
        torch.randn(batch, 784),
        torch.randint(10, (batch,)),
        "img",
    )


def cnn(batch: int) -> Job:
    """Build a residual network on images of 64x64."""
    blocks = [Residual(a, b, s) for a, b, s in ((32, 32, 1), (32, 64, 2), (64, 128, 2), (128, 256, 2))]
    stem = nn.Conv2d(3, 32, 3, 2, 1)
    model = nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1000))
    return Job(model, torch.randn(batch, 3, 64, 64), torch.randint(1000, (batch,)), "img")


def transformer(batch: int) -> Job:
    """Build four layers of 256 with 8192 words, on sequences of 64."""
    tokens = torch.randint(8192, (batch, 65))
    return Job(Transformer(8192, 256, 4), tokens[:, :-1], tokens[:, 1:].flatten(), "tok")


class Logits(nn.Module):
    """A classifier of the transformers package, whose result is its logits alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits of shape (batch, classes)."""
        logits: torch.Tensor = self.model(images).logits
        return logits


def resnet50(batch: int) -> Job:
    """Build ResNet-50 of the transformers package with random weights, on images of 96x96."""
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig()
    config.num_labels = 1000
    model = Logits(ResNetForImageClassification(config))
    return Job(model, torch.randn(batch, 3, 96, 96), torch.randint(1000, (batch,)), "img")


MODELS: dict[str, Callable[[int], Job]] = {
    "mlp": mlp,
    "cnn": cnn,
    "transformer": transformer,
    "resnet50": resnet50,
}


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; ends with a message where it is wrong."""
    parser = argparse.ArgumentParser(
        description="Synthetic benchmark of training", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as fp16")
    parser.add_argument("--bf16-allreduce", action="store_true", help="send gradients as bf16")
    parser.add_argument(
        "--model", choices=sorted(MODELS), default="cnn", help="what to train; resnet50 needs transformers"
    )
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    parser.add_argument("--num-warmup-batches", type=int, default=10, help="that are not timed")
    parser.add_argument(
        "--num-batches-per-iter", type=int, default=10, help="between two readings of the clock"
    )
    parser.add_argument("--num-iters", type=int, default=10, help="readings")
    parser.add_argument("--no-cuda", action="store_true", help="train on the CPU also where there is a GPU")
    parser.add_argument("--use-adasum", action="store_true", help="combine steps by Adasum")
    arguments = parser.parse_args(argv)
    if arguments.fp16_allreduce and arguments.bf16_allreduce:
        parser.error("--fp16-allreduce and --bf16-allreduce exclude each other")
    for name in ("batch_size", "num_batches_per_iter", "num_iters"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if arguments.model == "resnet50" and importlib.util.find_spec("transformers") is None:
        parser.error("--model resnet50 needs a package: pip install transformers")
    if arguments.num_warmup_batches < 0:
        parser.error("--num-warmup-batches must not be negative")
    return arguments


def prepare(arguments: argparse.Namespace) -> tuple[Job, Callable[[], None]]:
    """Build the job on this rank's device; returns it with the function that trains one batch."""
    torch.manual_seed(hvd.rank())
    job = MODELS[arguments.model](arguments.batch_size)
    use_cuda = torch.cuda.is_available() and not arguments.no_cuda
    device = torch.device("cuda", hvd.local_rank()) if use_cuda else torch.device("cpu")
    model, inputs, classes = job.model.to(device), job.inputs.to(device), job.classes.to(device)

    op, scale = (hvd.Adasum, 1) if arguments.use_adasum else (hvd.Average, hvd.size())
    plain = torch.optim.SGD(model.parameters(), lr=0.01 * scale)
    on_wire = "fp16" if arguments.fp16_allreduce else "bf16" if arguments.bf16_allreduce else "none"
    compression = getattr(hvd.Compression, on_wire)
    optimizer = hvd.DistributedOptimizer(
        plain, named_parameters=model.named_parameters(), compression=compression, op=op
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    def train() -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), classes)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if use_cuda:
            torch.cuda.synchronize()

    return job, train


def spread(rates: list[float]) -> str:
    """Format the mean and 1.96 standard deviations: 95 of 100 readings, if they are normal."""
    return f"{statistics.fmean(rates):.1f} +-{1.96 * statistics.pstdev(rates):.1f}"


def main() -> None:
    """Train and report."""
    arguments = parse()
    hvd.init()
    torch.set_num_threads(1)

    def say(text: str) -> None:
        if hvd.rank() == 0:
            print(text, flush=True)

    job, train = prepare(arguments)
    say(f"Model: {arguments.model}, {sum(p.numel() for p in job.model.parameters()):,} parameters")
    say(f"Batch size: {arguments.batch_size}")
    say(f"Number of ranks: {hvd.size()}")
    for _ in range(arguments.num_warmup_batches):
        train()
    rates = []
    for iteration in range(arguments.num_iters):
        begin = time.perf_counter()
        for _ in range(arguments.num_batches_per_iter):
            train()
        rates.append(job.units * arguments.num_batches_per_iter / (time.perf_counter() - begin))
        say(f"Iter #{iteration}: {rates[-1]:.1f} {job.unit}/sec per rank")
    say(f"{job.unit.capitalize()}/sec per rank: {spread(rates)}")
    say(f"Total {job.unit}/sec on {hvd.size()} rank(s): {spread([rate * hvd.size() for rate in rates])}")


if __name__ == "__main__":
    main()
