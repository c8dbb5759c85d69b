"""Some of PyTorch's own tests of backends over roundelay. `make nightly` runs all, and compares with gloo."""

from __future__ import annotations

from pathlib import Path

import starts
from tests.torch_suite.results import Results

COLLECTIVES = (
    "all_gather_coalesced_simple",
    "all_gather_object_default_pg",
    "all_reduce_coalesced_full_group_sum",
    "all_reduce_sum_async",
    "all_reduce_sum_complex",
    "barrier_timeout_global",
    "batch_isend_irecv_gloo_tags",
    "broadcast_full_group",
    "destroy_full_group",
    "gather_full_group",
    "get_future",
    "monitored_barrier_gloo_subgroup",
    "reduce_full_group_max",
    "scatter_object_list",
    "send_recv_any_source_torch_profiler",
    "send_recv_with_tag",
    "sparse_all_reduce_sum",
)
DDP = (
    "DistributedDataParallelCPU_grad_is_view",
    "accumulate_gradients_no_sync_allreduce_with_then_hook",
    "grads_same_across_ranks_with_no_sync",
    "static_graph_api_cpu",
)
DDP_ON_GPUS = (
    "ddp_broadcast_buffer_via_hook",
    "ddp_buffer_hook_allreduce_return_future",
    "ddp_control_flow_different_across_ranks",
    "ddp_grad_div_uneven_inputs",
    "ddp_hook_parity_powerSGD",
    "ddp_join_model_equivalence",
    "ddp_model_diff_num_params_across_ranks",
    "ddp_new_tensor_in_fwd_static_graph",
    "ddp_profiling_torch_profiler",
    "ddp_uneven_input_join_disable",
    "ddp_unused_params_rebuild_buckets_exception",
    "post_localSGD_optimizer_parity",
    "undefined_grad_parity_unused_parameters",
    "verify_model_across_rank_without_logger",
)
PARTS = {"gloo": COLLECTIVES + DDP, "gpu": DDP_ON_GPUS}


def test_two_ranks(tmp_path: Path) -> None:
    for part, names in PARTS.items():
        words = ["--backend", "roundelay", "--world-size", "2", "--part", part, "--output", str(tmp_path)]
        exact = [word for name in names for word in ("-k", f"test_{name}$")]
        status, output = starts.run(["python", "-m", "tests.torch_suite", *words, *exact])
        assert status == 0, output
    outcomes = Results(tmp_path / "roundelay-2.json").read()
    assert len([one for one in outcomes.values() if one.kind != "skipped"]) == sum(map(len, PARTS.values()))
    for name, outcome in outcomes.items():
        assert outcome.kind == "passed", f"{name}: {outcome.kind}\n{outcome.why}"
