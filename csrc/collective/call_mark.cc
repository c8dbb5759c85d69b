#include "collective/call_mark.h"

#include "collective/marked_types.h"

namespace roundelay::collective {
namespace {

std::string_view name_of_form(const CallMark& mark) {
  switch (mark.form) {
    case CallMark::Form::kReduce:
      return "reduce";
    case CallMark::Form::kGather:
      return "gather";
    case CallMark::Form::kScatter:
      return "scatter";
    case CallMark::Form::kAnd:
      return "reduction BAND";
    case CallMark::Form::kOr:
      return "reduction BOR";
    case CallMark::Form::kXor:
      return "reduction BXOR";
    case CallMark::Form::kTechnique:
      return "reduction by a technique";
    case CallMark::Form::kItself:
      break;
  }
  return name_of(mark.operation);
}

}  // namespace

std::string describe(const CallMark& mark) {
  if (!mark.set()) return "a call without a number";
  const bool known = static_cast<int>(mark.operation) < kOperationCount &&
                     static_cast<int>(mark.reduce_op) < kReduceOpCount &&
                     static_cast<int>(mark.dtype) < kTypesInMarks;
  if (!known) return "call " + std::to_string(mark.sequence) + ", of another build";
  std::string text = "call " + std::to_string(mark.sequence) + ", " + std::string(name_of_form(mark));
  const OperationTraits& traits = traits_of(mark.operation);
  if (traits.reduces) text += " " + std::string(name_of(mark.reduce_op));
  if (mark.bytes > 0) text += " of " + std::to_string(mark.bytes) + " bytes";
  if (traits.has_tensors) text += " " + std::string(name_in_mark(mark.dtype));
  if (mark.detail >= 0) {
    const bool technique = mark.form == CallMark::Form::kTechnique;
    const bool parts = mark.form == CallMark::Form::kItself && (mark.operation == Operation::kAllgather ||
                                                                mark.operation == Operation::kReducescatter);
    text += (technique ? ", technique and run "
             : parts   ? ", in parts whose sizes and types have digest "
                       : ", root ") +
            std::to_string(mark.detail);
  }
  return text;
}

std::string describe(const CallMark& mine, const CallMark& peers) {
  return describe(mine) + " here, and " + describe(peers) + " there";
}

Status differs_from(int peer_rank, const std::string& calls) {
  return Status::mismatch("rank " + std::to_string(peer_rank) + " has called something else: " + calls);
}

}  // namespace roundelay::collective
