// A lane of one rank, and what its user holds, for tests that step lanes from one thread.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "complete/handles.h"
#include "execute/completer.h"
#include "execute/lane.h"
#include "tests/cpp/catch.h"

namespace roundelay::execute {

using Floats = std::vector<float>;

inline const auto kAsIs = [](wire::Request&) {};

// The error of an allreduce that the fault cut short.
inline Status cut_short(const std::string& cause, const std::string& name) {
  return Status::aborted(cause + " (while allreduce of '" + name + "' was under way)");
}

inline negotiate::OrderedOperation operation(std::vector<std::string> names) {
  return {std::move(names), {}, {}, false};
}

// One rank's lane, and the memory that its caller would hold.
class LaneRank {
 public:
  LaneRank(LaneFabrics fabrics, const LaneOptions& options)
      : completer_(handles_, [this](const submit::Entry& entry,
                                    TimePoint) { completed.push_back(entry.request.name); }),
        lane(LaneId{}, std::move(fabrics), completer_, timeline, abort, options,
             {[this](wire::Stuck stuck) { stucks.push_back(std::move(stuck)); },
              [this](wire::Abort fault) { faults.push_back(std::move(fault)); }}) {}

  template <typename Change>
  void add(const std::string& name, const Floats& input, Change change) {
    Tensor& tensor = tensors[name];
    tensor.input = input;
    tensor.output.assign(input.size(), -1.0F);
    submit::Entry entry;
    entry.request.name = name;
    entry.request.shape = {static_cast<std::int64_t>(input.size())};
    change(entry.request);
    const std::size_t parts = 1 + entry.request.others.size();  // a group's parts share `input`
    const std::size_t count = input.size() / parts;
    for (std::size_t i = 0; i < parts; ++i) {
      entry.parts.push_back({DType::kFloat32, reinterpret_cast<std::byte*>(tensor.input.data() + i * count),
                             reinterpret_cast<std::byte*>(tensor.output.data() + i * count), count});
    }
    const auto handle = lane.table().add(std::move(entry), handles_);
    REQUIRE(handle.ok());
    tensor.handle = *handle;
  }

  [[nodiscard]] bool done(const std::string& name) {
    return handles_.done(tensors.at(name).handle).value_or(false);
  }
  Status status(const std::string& name) {
    return handles_.take_status(tensors.at(name).handle).value_or(Status::internal("not done"));
  }

  struct Tensor {
    Floats input, output;
    complete::Handle handle = 0;
  };
  std::map<std::string, Tensor> tensors;
  std::vector<std::string> completed;  // in order
  std::vector<wire::Stuck> stucks;
  std::vector<wire::Abort> faults;
  AbortToken abort;
  timeline::Timeline timeline{0};

 private:
  complete::HandleTable handles_;
  Completer completer_;

 public:
  Lane lane;
};

}  // namespace roundelay::execute
