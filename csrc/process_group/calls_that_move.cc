#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "process_group/calls.h"
#include "process_group/digest.h"
#include "process_group/errors.h"
#include "process_group/tensors.h"

namespace roundelay::process_group {
namespace {

using ::c10d::OpType;
using collective::AllgatherCall;
using collective::AlltoallCall;
using collective::BarrierCall;
using collective::BroadcastCall;
using collective::CallMark;

using Sizes = std::vector<std::size_t>;

std::size_t sum(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}); }

Prepared allgather(Place place, const Memory& output, Memory input, Sizes sizes) {
  const char* const name = "all_gather";
  if (sizes.size() != static_cast<std::size_t>(place.size)) {
    refuse(std::string(name) + ": needs one output for each rank");
  }
  if (input.tensor().scalar_type() != output.tensor().scalar_type()) {
    refuse(std::string(name) + ": input and output are of different types");
  }
  if (sizes[static_cast<std::size_t>(place.rank)] != input.bytes().size() ||
      sum(sizes) != output.bytes().size()) {
    refuse(std::string(name) + ": an input of " + std::to_string(input.bytes().size()) +
           " bytes does not fit its place in an output of " + std::to_string(output.bytes().size()));
  }
  const auto own = std::accumulate(sizes.begin(), sizes.begin() + place.rank, std::size_t{0});
  if (input.bytes().data() != output.bytes().data() + own) input.part_from(output.bytes());
  Prepared prepared;
  AllgatherCall call;
  call.mark = {.bytes = sum(sizes),
               .detail = digest_of(sizes),
               .operation = call.kOperation,
               .dtype = marked_type(input.tensor().scalar_type())};
  call.input = input.bytes().data();
  call.output = output.bytes();
  call.receive_bytes = std::move(sizes);
  prepared.call = std::move(call);
  prepared.take(input);
  prepared.give(output);
  return prepared;
}

// Refuses an exchange in which a member sends itself something else than it expects.
void check_own_part(Place place, const Sizes& sends, const Sizes& receives) {
  const auto self = static_cast<std::size_t>(place.rank);
  if (sends[self] == receives[self]) return;
  refuse("all_to_all: this rank sends itself " + std::to_string(sends[self]) + " bytes, and expects " +
         std::to_string(receives[self]));
}

// What gathers, scatters and exchanges share: their parts are those of an alltoall.
Prepared alltoall(const Memory* output, Memory* input, Sizes sends, Sizes receives, CallMark mark) {
  if (input != nullptr && output != nullptr) input->part_from(output->bytes());
  Prepared prepared;
  AlltoallCall call;
  if (input != nullptr) {
    call.input = input->bytes().data();
    prepared.take(*input);
  }
  if (output != nullptr) {
    call.output = output->bytes();
    prepared.give(*output);
  }
  mark.operation = call.kOperation;
  call.mark = mark;
  call.send_bytes = std::move(sends);
  call.receive_bytes = std::move(receives);
  prepared.call = std::move(call);
  return prepared;
}

Prepared described(Prepared prepared, OpType type, const char* title, const Tensors& inputs,
                   Tensors results) {
  prepared.type = type;
  prepared.title = title;
  if (!inputs.empty()) prepared.dtype = moved_dtype(inputs.front());
  prepared.inputs = inputs;
  prepared.results = std::move(results);
  return prepared;
}

// Returns the bytes of each member's rows.
Sizes split(const at::Tensor& tensor, const std::vector<std::int64_t>& splits, Place place) {
  const auto members = static_cast<std::size_t>(place.size);
  const auto bytes = static_cast<std::size_t>(tensor.nbytes());
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) {
    if (rows % place.size != 0) {
      refuse("all_to_all_single: " + std::to_string(rows) + " rows are not divisible by " +
             std::to_string(place.size) + " ranks; pass split sizes");
    }
    return Sizes(members, bytes / members);
  }
  if (splits.size() != members || std::accumulate(splits.begin(), splits.end(), std::int64_t{0}) != rows) {
    refuse("all_to_all_single: the split sizes do not add up to the tensor's " + std::to_string(rows) +
           " rows, one for each rank");
  }
  Sizes sizes;
  for (const std::int64_t one : splits) {
    if (one < 0) refuse("all_to_all_single: a split size is negative");
    sizes.push_back(rows == 0 ? 0 : bytes / static_cast<std::size_t>(rows) * static_cast<std::size_t>(one));
  }
  return sizes;
}

// Checks the list that only the root has.
void check_list(const TensorLists& lists, const at::Tensor& own, Place place, int root, const char* name) {
  check_root(place, root, name);
  if (place.rank != root) {
    if (!lists.empty()) refuse(std::string(name) + ": only the root has a list of tensors");
    return;
  }
  if (lists.size() != 1 || lists.front().size() != static_cast<std::size_t>(place.size)) {
    refuse(std::string(name) + ": the root needs a list of one tensor for each rank");
  }
  check_tensors(lists.front(), name);
  for (const at::Tensor& one : lists.front()) {
    if (one.nbytes() == own.nbytes() && one.scalar_type() == own.scalar_type()) continue;
    refuse(std::string(name) + ": all tensors must have one size and type");
  }
}

}  // namespace

void check_root(Place place, int root, const char* operation) {
  if (root >= 0 && root < place.size) return;
  refuse(std::string(operation) + ": root rank " + std::to_string(root) + " is not in a group of " +
         std::to_string(place.size));
}

Prepared prepare_broadcast(Place place, const Tensors& tensors, int root) {
  const at::Tensor& tensor = only_tensor(tensors, "broadcast");
  check_root(place, root, "broadcast");
  const Memory memory = Memory::in_place(tensor);
  Prepared prepared;
  BroadcastCall call;
  call.mark = {.bytes = memory.bytes().size(),
               .detail = root,
               .operation = call.kOperation,
               .dtype = marked_type(tensor.scalar_type())};
  call.buffer = memory.bytes();
  call.root = root;
  prepared.call = std::move(call);
  prepared.take(memory);
  prepared.give(memory);
  return described(std::move(prepared), OpType::BROADCAST, "roundelay:broadcast", tensors, tensors);
}

Prepared prepare_allgather(Place place, const Tensors& outputs, const at::Tensor& input) {
  check_tensors(outputs, "all_gather");
  check_tensor(input, "all_gather");
  Prepared prepared = allgather(place, Memory::outputs(outputs), Memory::input(input), sizes_of(outputs));
  return described(std::move(prepared), OpType::ALLGATHER, "roundelay:all_gather", {input}, outputs);
}

Prepared prepare_allgather(Place place, const at::Tensor& output, const at::Tensor& input) {
  check_tensor(output, "all_gather_into_tensor");
  check_tensor(input, "all_gather_into_tensor");
  Sizes sizes(static_cast<std::size_t>(place.size), static_cast<std::size_t>(input.nbytes()));
  Prepared prepared = allgather(place, Memory::output(output), Memory::input(input), std::move(sizes));
  return described(std::move(prepared), OpType::_ALLGATHER_BASE, "roundelay:_all_gather_base", {input},
                   {output});
}

Prepared prepare_gather(Place place, const TensorLists& outputs, const Tensors& inputs, int root) {
  const at::Tensor& own = only_tensor(inputs, "gather");
  check_list(outputs, own, place, root, "gather");
  Memory input = Memory::input(own);
  const std::size_t bytes = input.bytes().size();
  Sizes sends(static_cast<std::size_t>(place.size), 0), receives = sends;
  sends[static_cast<std::size_t>(root)] = bytes;
  const CallMark mark{.bytes = bytes,
                      .detail = root,
                      .dtype = marked_type(own.scalar_type()),
                      .form = CallMark::Form::kGather};
  if (place.rank != root) {
    return described(alltoall(nullptr, &input, std::move(sends), std::move(receives), mark), OpType::GATHER,
                     "roundelay:gather", inputs, {});
  }
  receives.assign(receives.size(), bytes);
  const Memory output = Memory::outputs(outputs.front());
  return described(alltoall(&output, &input, std::move(sends), std::move(receives), mark), OpType::GATHER,
                   "roundelay:gather", inputs, outputs.front());
}

Prepared prepare_scatter(Place place, const Tensors& outputs, const TensorLists& inputs, int root) {
  const at::Tensor& own = only_tensor(outputs, "scatter");
  check_list(inputs, own, place, root, "scatter");
  const Memory output = Memory::output(own);
  const std::size_t bytes = output.bytes().size();
  Sizes sends(static_cast<std::size_t>(place.size), 0), receives = sends;
  receives[static_cast<std::size_t>(root)] = bytes;
  const CallMark mark{.bytes = bytes,
                      .detail = root,
                      .dtype = marked_type(own.scalar_type()),
                      .form = CallMark::Form::kScatter};
  if (place.rank != root) {
    return described(alltoall(&output, nullptr, std::move(sends), std::move(receives), mark), OpType::SCATTER,
                     "roundelay:scatter", outputs, outputs);
  }
  sends.assign(sends.size(), bytes);
  Memory input = Memory::inputs(inputs.front());
  return described(alltoall(&output, &input, std::move(sends), std::move(receives), mark), OpType::SCATTER,
                   "roundelay:scatter", inputs.front(), outputs);
}

Prepared prepare_alltoall(Place place, const Tensors& outputs, const Tensors& inputs) {
  check_tensors(outputs, "all_to_all");
  check_tensors(inputs, "all_to_all");
  const auto members = static_cast<std::size_t>(place.size);
  if (outputs.size() != members || inputs.size() != members) {
    refuse("all_to_all: needs one input and one output for each rank");
  }
  const Memory output = Memory::outputs(outputs);
  Memory input = Memory::inputs(inputs);
  check_own_part(place, sizes_of(inputs), sizes_of(outputs));
  return described(alltoall(&output, &input, sizes_of(inputs), sizes_of(outputs),
                            {.dtype = marked_type(inputs.front().scalar_type())}),
                   OpType::ALLTOALL, "roundelay:all_to_all", inputs, outputs);
}

Prepared prepare_alltoall(Place place, const at::Tensor& output, const at::Tensor& input,
                          const std::vector<std::int64_t>& output_splits,
                          const std::vector<std::int64_t>& input_splits) {
  check_tensors({output, input}, "all_to_all_single");
  const Memory into = Memory::output(output);
  Memory from = Memory::input(input);
  Sizes sends = split(input, input_splits, place), receives = split(output, output_splits, place);
  check_own_part(place, sends, receives);
  return described(alltoall(&into, &from, std::move(sends), std::move(receives),
                            {.dtype = marked_type(input.scalar_type())}),
                   OpType::ALLTOALL_BASE, "roundelay:all_to_all", {input}, {output});
}

Prepared prepare_barrier() {
  Prepared prepared;
  BarrierCall call;
  call.mark = {.operation = call.kOperation};
  prepared.call = std::move(call);
  return described(std::move(prepared), OpType::BARRIER, "roundelay:barrier", {}, {});
}

}  // namespace roundelay::process_group
