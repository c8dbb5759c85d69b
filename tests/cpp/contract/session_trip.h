// Runs one operation of any kind through a session. Holds the memory that the caller would hold.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cpp/contract/session_world.h"

namespace roundelay::contract {

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return DType::kFloat64;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::kInt64;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::kInt32;
  return DType::kUInt8;
}

struct Tensor {
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

// Returns a tensor whose elements all are `value`.
template <typename T>
Tensor filled(std::vector<std::int64_t> shape, T value) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  const std::vector<T> values(count, value);
  Tensor tensor{dtype_of<T>(), std::move(shape), std::vector<std::byte>(count * sizeof(T))};
  if (count > 0) std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return tensor;
}

template <typename T>
Tensor vector_of(const std::vector<T>& values) {
  Tensor tensor = filled<T>({static_cast<std::int64_t>(values.size())}, T{});
  if (!values.empty()) std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return tensor;
}

class Trip final : private submit::Results {
 public:
  explicit Trip(std::vector<Tensor> tensors, ProcessSetId process_set = 0)
      : outputs(tensors.size()), inputs_(std::move(tensors)), process_set_(process_set) {}
  explicit Trip(Tensor tensor, ProcessSetId process_set = 0)
      : Trip(std::vector<Tensor>{std::move(tensor)}, process_set) {}
  Trip(const Trip&) = delete;
  Trip& operator=(const Trip&) = delete;

  // Submits the operation. The tensors supply the fields of `request` that describe them.
  Status start(runtime::Session& session, wire::Request request, std::vector<std::int64_t> splits = {}) {
    submit::Arguments arguments;
    const bool in_place =
        request.operation == Operation::kAllreduce || request.operation == Operation::kBroadcast;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const Tensor& input = inputs_[i];
      if (in_place) outputs[i] = {input.dtype, input.shape, std::vector<std::byte>(input.data.size())};
      arguments.parts.push_back({input.dtype, input.data.data(), in_place ? outputs[i].data.data() : nullptr,
                                 input.data.size() / size_of(input.dtype)});
      if (i > 0) request.others.push_back({input.dtype, input.shape});
    }
    if (!inputs_.empty()) {
      request.dtype = inputs_.front().dtype;
      request.shape = inputs_.front().shape;
    }
    arguments.request = std::move(request);
    arguments.splits = std::move(splits);
    arguments.results = this;
    const auto handle = session.submit(std::move(arguments), {process_set_});
    if (handle.ok()) handle_ = *handle;
    return handle.status();
  }
  // Waits without a deadline, so that a lost wake-up hangs and does not pass late.
  Status finish(runtime::Session& session) { return *session.wait(handle_, Deadline::never()); }
  Status run(runtime::Session& session, wire::Request request, std::vector<std::int64_t> splits = {}) {
    Status status = start(session, std::move(request), std::move(splits));
    return status.ok() ? finish(session) : status;
  }

  std::vector<Tensor> outputs;
  std::vector<std::int64_t> received_splits;

 private:
  Result<Memory> allocate(std::size_t part, const std::vector<std::int64_t>& shape) override {
    if (inputs_.empty()) {  // the operation is a join
      outputs.assign(1, filled<std::int64_t>(shape, -1));
    } else {
      std::size_t bytes = size_of(inputs_[part].dtype);
      for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
      outputs[part] = {inputs_[part].dtype, shape, std::vector<std::byte>(bytes)};
    }
    return Memory{.data = outputs[inputs_.empty() ? 0 : part].data.data()};
  }
  void set_received_splits(std::vector<std::int64_t> rows) override { received_splits = std::move(rows); }

  std::vector<Tensor> inputs_;
  ProcessSetId process_set_;
  complete::Handle handle_ = 0;
};

inline wire::Request request_of(Operation operation, std::string name = "", ReduceOp op = ReduceOp::kSum) {
  wire::Request request;
  request.operation = operation;
  request.name = std::move(name);
  request.reduce_op = op;
  return request;
}

// Returns the error or the difference, "" if there is none.
inline std::string expect(const Trip& trip, const Status& status, const std::vector<Tensor>& expected) {
  if (!status.ok()) return status.message();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (trip.outputs[i].shape != expected[i].shape) return "tensor " + std::to_string(i) + ": wrong shape";
    if (trip.outputs[i] != expected[i]) return "tensor " + std::to_string(i) + ": wrong values";
  }
  return {};
}

// Joins. Returns the rank that joined last.
inline Result<std::int64_t> join(runtime::Session& session, ProcessSetId process_set = 0) {
  Trip trip(std::vector<Tensor>{}, process_set);
  if (Status s = trip.run(session, request_of(Operation::kJoin)); !s.ok()) return s;
  std::int64_t last = -1;
  std::memcpy(&last, trip.outputs.at(0).data.data(), sizeof(last));
  return last;
}

inline Result<ProcessSetId> add_set(runtime::Session& session, const std::vector<int>& ranks) {
  const auto handle = session.submit_new_set(ranks);
  if (!handle.ok()) return handle.status();
  if (Status s = *session.wait(*handle, Deadline::never()); !s.ok()) return s;
  return session.make_process_set(ranks);
}

inline Status remove_set(runtime::Session& session, ProcessSetId id) {
  const auto handle = session.submit_removal(id);
  if (!handle.ok()) return handle.status();
  if (Status s = *session.wait(*handle, Deadline::never()); !s.ok()) return s;
  return session.drop_process_set(id);
}

// Stops rank `silent` when set 1 has ordered an operation. The set's other member must get an error that
// names it. `last_of_silent` holds the stopped rank's operation, which may never be ordered there. `outside`
// is not in the set.
inline void stop_inside_a_set(SessionWorld& world, Trip& last_of_silent, int silent, int outside) {
  const int orders_before = world.orders_sent;
  world.run([&](runtime::Session& session, int rank) -> std::string {
    if (rank == outside) return {};
    Trip of_other(filled<float>({4}, 1.0F), 1);
    Trip& trip = rank == silent ? last_of_silent : of_other;
    const Status started = trip.start(session, request_of(Operation::kAllreduce, "stuck"));
    if (!started.ok()) return started.message();
    if (rank == silent) {
      session.end_linger();
      while (world.orders_sent < orders_before + 1) std::this_thread::yield();
      world.stop(silent);
      return {};
    }
    const std::string message = trip.finish(session).message();
    const std::string expected = "rank " + std::to_string(silent) + " entered allreduce of 'stuck'";
    return message.find(expected) == 0 ? "" : message;
  });
}

// Runs an allreduce of ones in a set. Returns the error, "" if there is none.
inline std::string count_members(runtime::Session& session, ProcessSetId id, int members,
                                 const std::string& name) {
  Trip trip(filled<std::int32_t>({3}, 1), id);
  const Status status = trip.run(session, request_of(Operation::kAllreduce, name));
  return expect(trip, status, {filled<std::int32_t>({3}, members)});
}

}  // namespace roundelay::contract
