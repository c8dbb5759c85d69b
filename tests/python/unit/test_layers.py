"""Layer times: kernels and what they cost, what is learned of them, and `roundelay tune --layers`."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from roundelay._internal.json_objects import WrongPartError
from roundelay.plan import cli as plan_cli
from roundelay.plan import learned, shapes
from roundelay.tuning import file as tuning_file
from roundelay.tuning.cluster import cli
from roundelay.tuning.kernels import sampling, times, timing
from roundelay.tuning.kernels.kinds import (
    BACKWARD,
    DIRECTIONS,
    FORWARD,
    KINDS,
    OPERATIONS,
    Convolution,
    ElementWise,
    Kernel,
    MatrixProduct,
    Normalisation,
    Update,
    directions,
    work,
)
from roundelay.tuning.kernels.sampling import Limits, Shape
from roundelay.tuning.kernels.times import Errors, KernelTimes, LayerTimes, Roofline
from roundelay.tuning.kernels.timing import Sample
from tunings import TUNING

LIMITS = Limits(3e10, 5e8)
ROOFLINE = Roofline(1e-5, 1e11, 1e10)


def on_a_roofline() -> LayerTimes:
    """Return times without a network, so that they are the formula's."""
    exact = Errors(0.25, 0.5)
    every = [
        KernelTimes(kind, direction, 80, 20, ROOFLINE, exact, exact, (), ())
        for kind in KINDS
        for direction in directions(kind)
    ]
    return LayerTimes("2026-01-02T03:04:05Z", "cpu", 2, tuple(every))


@pytest.mark.parametrize(
    ("kernel", "samples", "flops", "elements"),
    [
        (
            Convolution(4, 64, 7, 112, 2),
            2,
            2 * 2 * 4 * 64 * 49 * 112**2,
            2 * (4 * 224**2 + 64 * 112**2) + 12544,
        ),
        (MatrixProduct(1, 10, 20), 4, 2 * 4 * 10 * 20, 4 * 10 + 10 * 20 + 4 * 20),
        (MatrixProduct(5, 10, 20, 3), 4, 2 * 12 * 5 * 10 * 20, 12 * (50 + 200 + 100)),
        (Normalisation(8, 9), 2, 4 * 144, 3 * 144),
        (ElementWise("add", 10), 3, 30, 90),
        (ElementWise("max_pool3", 10), 3, 270, 60),
    ],
)
def test_the_work_of_kernels(kernel: Kernel, samples: int, flops: int, elements: int) -> None:
    assert work(kernel, samples, FORWARD) == (flops, 4 * elements)
    assert work(kernel, samples, BACKWARD) == (2 * flops, 8 * elements)


def test_images_have_no_gradient() -> None:
    first = Convolution(3, 64, 7, 112, 2)
    assert work(first, 2, BACKWARD) == work(first, 2, FORWARD)
    _, inputs = timing.program(Shape(first, 2), torch.device("cpu"))
    assert [one.shape for one in inputs] == [(64, 3, 7, 7)]


@pytest.mark.parametrize("name", shapes.KNOWN)
def test_the_kernels_of_a_layer_have_its_arithmetic(name: str) -> None:
    for layer in shapes.KNOWN[name]().layers:
        own = [one.work(1.0)[0] for one in layer.kernels if not isinstance(one, ElementWise)]
        assert sum(own) == layer.flops, layer.name


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_are_repeatable_within_limits_and_measured_as_they_are(kind: str) -> None:
    drawn = list(islice(sampling.shapes(kind, 7, LIMITS), 50))
    assert drawn == list(islice(sampling.shapes(kind, 7, LIMITS), 50))
    assert len(set(drawn)) == 50
    for shape in drawn:
        flops, moved = shape.kernel.work(shape.samples)
        assert shape.kernel.kind == kind
        assert flops <= LIMITS.flops
        assert moved <= LIMITS.bytes


@pytest.mark.parametrize(
    ("kernel", "samples", "result"),
    [
        (Convolution(3, 8, 7, 6, 2), 2, (2, 8, 6, 6)),
        (Convolution(3, 8, 11, 5, 4), 1, (1, 8, 5, 5)),
        (MatrixProduct(3, 5, 7), 2, (6, 7)),
        (MatrixProduct(3, 5, 7, 4), 2, (8, 3, 7)),
        (Normalisation(4, 9), 3, (3, 4, 9)),
        (Normalisation(4, 9, True), 3, (3, 9, 4)),
        (ElementWise("softmax", 4096), 1, (4, 1024)),
        (ElementWise("max_pool2", 56 * 56 * 3), 1, (1, 3, 28, 28)),
        *((ElementWise(name, 100), 1, (100,)) for name in ("relu", "gelu", "add")),
    ],
)
def test_what_is_measured_is_the_kernel(kernel: Kernel, samples: int, result: tuple[int, ...]) -> None:
    run, inputs = timing.program(Shape(kernel, samples), torch.device("cpu"))
    assert run().shape == result
    assert all(one is not None for one in torch.autograd.grad(run().sum(), inputs))
    sample = timing.measure(Shape(kernel, samples), torch.device("cpu"))
    assert min(sample.forward, sample.backward) > 0


def test_an_update_is_measured_among_others_and_has_no_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_UPDATED", 1000)
    updated: list[int] = []

    class Counting(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            updated.append(len(self.param_groups[0]["params"]))
            return super().step(closure)

    monkeypatch.setattr(torch.optim, "SGD", Counting)
    sample = timing.measure(Shape(Update(300), 1), torch.device("cpu"))
    assert set(updated) == {4}
    assert sample.forward > 0
    assert directions(Update.kind) == (FORWARD,)
    assert work(Update(300), 1, FORWARD) == (1200, 9600)


def _samples(kind: str, count: int, factor: Any) -> list[Sample]:
    """Make samples whose times are those of a roofline, times a factor of the shape."""
    found = []
    for shape in islice(sampling.shapes(kind, 0, LIMITS), count):
        seconds = [
            factor(shape) * ROOFLINE.seconds(*work(shape.kernel, shape.samples, one)) for one in DIRECTIONS
        ]
        found.append(Sample(shape, *seconds))
    return found


def test_a_roofline_is_found_and_kept_where_it_is_the_truth() -> None:
    pytest.importorskip("sklearn")
    from roundelay.tuning.kernels import training

    for model in training.learn("matrix product", _samples("matrix product", 150, lambda shape: 1.0)):
        assert model.roofline.bandwidth == pytest.approx(ROOFLINE.bandwidth, rel=0.02)
        assert model.roofline.flops == pytest.approx(ROOFLINE.flops, rel=0.02)
        assert model.roofline.overhead == pytest.approx(ROOFLINE.overhead, rel=0.1)
        assert model.roofline_errors.ninetieth < 0.02
        assert (model.learned_from, model.tested_on) == (120, 30)


def test_a_network_learns_what_no_roofline_says() -> None:
    pytest.importorskip("sklearn")
    from roundelay.tuning.kernels import training

    def slow_with_large_windows(shape: Shape) -> float:
        assert isinstance(shape.kernel, Convolution)
        return float(shape.kernel.kernel**0.5 * (1 + shape.kernel.stride))

    taught = _samples("convolution", 800, slow_with_large_windows)
    for model in training.learn("convolution", taught):
        assert model.network
        assert model.network_errors.median < 0.05
        assert model.network_errors.median < model.roofline_errors.median / 4
        assert model.errors == model.network_errors
    inside, size = taught[0].shape, model.inputs[-1]
    assert not model.is_outside(inside.kernel, inside.samples)
    alone = dataclasses.replace(model, network=())

    def factor(kernel: Kernel, samples: float) -> float:
        return model.seconds(kernel, samples) / alone.seconds(kernel, samples)

    assert factor(inside.kernel, inside.samples) != 1
    # Beyond the range the factor stays that of the most samples inside, and else that of the nearest sizes.
    most = inside.samples
    while not model.is_outside(inside.kernel, 2 * most):
        most *= 2
    assert model.is_outside(inside.kernel, most << 10)
    assert factor(inside.kernel, most << 10) == pytest.approx(factor(inside.kernel, most))
    assert isinstance(inside.kernel, Convolution)
    wide, wider = (dataclasses.replace(inside.kernel, inputs=10**power) for power in (15, 20))
    assert model.is_outside(wide, 1)
    assert factor(wider, 1) == pytest.approx(factor(wide, 1))
    assert size.low < size.high


def test_too_few_shapes_teach_nothing() -> None:
    pytest.importorskip("sklearn")
    from roundelay.tuning.kernels import training

    with pytest.raises(ValueError, match="3 shapes of kind 'normalisation' were measured, 20 are needed"):
        training.learn("normalisation", _samples("normalisation", 3, lambda shape: 1.0))


def test_a_network_is_tanh_of_sums() -> None:
    row = times.Input("elements", 10.0, 2.0, 4.0, 20.0)
    network = (times.NetLayer(((0.5,), (-1.0,)), (0.1, 0.2)), times.NetLayer(((2.0, 3.0),), (0.5,)))
    every = on_a_roofline().kernels
    at = next(index for index, one in enumerate(every) if one.kind == ElementWise.kind)
    model = dataclasses.replace(every[at], inputs=(row,), network=network)
    expected = 2 * math.tanh(0.5 * 1 + 0.1) + 3 * math.tanh(-1.0 * 1 + 0.2) + 0.5
    bound = ROOFLINE.seconds(*work(ElementWise("relu", 1 << 12), 1, FORWARD))
    assert model.seconds(ElementWise("relu", 1 << 12), 1) == pytest.approx(bound * math.exp(expected))
    layers = dataclasses.replace(on_a_roofline(), kernels=(*every[:at], model, *every[at + 1 :]))
    assert times.from_json(json.loads(json.dumps(dataclasses.asdict(layers)))) == layers


def _changed(**parts: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(on_a_roofline())))
    content["kernels"][0] |= parts
    return content


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([], '"layers" must have date, device, threads, kernels'),
        (
            _changed(kind="pooling"),
            '"layers.kernels" must have convolution forward, convolution backward, matrix',
        ),
        (_changed(roofline={"overhead": 0.0, "flops": 0.0, "bandwidth": 1.0}), "has a rate of 0"),
        (_changed(roofline=3), '"layers.kernels[0].roofline" is 3, not of type Roofline'),
        (_changed(network=[{"weights": [[1.0]], "biases": [1.0]}]), "layers that do not fit each other"),
        (
            _changed(network=[{"weights": [["1"]], "biases": [1.0]}]),
            'network[0].weights" is no list of numbers',
        ),
        (_changed(network=[{"weights": [], "biases": []}]), "has 0 rows of weights and 0 biases"),
        (_changed(tested_on=-1), '"layers.kernels[0].tested_on" is -1, out of range'),
    ],
)
def test_bad_layers_are_named(content: Any, why: str) -> None:
    with pytest.raises(WrongPartError) as caught:
        times.from_json(content)
    assert why in str(caught.value)


def test_a_step_is_the_sum_of_its_kernels() -> None:
    shape, layers = shapes.alexnet(), on_a_roofline()
    step = learned.from_times(shape, layers, 4.0, "tuning.json")
    kernels = [kernel for layer in shape.layers for kernel in layer.kernels]
    forward = sum(ROOFLINE.seconds(*work(kernel, 4.0, FORWARD)) for kernel in kernels)
    backward = sum(ROOFLINE.seconds(*work(kernel, 4.0, BACKWARD)) for kernel in kernels)
    assert step.forward == pytest.approx(forward)
    assert step.backward == pytest.approx(backward) == pytest.approx(step.gradients[-1].ready)
    tensors = sum(len(layer.gradients) for layer in shape.layers)
    assert step.update == pytest.approx(1e-5 * tensors + 8 * 4 * shape.elements / 1e10)
    assert step.error == pytest.approx(0.25)
    assert step.outside == ""
    assert re.search(r"UTC, \d+ days old\)$", step.source)
    assert "tuning.json, learned times (convolution forward, convolution backward" in step.source


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tuning.json"
    tuning_file.save(dataclasses.replace(TUNING, layers=on_a_roofline()), path)
    return path


def test_plan_takes_the_files_layers_where_no_time_is_given(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUNDELAY_TUNING", str(file))
    assert plan_cli.main(["--model", "resnet50", "--batch-size", "64", "--json", "-"]) == 0
    plan = json.loads(capsys.readouterr().out)
    step = learned.from_times(shapes.resnet50(), on_a_roofline(), 64.0, str(file))
    assert plan["workload"]["forward"] == pytest.approx(step.forward)
    assert plan["workload"]["error"] == 0.25
    one = next(row for row in plan["rows"] if row["nodes"] == 1 and row["strategy"] == "dense")
    assert one["low"] <= one["seconds"] / 1.2
    assert one["high"] >= one["seconds"] * 1.2
    words = [
        "--model",
        "gpt2",
        "--study",
        "batch,link",
        "--nodes",
        "2",
        "--json",
        "-",
        "--strategies",
        "dense",
    ]
    assert plan_cli.main(words) == 0
    batch = json.loads(capsys.readouterr().out)["study"]["batch"]
    assert batch[-1]["rows"][0]["compute"] == pytest.approx(
        learned.from_times(shapes.gpt2(), on_a_roofline(), 4.0, "").compute
    )


def test_a_file_of_links_alone_says_how_to_measure_layers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuning_file.save(TUNING, tmp_path / "tuning.json")
    assert plan_cli.main(["--model", "resnet50", "--tuning", str(tmp_path / "tuning.json")]) == 2
    assert "`roundelay tune --layers`" in capsys.readouterr().err


def test_ranks_agree_on_nothing_in_a_file_of_layers_alone(tmp_path: Path) -> None:
    from roundelay.tuning.kernels import layer_command

    alone = layer_command.add(on_a_roofline(), None)
    tuning_file.save(alone, tmp_path / "tuning.json")
    assert tuning_file.load(tmp_path / "tuning.json") == alone
    assert tuning_file.agreed_text(alone) == ""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-np", "2"], "--layers measures this machine without ranks"),
        (["--mpi"], "--layers measures this machine without ranks"),
        (["--minutes", "0"], "--minutes 0: give more than 0"),
        (["--minutes", "nan"], "--minutes nan: give more than 0"),
    ],
)
def test_wrong_use_is_one_line_before_anything_is_measured(
    words: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--layers", "--output", str(tmp_path / "x.json"), *words]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("roundelay tune: error: ")
    assert why in shown
    assert shown.count("\n") == 1


def test_a_bad_file_is_refused_and_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    path = tmp_path / "tuning.json"
    path.write_text("{}")
    assert cli.main(["--layers", "--output", str(path)]) == 2
    assert "it is no tuning file" in capsys.readouterr().err
    assert path.read_text() == "{}"


def test_tune_learns_the_layers_of_this_machine_and_keeps_the_links(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setattr(timing, "limits", lambda on: Limits(2e7, 2e6))  # small kernels: many in a second
    monkeypatch.setattr(timing, "_UPDATED", 1 << 16)
    assert cli.main(["--layers", "--minutes", "0.03", "--output", str(file)]) == 0
    found = tuning_file.load(file)
    assert dataclasses.replace(found, layers=None) == TUNING
    assert found.layers is not None
    assert (found.layers.device, found.layers.threads) == (
        timing.name_of(timing.device()),
        torch.get_num_threads(),
    )
    shown = capsys.readouterr().out
    for one in found.layers.kernels:
        assert one.tested_on == round(0.2 * (one.learned_from + one.tested_on))
        assert bool(one.network) == (one.network_errors.median < one.roofline_errors.median)
        assert one.roofline.seconds(1e6, 1e6) > 0
    assert all(kind in shown for kind in KINDS)
    assert plan_cli.main(["--model", "resnet50", "--batch-size", "4", "--tuning", str(file)]) == 0
    assert "outside of the calibrated range" in " ".join(capsys.readouterr().out.split())


def test_all_operations_are_drawn() -> None:
    drawn = islice(sampling.shapes("element-wise", 0, LIMITS), 200)
    assert {one.kernel.operation for one in drawn if isinstance(one.kernel, ElementWise)} == set(OPERATIONS)
