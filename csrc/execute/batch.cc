#include "execute/batch.h"

#include <algorithm>
#include <utility>

#include "execute/operations/operations.h"
#include "negotiate/fusion_plan.h"
#include "wire/describe.h"

namespace roundelay::execute {
namespace {

// Tensors of one class may travel together: sums of one dtype, in memory of one kind. Each Adasum needs dot
// products of its own. A tensor in a region needs no packing.
std::uint64_t fusion_class(const BatchTensor& tensor) {
  const wire::Request& request = tensor.entry->request;
  const bool fusable = request.operation == Operation::kAllreduce && request.reduce_op != ReduceOp::kAdasum &&
                       request.region.key == 0;
  if (!fusable) return negotiate::kNoFusion;
  return static_cast<std::uint64_t>(tensor.dtype()) +
         kDTypeCount * static_cast<std::uint64_t>(request.device);
}

}  // namespace

int Batch::waiting_for() const {
  const int member = pending ? pending->waiting_for() : -1;
  return member < 0 ? -1 : task.awaited().fabric->group().ranks[static_cast<std::size_t>(member)];
}

bool Batch::late() const { return pending && collective::options_of(*task.awaited().call).deadline.passed(); }

std::string Batch::describe() const {
  if (entries.empty()) return "an operation that members skip after join()";
  std::string text = wire::describe(request());
  if (entries.size() > 1) text += " and " + std::to_string(entries.size() - 1) + " more";
  return text;
}

Batches cut_into_batches(const Entries& entries, const negotiate::OrderedOperation& ordered, int members,
                         std::size_t fusion_threshold) {
  std::vector<std::pair<const std::shared_ptr<submit::Entry>*, std::size_t>> tensors;
  std::vector<negotiate::FusionCandidate> candidates;
  for (const auto& entry : entries) {
    for (std::size_t part = 0; part < std::max<std::size_t>(1, entry->parts.size()); ++part) {
      tensors.emplace_back(&entry, part);
      const BatchTensor tensor{entry.get(), part};
      candidates.push_back({tensor.bytes(), fusion_class(tensor)});
    }
  }
  Batches batches;
  for (const negotiate::FusedIndices& indices : negotiate::plan_fusion(candidates, {fusion_threshold})) {
    auto batch = std::make_unique<Batch>();
    for (const std::size_t i : indices) {
      const auto& [entry, part] = tensors[i];
      batch->tensors.push_back({entry->get(), part});
      if (batch->entries.empty() || batch->entries.back() != *entry) {
        batch->entries.push_back(*entry);
        ++(*entry)->unfinished;
      }
    }
    batch->steps = steps_of(batch->request().operation);
    batch->absent = ordered.absent;
    if (!ordered.extents.empty()) {
      const auto first = ordered.extents.begin() + static_cast<std::ptrdiff_t>(indices.front()) * members;
      batch->extents.assign(first, first + members);
    }
    batches.push_back(std::move(batch));
  }
  return batches;
}

}  // namespace roundelay::execute
