"""The rows of the table, in its order."""

from __future__ import annotations

from benchmarks.table import (
    algorithms,
    allreduce,
    alone,
    averaging,
    cache,
    lars,
    levels,
    nodes,
    small,
    small_nodes,
    start,
    straggler,
    submit,
    tensors,
    threads,
    topk,
    train,
)
from benchmarks.table.row import Row

ROWS: dict[str, Row] = {
    "allreduce": Row(allreduce.measure, allreduce.results),
    "small": Row(small.measure, small.results),
    "tensors": Row(tensors.measure, tensors.results),
    "train": Row(train.measure, train.results),
    "submit": Row(submit.measure, submit.results),
    "lars": Row(lars.measure, lars.results),
    "cache": Row(cache.measure, cache.results),
    "threads": Row(threads.measure, threads.results),
    "straggler": Row(straggler.measure, straggler.results),
    "alone": Row(alone.measure, alone.results),
    "start": Row(start.measure, start.results),
    "nodes": Row(nodes.measure, nodes.results),
    "small_nodes": Row(small_nodes.measure, small_nodes.results),
    "control": Row(small_nodes.measure_control, small_nodes.control_results),
    "topk": Row(topk.measure, topk.results),
    "daso": averaging.row(averaging.DASO),
    "local_sgd": averaging.row(averaging.LOCAL_SGD),
    "fast_nodes": Row(nodes.measure_fast, nodes.fast_results),
    "levels": Row(levels.measure, levels.results),
    "algorithms": Row(algorithms.measure, algorithms.results),
}
