#include "negotiate/validate.h"

#include <cstdio>

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

std::string differ(const wire::Request& a, int rank_a, const std::string& what, const std::string& value_a,
                   int rank_b, const std::string& value_b) {
  return "Mismatched " + std::string(name_of(a.operation)) + " of '" + a.name + "': rank " +
         std::to_string(rank_a) + " has " + what + " " + value_a + ", rank " + std::to_string(rank_b) +
         " has " + what + " " + value_b + ". Nothing was changed; all ranks must call it alike.";
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(extent);
  }
  return text + "]";
}

std::string mismatch(const wire::Request& a, int rank_a, const wire::Request& b, int rank_b) {
  const auto say = [&](const char* what, const std::string& value_a, const std::string& value_b) {
    return differ(a, rank_a, what, value_a, rank_b, value_b);
  };
  if (a.operation != b.operation) {
    return say("operation", std::string(name_of(a.operation)), std::string(name_of(b.operation)));
  }
  if (a.dtype != b.dtype) return say("dtype", std::string(name_of(a.dtype)), std::string(name_of(b.dtype)));
  if (a.shape != b.shape) return say("shape", shape_text(a.shape), shape_text(b.shape));
  if (a.reduce_op != b.reduce_op) {
    return say("reduction", std::string(name_of(a.reduce_op)), std::string(name_of(b.reduce_op)));
  }
  if (a.root != b.root) return say("root rank", std::to_string(a.root), std::to_string(b.root));
  if (!(a.prescale == b.prescale))
    return say("prescale factor", scale_text(a.prescale), scale_text(b.prescale));
  if (!(a.postscale == b.postscale))
    return say("postscale factor", scale_text(a.postscale), scale_text(b.postscale));
  return {};
}

}  // namespace roundelay::negotiate
