#include "negotiate/validate.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "wire/describe.h"

namespace roundelay::negotiate {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string scale_text(const Scale& scale) {
  return number(scale.factor) + (scale.divisor == 1 ? "" : " / " + std::to_string(scale.divisor));
}

std::string change_text(const wire::Request& request) {
  if (request.root < 0 && request.ranks.empty()) return "no further process set";
  return request.root < 0 ? "process set " + list_text(request.ranks)
                          : "removal of process set " + std::to_string(request.root);
}

std::string region_text(const wire::RegionOffset& region) {
  if (region.key == 0) return "a tensor of its own";
  return "a bucket at byte " + std::to_string(region.offset) + " of gradient pool " +
         std::to_string(region.key);
}

// Two ranks' requests for one submission. differ() words the difference.
struct Pair {
  const wire::Request& a;
  int rank_a;
  const wire::Request& b;
  int rank_b;

  [[nodiscard]] std::string differ(const std::string& value_a, const std::string& value_b) const {
    return "Mismatched " + std::string(name_of(a.operation)) + " of '" + a.name + "': rank " +
           std::to_string(rank_a) + " has " + value_a + ", rank " + std::to_string(rank_b) + " has " +
           value_b + ". Nothing was changed; all ranks must call it alike.";
  }
  [[nodiscard]] std::string differ(const std::string& what, const std::string& value_a,
                                   const std::string& value_b) const {
    return differ(what + " " + value_a, what + " " + value_b);
  }
};

bool shapes_agree(Operation operation, const Shape& a, const Shape& b) {
  if (!traits_of(operation).rows_may_differ || a.empty() || b.empty()) return a == b;
  return std::equal(a.begin() + 1, a.end(), b.begin() + 1, b.end());
}

std::string_view name_of(Merge merge) {
  constexpr std::array<std::string_view, kMergeCount> kNames = {"equal", "and", "or", "max", "root", "sum"};
  return kNames[static_cast<std::size_t>(merge)];
}

std::string field_text(std::size_t index, const AgreementField& field) {
  return "field " + std::to_string(index) + " (" + std::string(name_of(field.merge)) + ") of " +
         std::to_string(field.bytes) + " bytes";
}

std::string agreement_mismatch(const Pair& pair) {
  const auto& [a, rank_a, b, rank_b] = pair;
  if (a.fields.size() != b.fields.size()) {
    return pair.differ(std::to_string(a.fields.size()) + " fields",
                       std::to_string(b.fields.size()) + " fields");
  }
  const auto [mine, other] = std::mismatch(a.fields.begin(), a.fields.end(), b.fields.begin());
  if (mine != a.fields.end()) {
    const auto index = static_cast<std::size_t>(mine - a.fields.begin());
    return pair.differ(field_text(index, *mine), field_text(index, *other));
  }
  return {};
}

std::string root_mismatch(const Pair& pair) {
  if (pair.a.root == pair.b.root) return {};
  return pair.differ("root rank", std::to_string(pair.a.root), std::to_string(pair.b.root));
}

// `which` names the tensor of a group: " of tensor 2".
std::string tensor_mismatch(const Pair& pair, const std::string& which, DType dtype_a, const Shape& shape_a,
                            DType dtype_b, const Shape& shape_b) {
  if (dtype_a != dtype_b) {
    return pair.differ("dtype" + which, std::string(name_of(dtype_a)), std::string(name_of(dtype_b)));
  }
  if (shapes_agree(pair.a.operation, shape_a, shape_b)) return {};
  return pair.differ("shape" + which, list_text(shape_a), list_text(shape_b));
}

std::string tensors_mismatch(const Pair& pair) {
  const auto& [a, rank_a, b, rank_b] = pair;
  if (a.others.size() != b.others.size()) {
    return pair.differ(std::to_string(1 + a.others.size()) + " tensors",
                       std::to_string(1 + b.others.size()) + " tensors");
  }
  std::string text =
      tensor_mismatch(pair, a.others.empty() ? "" : " of tensor 0", a.dtype, a.shape, b.dtype, b.shape);
  for (std::size_t i = 0; text.empty() && i < a.others.size(); ++i) {
    const auto& [dtype_a, shape_a] = a.others[i];
    const auto& [dtype_b, shape_b] = b.others[i];
    text = tensor_mismatch(pair, " of tensor " + std::to_string(i + 1), dtype_a, shape_a, dtype_b, shape_b);
  }
  return text;
}

std::string reduction_mismatch(const Pair& pair) {
  const auto& [a, rank_a, b, rank_b] = pair;
  if (a.reduce_op != b.reduce_op) {
    return pair.differ("reduction", std::string(name_of(a.reduce_op)), std::string(name_of(b.reduce_op)));
  }
  if (!(a.prescale == b.prescale))
    return pair.differ("prescale factor", scale_text(a.prescale), scale_text(b.prescale));
  if (!(a.postscale == b.postscale))
    return pair.differ("postscale factor", scale_text(a.postscale), scale_text(b.postscale));
  if (a.technique != b.technique)
    return pair.differ(wire::describe_technique(a), wire::describe_technique(b));
  if (!(a.region == b.region)) return pair.differ(region_text(a.region), region_text(b.region));
  return {};
}

}  // namespace

std::string mismatch(const wire::Request& a, int rank_a, const wire::Request& b, int rank_b) {
  if (rank_b < rank_a) return mismatch(b, rank_b, a, rank_a);
  const Pair pair{a, rank_a, b, rank_b};
  if (a.operation != b.operation) {
    return pair.differ("operation", std::string(name_of(a.operation)), std::string(name_of(b.operation)));
  }
  if (a.operation == Operation::kProcessSet) {
    return a.root == b.root && a.ranks == b.ranks ? "" : pair.differ(change_text(a), change_text(b));
  }
  if (a.operation == Operation::kAgreement) {
    std::string text = agreement_mismatch(pair);
    return text.empty() ? root_mismatch(pair) : text;
  }
  const OperationTraits& traits = traits_of(a.operation);
  if (!traits.has_tensors) return {};
  if (a.device != b.device) {
    return pair.differ("a tensor on", std::string(name_of(a.device)), std::string(name_of(b.device)));
  }
  std::string text = tensors_mismatch(pair);
  if (text.empty() && traits.reduces) text = reduction_mismatch(pair);
  return text.empty() ? root_mismatch(pair) : text;
}

}  // namespace roundelay::negotiate
