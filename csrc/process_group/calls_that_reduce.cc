#include <ATen/Functions.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "process_group/calls.h"
#include "process_group/digest.h"
#include "process_group/errors.h"
#include "process_group/reduction.h"
#include "process_group/tensors.h"

namespace roundelay::process_group {
namespace {

using ::c10d::OpType;
using collective::AllgatherCall;
using collective::AllreduceCall;
using collective::AlltoallCall;
using collective::CallMark;
using collective::ReducescatterCall;

std::function<void()> folding(Place place, const at::Tensor& parts, const ::c10d::ReduceOp& op,
                              const Memory& target) {
  return [place, parts, op, into = target.tensor(), finish = target.finish()] {
    into.view(-1).copy_(fold(parts, place.size, op));
    if (finish) finish();
  };
}

// Brings all parts together on all members. `target`: gets the result; null: this member needs none.
Prepared gather_and_fold(Place place, const Memory& memory, const Memory* target,
                         const ::c10d::ReduceOp& op) {
  Prepared prepared;
  const std::size_t bytes = memory.bytes().size();
  const at::Tensor parts = at::empty({place.size * memory.tensor().numel()}, memory.tensor().options());
  AllgatherCall call;
  call.input = memory.bytes().data();
  call.output = {static_cast<std::byte*>(parts.data_ptr()), bytes * static_cast<std::size_t>(place.size)};
  call.receive_bytes.assign(static_cast<std::size_t>(place.size), bytes);
  call.mark = {
      .bytes = bytes, .operation = call.kOperation, .dtype = moved_dtype(parts), .form = form_of(op)};
  prepared.call = std::move(call);
  prepared.dtype = moved_dtype(parts);
  prepared.take(memory);
  prepared.kept.push_back(parts);
  if (target != nullptr) prepared.finish = folding(place, parts, op, *target);
  return prepared;
}

void check_bitwise(const at::Tensor& tensor, const char* operation) {
  if (c10::isIntegralType(tensor.scalar_type(), true)) return;
  refuse(std::string(operation) + ": BAND, BOR and BXOR take tensors of integers");
}

// Does the rest that reductions to all members and to one share.
Prepared finished(Prepared prepared, OpType type, const char* title, const Tensors& tensors) {
  prepared.type = type;
  prepared.title = title;
  prepared.inputs = tensors;
  prepared.results = tensors;
  return prepared;
}

Prepared scatter_and_fold(Place place, const Memory& input, const Memory& output,
                          const ::c10d::ReduceOp& op) {
  Prepared prepared;
  const std::size_t bytes = output.bytes().size();
  const auto members = static_cast<std::size_t>(place.size);
  const at::Tensor parts = at::empty({place.size * output.tensor().numel()}, output.tensor().options());
  AlltoallCall call;
  call.input = input.bytes().data();
  call.output = {static_cast<std::byte*>(parts.data_ptr()), bytes * members};
  call.send_bytes.assign(members, bytes);
  call.receive_bytes.assign(members, bytes);
  call.mark = {
      .bytes = bytes, .operation = call.kOperation, .dtype = moved_dtype(parts), .form = form_of(op)};
  prepared.call = std::move(call);
  prepared.take(input);
  prepared.kept.insert(prepared.kept.end(), {parts, output.tensor()});
  prepared.finish = folding(place, parts, op, output);
  return prepared;
}

Prepared reduce_scatter(Place place, Memory input, const Memory& output, std::vector<std::size_t> shards,
                        const ::c10d::ReduceOp& op) {
  const char* const name = "reduce_scatter";
  std::size_t all = 0;
  for (const std::size_t shard : shards) all += shard;
  if (all != input.bytes().size() || shards[static_cast<std::size_t>(place.rank)] != output.bytes().size()) {
    refuse(std::string(name) + ": the output has " + std::to_string(output.bytes().size()) +
           " bytes, which do not fit an input of " + std::to_string(input.bytes().size()) + " for " +
           std::to_string(place.size) + " ranks");
  }
  if (input.tensor().scalar_type() != output.tensor().scalar_type()) {
    refuse(std::string(name) + ": input and output are of different types");
  }
  if (is_bitwise(op)) {
    check_bitwise(input.tensor(), name);
    return scatter_and_fold(place, input, output, op);
  }
  const auto own = std::accumulate(shards.begin(), shards.begin() + place.rank, std::size_t{0});
  if (input.bytes().data() + own != output.bytes().data()) input.part_from(output.bytes());
  Prepared prepared;
  ReducescatterCall call;
  call.mark = {.bytes = all, .detail = digest_of(shards), .operation = call.kOperation};
  set_reduction(call, call.mark, op, input.tensor().scalar_type(), place.size, name);
  input = scaled(std::move(input), op, call.dtype);
  call.input = input.bytes().data();
  call.output = output.bytes();
  call.shard_bytes = std::move(shards);
  prepared.dtype = call.dtype;
  prepared.call = std::move(call);
  prepared.take(input);
  prepared.give(output);
  return prepared;
}

}  // namespace

Prepared prepare_allreduce(Place place, const Tensors& tensors, const ::c10d::ReduceOp& op) {
  const char* const name = "all_reduce";
  check_tensors(tensors, name);
  Memory memory = Memory::in_place(tensors);
  Prepared prepared;
  if (is_bitwise(op)) {
    check_bitwise(memory.tensor(), name);
    prepared = gather_and_fold(place, memory, &memory, op);
  } else {
    AllreduceCall call;
    call.mark = {.bytes = memory.bytes().size(), .operation = call.kOperation};
    set_reduction(call, call.mark, op, memory.tensor().scalar_type(), place.size, name);
    memory = scaled(std::move(memory), op, call.dtype);
    call.buffer = {memory.bytes().data(), 0, memory.bytes().size()};
    prepared.dtype = call.dtype;
    prepared.call = std::move(call);
    prepared.take(memory);
    prepared.give(memory);
  }
  return finished(std::move(prepared), OpType::ALLREDUCE, "roundelay:all_reduce", tensors);
}

Prepared prepare_average(Place place, const at::Tensor& bucket,
                         std::shared_ptr<const compress::BucketTechnique> technique, std::int32_t digest) {
  if (!bucket.is_contiguous()) refuse("all_reduce: a bucket has to be contiguous");
  Prepared prepared = prepare_allreduce(place, {bucket}, ::c10d::ReduceOp::AVG);
  CallMark& mark = collective::options_of(prepared.call).mark;
  mark.form = CallMark::Form::kTechnique;
  mark.detail = digest;
  prepared.technique = std::move(technique);
  return prepared;
}

Prepared prepare_reduce(Place place, const Tensors& tensors, int root, const ::c10d::ReduceOp& op) {
  const char* const name = "reduce";
  check_root(place, root, name);
  const at::Tensor& tensor = only_tensor(tensors, name);
  Memory memory = place.rank == root ? Memory::in_place(tensor) : Memory::input(tensor);
  Prepared prepared;
  if (is_bitwise(op)) {
    check_bitwise(tensor, name);
    prepared = gather_and_fold(place, memory, place.rank == root ? &memory : nullptr, op);
    collective::options_of(prepared.call).mark.detail = root;
  } else {
    const std::size_t bytes = memory.bytes().size();
    ReducescatterCall call;
    call.mark = {
        .bytes = bytes, .detail = root, .operation = call.kOperation, .form = CallMark::Form::kReduce};
    set_reduction(call, call.mark, op, tensor.scalar_type(), place.size, name);
    memory = scaled(std::move(memory), op, call.dtype);
    call.input = memory.bytes().data();
    call.shard_bytes.assign(static_cast<std::size_t>(place.size), 0);
    call.shard_bytes[static_cast<std::size_t>(root)] = bytes;
    if (place.rank == root) call.output = memory.bytes();
    prepared.dtype = call.dtype;
    prepared.call = std::move(call);
    prepared.take(memory);
    if (place.rank == root) prepared.give(memory);
  }
  return finished(std::move(prepared), OpType::REDUCE, "roundelay:reduce", tensors);
}

Prepared prepare_reduce_scatter(Place place, const at::Tensor& output, const Tensors& inputs,
                                const ::c10d::ReduceOp& op) {
  check_tensors(inputs, "reduce_scatter");
  check_tensor(output, "reduce_scatter");
  if (inputs.size() != static_cast<std::size_t>(place.size)) {
    refuse("reduce_scatter: needs one input for each rank");
  }
  Prepared prepared =
      reduce_scatter(place, Memory::inputs(inputs), Memory::output(output), sizes_of(inputs), op);
  prepared = finished(std::move(prepared), OpType::REDUCE_SCATTER, "roundelay:reduce_scatter", inputs);
  prepared.results = {output};
  return prepared;
}

Prepared prepare_reduce_scatter(Place place, const at::Tensor& output, const at::Tensor& input,
                                const ::c10d::ReduceOp& op) {
  check_tensor(input, "reduce_scatter_tensor");
  check_tensor(output, "reduce_scatter_tensor");
  const std::vector<std::size_t> shards(static_cast<std::size_t>(place.size),
                                        static_cast<std::size_t>(output.nbytes()));
  Prepared prepared = reduce_scatter(place, Memory::input(input), Memory::output(output), shards, op);
  prepared =
      finished(std::move(prepared), OpType::_REDUCE_SCATTER_BASE, "roundelay:_reduce_scatter_base", {input});
  prepared.results = {output};
  return prepared;
}

}  // namespace roundelay::process_group
