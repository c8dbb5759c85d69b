// Requests for the tests of negotiate/.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "wire/messages.h"

namespace roundelay::negotiate {

using Ids = std::vector<wire::CacheId>;
using Names = std::vector<std::string>;

inline wire::Request request_of(const std::string& name, std::vector<std::int64_t> shape = {4}) {
  wire::Request request;
  request.name = name;
  request.shape = std::move(shape);
  return request;
}

inline wire::Request error_of(const std::string& name, const std::string& text = "bad input") {
  wire::Request request = request_of(name);
  request.error = text;
  return request;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace roundelay::negotiate
