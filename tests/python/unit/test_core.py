"""The C++ module at size 1: tensors of every layout and type, errors, handles, life, fork."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterator
from importlib.metadata import version

import pytest
import torch

import roundelay
from roundelay import _core

AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)
DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64,
    torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
]  # fmt: skip


@pytest.fixture
def core() -> Iterator[None]:
    _core.init(None)
    yield
    _core.shutdown()


def allreduce(tensor: torch.Tensor, output: torch.Tensor, name: str | None = None, post: float = 1.0) -> None:
    assert _core.synchronize(_core.allreduce_async(tensor, output, name, SUM, 1.0, post, 0)) == []


def layouts() -> dict[str, torch.Tensor]:
    base = torch.arange(48, dtype=torch.float32)
    image = base.reshape(2, 3, 4, 2)
    return {
        "contiguous": base.clone(),
        "0-dim": torch.tensor(5.0),
        "empty": torch.empty(0, 3),
        "offset": base[7:19],
        "strided": base[::3],
        "transposed": base.reshape(6, 8).t(),
        "channels_last": image.contiguous(memory_format=torch.channels_last),
        "not dense": base.reshape(6, 8)[1:5, 2:7:2],
        "negative": torch.complex(base, base).conj().imag,
        "lazy conjugate": torch.complex(base, -base).conj(),
    }


@pytest.mark.parametrize("layout", layouts())
def test_any_layout_out_of_place(core: None, layout: str) -> None:
    tensor = layouts()[layout]
    before = tensor.clone()
    output = torch.full_like(tensor, -1.0)
    allreduce(tensor, output, post=2.0)
    assert torch.equal(output, before * 2)
    assert torch.equal(tensor, before)


@pytest.mark.parametrize("layout", layouts())
def test_any_layout_in_place(core: None, layout: str) -> None:
    tensor = layouts()[layout]
    expected = tensor.clone() * 2
    allreduce(tensor, tensor, post=2.0)
    assert torch.equal(tensor, expected)


def test_in_place_leaves_elements_between_strides_alone(core: None) -> None:
    base = torch.arange(12, dtype=torch.float32)
    allreduce(base[::2], base[::2], post=0.0)
    assert base.tolist() == [0, 1, 0, 3, 0, 5, 0, 7, 0, 9, 0, 11]


def test_output_that_overlaps_its_input(core: None) -> None:
    base = torch.arange(10, dtype=torch.float32)
    allreduce(base[:8], base[2:])
    assert base.tolist() == [0, 1, 0, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(core: None, dtype: torch.dtype) -> None:
    tensor = torch.tensor([0, 1, 1, 0, 1], dtype=dtype)
    output = torch.zeros_like(tensor)
    allreduce(tensor, output)
    assert torch.equal(output, tensor)
    assert _core.synchronize(_core.broadcast_async(tensor, output, 0, None, 0)) == []
    assert torch.equal(output, tensor)


def test_leaf_that_requires_grad_in_place(core: None) -> None:
    leaf = torch.ones(3, requires_grad=True)
    allreduce(leaf, leaf, post=3.0)
    assert leaf.tolist() == [3, 3, 3]
    assert leaf.is_leaf
    assert leaf.grad_fn is None


def test_autograd_notices_the_write(core: None) -> None:
    weight = torch.ones(3, requires_grad=True)
    kept = weight * 1
    loss = (kept * kept).sum()
    allreduce(kept, kept, post=2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # type: ignore[no-untyped-call]


def test_inference_tensors(core: None) -> None:
    with torch.inference_mode():
        plain = torch.ones(4)
        strided = torch.ones(4)[::2]
    for tensor in (plain, strided):
        allreduce(tensor, tensor, post=2.0)
        assert tensor.tolist() == [2.0] * tensor.numel()


def quantized() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch will drop them
        return torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)


BAD_INPUTS = [
    (torch.eye(2).to_sparse(), "sparse; make it dense with to_dense"),
    (torch.view_as_complex(torch.ones(2, 2).half()), "complex32, .*; pass torch.view_as_real"),
    (torch.ones(2, device="meta"), "on device meta"),
    (torch.ones(2).to(torch.float8_e4m3fn), "Float8_e4m3fn, which is never added up; supported are float64"),
    (quantized(), "quantized; convert it with dequantize"),
    (torch.ones(1).expand(4), "elements share memory"),
]


@pytest.mark.parametrize(("tensor", "text"), BAD_INPUTS)
def test_tensors_that_cannot_be_reduced(core: None, tensor: torch.Tensor, text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        _core.allreduce_async(tensor, tensor, "layer.weight", SUM, 1.0, 1.0, 0)
    assert "'layer.weight'" in str(caught.value)
    allreduce(torch.ones(1), torch.ones(1), "layer.weight")  # the job goes on, under the same name too


def test_too_little_memory(core: None) -> None:
    endless = torch.ones(1).expand(1 << 50)
    with pytest.raises(RuntimeError, match="memory|allocate"):
        _core.allgather_async([endless], "endless", 0)
    allreduce(torch.ones(1), torch.ones(1), "endless")


def test_expanded_inputs_are_fine_out_of_place(core: None) -> None:
    output = torch.empty(4)
    allreduce(torch.ones(1).expand(4), output)
    assert output.tolist() == [1, 1, 1, 1]


def test_outputs_that_do_not_fit(core: None) -> None:
    tensor = torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"shape \[2, 3\] but its output has \[3, 2\]"):
        _core.allreduce_async(tensor, torch.ones(3, 2), None, SUM, 1.0, 1.0, 0)
    with pytest.raises(ValueError, match="dtype Float but its output has Double"):
        _core.allreduce_async(tensor, tensor.double(), None, SUM, 1.0, 1.0, 0)


@pytest.mark.parametrize("op", [-1, 6])
def test_unknown_operations(core: None, op: int) -> None:
    with pytest.raises(ValueError, match="op must be one of"):
        _core.allreduce_async(torch.ones(1), torch.ones(1), None, op, 1.0, 1.0, 0)


def test_root_and_process_set_must_exist(core: None) -> None:
    with pytest.raises(ValueError, match="root"):
        _core.broadcast_async(torch.ones(1), torch.ones(1), 1, None, 0)
    with pytest.raises(ValueError, match="process set"):
        _core.barrier_async(7)
    with pytest.raises(ValueError, match="no operation 'gather'"):
        _core.submit_error("gather", None, "text", 0)


def outputs_of(handle: int) -> list[torch.Tensor]:
    outputs = _core.synchronize(handle)
    assert outputs is not None
    return outputs


@pytest.mark.parametrize("layout", layouts())
def test_outputs_that_the_core_allocates(core: None, layout: str) -> None:
    tensor = layouts()[layout]
    if tensor.dim() == 0:
        with pytest.raises(ValueError, match="dimension"):
            _core.allgather_async([tensor], None, 0)
        return
    for handle in (
        _core.allgather_async([tensor], None, 0),
        _core.reducescatter_async([tensor], None, SUM, 1.0, 1.0, 0),
    ):
        (output,) = outputs_of(handle)
        assert torch.equal(output, tensor)
        assert output.is_contiguous()
        assert not output.requires_grad
    output, splits = outputs_of(_core.alltoall_async(tensor, [tensor.shape[0]], None, 0))
    assert torch.equal(output, tensor)
    assert splits.dtype == torch.int32
    assert splits.tolist() == [tensor.shape[0]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_allocated_outputs_of_every_dtype(core: None, dtype: torch.dtype) -> None:
    tensor = torch.tensor([[0, 1], [1, 0]], dtype=dtype)
    assert torch.equal(outputs_of(_core.allgather_async([tensor], None, 0))[0], tensor)


def test_allocated_outputs_are_normal_tensors_whatever_mode_runs(core: None) -> None:
    with torch.inference_mode():
        (output,) = outputs_of(_core.allgather_async([torch.ones(2)], None, 0))
    assert not output.is_inference()
    leaf = torch.ones(2, requires_grad=True)
    (output,) = outputs_of(_core.allgather_async([leaf], None, 0))
    assert not output.requires_grad


def test_grouped_operations_of_one_rank(core: None) -> None:
    tensors = list(layouts().values())
    outputs = [torch.full_like(tensor, -1.0) for tensor in tensors]
    assert outputs_of(_core.grouped_allreduce_async(tensors, outputs, "g", SUM, 1.0, 1.0, 0)) == []
    assert all(torch.equal(one, other) for one, other in zip(tensors, outputs, strict=True))
    rows = [tensor for tensor in tensors if tensor.dim() > 0]
    gathered = outputs_of(_core.allgather_async(rows, "g", 0))
    assert all(torch.equal(one, other) for one, other in zip(rows, gathered, strict=True))
    with pytest.raises(ValueError, match="output of its own"):
        _core.grouped_allreduce_async(tensors, [], "g", SUM, 1.0, 1.0, 0)
    with pytest.raises(ValueError, match="tensor 1 of 'g' is sparse"):
        _core.allgather_async([torch.ones(2), torch.eye(2).to_sparse()], "g", 0)


def test_join_and_process_sets(core: None) -> None:
    (last,) = outputs_of(_core.join_async(0))
    assert last.dtype == torch.int64
    assert last.item() == 0
    with pytest.raises(ValueError, match="process set 5"):
        _core.remove_process_set(5)
    for ranks in ([], [1], [0, 0], [-1]):
        with pytest.raises(ValueError, match="rank"):
            _core.add_process_set(ranks)
    number = _core.add_process_set([0])
    tensor = torch.ones(2)
    assert outputs_of(_core.allreduce_async(tensor, tensor, None, SUM, 1.0, 3.0, number)) == []
    assert tensor.tolist() == [3, 3]
    _core.remove_process_set(number)
    with pytest.raises(ValueError, match=f"process set {number}"):
        _core.barrier_async(number)
    allreduce(torch.ones(1), torch.ones(1))


def test_splits_that_do_not_fit(core: None) -> None:
    for splits in ([], [1], [3], [1, 1], [-2]):
        with pytest.raises(ValueError, match="splits"):
            _core.alltoall_async(torch.ones(2), splits, None, 0)


def test_handles(core: None) -> None:
    handle = _core.allreduce_async(torch.ones(2), torch.ones(2), None, AVERAGE, 1.0, 1.0, 0)
    assert isinstance(_core.poll(handle), bool)
    assert _core.synchronize(handle) == []
    for function in (_core.synchronize, _core.poll):
        with pytest.raises(ValueError, match=str(handle)):
            function(handle)
    assert _core.synchronize(_core.barrier_async(0)) == []


def test_a_tensor_lives_until_its_operation_is_done(core: None) -> None:
    output = torch.empty(1000)
    handles = []
    for i in range(10):
        target = output if i == 9 else torch.empty(1000)
        source = torch.full((1000,), float(i))
        handles.append(_core.allreduce_async(source, target, None, SUM, 1.0, 1.0, 0))
        del source, target
    for handle in handles:
        assert _core.synchronize(handle) == []
    assert output.tolist() == [9.0] * 1000


def test_threads_submit_and_wait_together(core: None) -> None:
    wrong: list[object] = []

    def work(thread: int) -> None:
        for i in range(50):
            tensor = torch.full((17,), float(i))
            allreduce(tensor, tensor, f"t{thread}.{i}", post=2.0)
            if tensor.tolist() != [2.0 * i] * 17:
                wrong.append((thread, i))

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_calls_need_init_and_init_may_come_again() -> None:
    assert not _core.is_initialized()
    for call in (_core.rank, _core.size, _core.config, _core.stats, _core.end_linger):
        with pytest.raises(ValueError, match=r"^Horovod has not been initialized; use hvd.init\(\)\.$"):
            call()
    for _ in range(3):
        _core.init(None)
        _core.init(None)
        assert (_core.rank(), _core.size(), _core.local_size(), _core.cross_size()) == (0, 1, 1, 1)
        assert _core.is_homogeneous()
        allreduce(torch.ones(1), torch.ones(1))
        assert _core.stats()["tensors"] >= 1
        _core.shutdown()
        _core.shutdown()
        assert not _core.is_initialized()


def test_a_handle_of_an_earlier_life_is_unknown() -> None:
    _core.init(None)
    handle = _core.allreduce_async(torch.ones(1), torch.ones(1), None, SUM, 1.0, 1.0, 0)
    _core.shutdown()
    _core.init(None)
    with pytest.raises(ValueError, match=str(handle)):
        _core.synchronize(handle)
    _core.shutdown()


def test_configuration(core: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _core.config().theta == 16 << 20
    monkeypatch.setenv("ROUNDELAY_THETA", "-1")
    with pytest.raises(ValueError, match='ROUNDELAY_THETA="-1" is not valid'):
        _core.load_config()
    monkeypatch.setenv("ROUNDELAY_THETA", "5")
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "2.5")
    monkeypatch.setenv("HOROVOD_AUTOTUNE", "1")
    monkeypatch.setenv("HOROVOD_CONTROLLER", "mpi")
    loaded = _core.load_config()
    assert loaded.theta == 5
    assert not loaded.sizes_are_measured
    assert loaded.autotune
    assert loaded.cycle_time == 0.0025
    assert loaded.no_effect[0].startswith("HOROVOD_CONTROLLER has no effect, because ")
    assert ("ROUNDELAY_CYCLE_TIME", "2.5", "HOROVOD_CYCLE_TIME") in [line[:3] for line in loaded.lines]
    assert _core.config().theta == 16 << 20  # read once, at init
    assert _core.config().sizes_are_measured
    monkeypatch.setenv("ROUNDELAY_TETHA", "5")
    with pytest.raises(ValueError, match="the nearest is ROUNDELAY_THETA"):
        _core.load_config()


def test_modules_that_are_no_backend() -> None:
    with pytest.raises(RuntimeError, match="cannot load /nowhere"):
        _core.init("/nowhere")
    assert not _core.is_initialized()
    with pytest.raises(RuntimeError, match="is no module of Roundelay"):
        _core.backend_description(_core.__file__)


def in_child(action: str) -> str:
    """What `action` says in a forked child; the child ends without exit handlers."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            said = repr(eval(action))
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return said


@pytest.mark.parametrize(
    "action",
    ["_core.init(None)", "_core.rank()", "_core.barrier_async(0)", "_core.synchronize(1)", "_core.config()",
     "_core.allreduce_async(torch.ones(1), torch.ones(1), None, 1, 1.0, 1.0, 0)"],
)  # fmt: skip
def test_a_forked_child_gets_an_error(core: None, action: str) -> None:
    assert in_child(action).startswith("RuntimeError: Roundelay was initialized in the parent process")
    allreduce(torch.ones(1), torch.ones(1))  # the parent goes on


def test_a_forked_child_leaves_quietly(core: None) -> None:
    assert in_child("_core.is_initialized()") == "False"
    assert in_child("_core.shutdown()") == "None"
    assert in_child("_core.fail('x')") == "None"


def test_versions_and_classes_of_errors() -> None:
    assert _core.__version__ == roundelay.__version__ == version("roundelay")
    assert torch.__version__.startswith(_core.torch_build_version())
    assert issubclass(_core.HorovodInternalError, RuntimeError)
    assert issubclass(_core.MismatchError, _core.HorovodInternalError)
