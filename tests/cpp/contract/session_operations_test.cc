// Each operation through whole sessions: values, shapes, groups, refused calls and who gets the error.
#include <limits>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/session_trip.h"

namespace roundelay::contract {
namespace {

using runtime::Session;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("allgather concatenates different numbers of rows", "[session][operations]") {
  const int size = GENERATE(1, 2, 3);
  SessionWorld world(size);
  world.run([&](Session& session, int rank) -> std::string {
    for (int round = 0; round < 5; ++round) {
      // Rank r has r + round % 2 rows of two: rank 0 has none in every other round.
      std::vector<std::int32_t> all;
      for (int r = 0; r < size; ++r) all.insert(all.end(), static_cast<std::size_t>(2 * (r + round % 2)), r);
      Tensor expected = vector_of(all);
      expected.shape = {static_cast<std::int64_t>(all.size()) / 2, 2};
      Trip trip(filled<std::int32_t>({rank + round % 2, 2}, rank));
      const Status status = trip.run(session, request_of(Operation::kAllgather, "g"));
      if (std::string wrong = expect(trip, status, {expected}); !wrong.empty()) return wrong;
    }
    return {};
  });
  world.shutdown();
}

TEST_CASE("alltoall sends each rank its rows and says how many came", "[session][operations]") {
  const int size = GENERATE(1, 2, 3);
  SessionWorld world(size);
  world.run([&](Session& session, int rank) -> std::string {
    // Rank s sends d rows to rank d, each with the value 10 s + d.
    std::vector<double> sent, received;
    std::vector<std::int64_t> splits, came;
    for (int r = 0; r < size; ++r) {
      splits.push_back(r);
      came.push_back(rank);
      sent.insert(sent.end(), static_cast<std::size_t>(r), 10 * rank + r);
      received.insert(received.end(), static_cast<std::size_t>(rank), 10 * r + rank);
    }
    for (int round = 0; round < 5; ++round) {
      Trip trip(vector_of(sent));
      const Status status = trip.run(session, request_of(Operation::kAlltoall), splits);
      if (std::string wrong = expect(trip, status, {vector_of(received)}); !wrong.empty()) return wrong;
      if (trip.received_splits != came) return "wrong splits";
    }
    return {};
  });
  world.shutdown();
}

TEST_CASE("reducescatter gives the first ranks one row more", "[session][operations]") {
  const int size = GENERATE(1, 2, 3);
  const int rows = GENERATE(0, 1, 4, 6);
  SessionWorld world(size);
  world.run([&](Session& session, int rank) -> std::string {
    const int mine = rows / size + (rank < rows % size ? 1 : 0);
    Trip sum(filled<float>({rows, 3}, static_cast<float>(rank + 1)));
    wire::Request request = request_of(Operation::kReducescatter, "s");
    request.prescale.factor = 2;
    request.postscale.factor = 0.5;
    Status status = sum.run(session, request);
    const auto total = static_cast<float>(size * (size + 1) / 2);
    std::string wrong = expect(sum, status, {filled<float>({mine, 3}, total)});
    if (!wrong.empty()) return "sum: " + wrong;
    Trip average(filled<std::int64_t>({rows, 3}, rank == 0 ? -7 : 0));
    status = average.run(session, request_of(Operation::kReducescatter, "a", ReduceOp::kAverage));
    wrong = expect(average, status, {filled<std::int64_t>({mine, 3}, -7 / size)});
    return wrong.empty() ? "" : "average: " + wrong;
  });
  world.shutdown();
}

TEST_CASE("groups of several dtypes and sizes arrive as one", "[session][operations]") {
  const int size = GENERATE(1, 2, 3);
  Config config;
  config.fusion_threshold = GENERATE(0, 256, 1 << 20);
  SessionWorld world(size, config);
  world.run([&](Session& session, int rank) -> std::string {
    for (int round = 0; round < 3; ++round) {
      std::vector<Tensor> inputs, sums, gathered, scattered;
      for (int i = 0; i < 12; ++i) {
        const std::int64_t rows = 7 * i;
        const int total = size * i + size * (size - 1) / 2;
        const std::int64_t mine = rows / size + (rank < rows % size ? 1 : 0);
        if (i % 3 == 0) {
          inputs.push_back(filled<std::int64_t>({rows}, i + rank));
          sums.push_back(filled<std::int64_t>({rows}, total));
          scattered.push_back(filled<std::int64_t>({mine}, total));
        } else {
          inputs.push_back(filled<float>({rows}, static_cast<float>(i + rank)));
          sums.push_back(filled<float>({rows}, static_cast<float>(total)));
          scattered.push_back(filled<float>({mine}, static_cast<float>(total)));
        }
        Tensor all{inputs.back().dtype, {rows * size}, {}};
        for (int r = 0; r < size; ++r) {
          const Tensor part = i % 3 == 0 ? filled<std::int64_t>({rows}, i + r)
                                         : filled<float>({rows}, static_cast<float>(i + r));
          all.data.insert(all.data.end(), part.data.begin(), part.data.end());
        }
        gathered.push_back(std::move(all));
      }
      Trip reduce(inputs), gather(inputs), scatter(inputs);
      Flight single{std::vector<float>(5, 1.0F)};
      Status status = reduce.start(session, request_of(Operation::kAllreduce, "r"));
      if (status.ok()) status = take_off(session, "between", single);
      if (status.ok()) status = gather.start(session, request_of(Operation::kAllgather, "g"));
      if (status.ok()) status = scatter.start(session, request_of(Operation::kReducescatter, "s"));
      if (!status.ok()) return status.message();
      std::string wrong = expect(scatter, scatter.finish(session), scattered);
      if (!wrong.empty()) return "reducescatter: " + wrong;
      wrong = expect(gather, gather.finish(session), gathered);
      if (!wrong.empty()) return "allgather: " + wrong;
      wrong = expect(reduce, reduce.finish(session), sums);
      if (!wrong.empty()) return "allreduce: " + wrong;
      if (wrong = land(session, single, static_cast<float>(size)); !wrong.empty()) return wrong;
    }
    return {};
  });
  world.shutdown();
}

TEST_CASE("Adasum of equal gradients is one of them, in groups too", "[session][operations]") {
  SessionWorld world(3);
  world.run([](Session& session, int) -> std::string {
    const std::vector<Tensor> same = {filled<float>({5}, 3.0F), filled<double>({2, 2}, -1.0)};
    Trip trip(same);
    const Status status = trip.run(session, request_of(Operation::kAllreduce, "a", ReduceOp::kAdasum));
    return expect(trip, status, same);
  });
  world.shutdown();
}

struct Misuse {
  const char* what;
  wire::Request request;
  std::vector<Tensor> tensors;
  std::vector<std::int64_t> splits;
  const char* text;
};

std::vector<Misuse> misuses() {
  const Tensor scalar = filled<float>({}, 1.0F);
  const Tensor row = filled<float>({4}, 1.0F);
  const Tensor integers = filled<std::int64_t>({4}, 1);
  Tensor booleans = filled<std::uint8_t>({4}, 1);
  booleans.dtype = DType::kBool;
  wire::Request infinite = request_of(Operation::kReducescatter, "m");
  infinite.postscale.factor = std::numeric_limits<double>::quiet_NaN();
  wire::Request rootless = request_of(Operation::kBroadcast, "m");
  rootless.root = 2;
  return {
      {"average of bool", request_of(Operation::kAllreduce, "m", ReduceOp::kAverage), {booleans}, {}, "bool"},
      {"... in a group",
       request_of(Operation::kAllreduce, "m", ReduceOp::kAverage),
       {row, booleans},
       {},
       "Average of bool has no meaning"},
      {"Adasum of integers",
       request_of(Operation::kAllreduce, "m", ReduceOp::kAdasum),
       {integers},
       {},
       "needs floating-point tensors, not int64"},
      {"unknown op",
       request_of(Operation::kAllreduce, "m", static_cast<ReduceOp>(17)),
       {row},
       {},
       "unknown reduction 17"},
      {"allgather of a scalar", request_of(Operation::kAllgather, "m"), {scalar}, {}, "one dimension"},
      {"... in a group", request_of(Operation::kAllgather, "m"), {row, scalar}, {}, "tensor 1: needs"},
      {"alltoall of a scalar", request_of(Operation::kAlltoall, "m"), {scalar}, {0, 1}, "one dimension"},
      {"too few splits", request_of(Operation::kAlltoall, "m"), {row}, {4}, "splits has 1 entries"},
      {"negative split", request_of(Operation::kAlltoall, "m"), {row}, {5, -1}, "not be negative: [5, -1]"},
      {"wrong sum", request_of(Operation::kAlltoall, "m"), {row}, {1, 2}, "[1, 2] must add up"},
      {"overflow", request_of(Operation::kAlltoall, "m"), {row}, {INT64_MAX, INT64_MAX}, "must add up"},
      {"reducescatter of a scalar",
       request_of(Operation::kReducescatter, "m"),
       {scalar},
       {},
       "one dimension"},
      {"reducescatter by Min",
       request_of(Operation::kReducescatter, "m", ReduceOp::kMin),
       {row},
       {},
       "Average or Sum, not Min"},
      {"NaN", infinite, {row}, {}, "must be finite"},
      {"root", rootless, {row}, {}, "root_rank 2"},
  };
}

TEST_CASE("a wrong call is refused, its peers hear why, and the job goes on", "[session][operations]") {
  SessionWorld world(2);
  world.run([](Session& session, int rank) -> std::string {
    for (const Misuse& misuse : misuses()) {
      Status status;
      if (rank == 1) {
        Trip trip(misuse.tensors);
        status = trip.start(session, misuse.request, misuse.splits);
        if (status.code() != StatusCode::kInvalidArgument) return std::string(misuse.what) + " was accepted";
      } else {
        Trip trip(filled<float>({2}, 1.0F));
        status = trip.run(session, request_of(Operation::kAllreduce, "m"));
        if (!contains(status.message(), "rank 1: ")) return misuse.what + (": " + status.message());
      }
      if (!contains(status.message(), misuse.text)) return misuse.what + (": " + status.message());
      if (std::string wrong = sum_once(session, rank, "good", 2); !wrong.empty()) return wrong;
    }
    return {};
  });
  world.shutdown();
}

TEST_CASE("no memory for a result ends the job and names the rank", "[session][operations]") {
  class NoMemory final : public submit::Results {
    Result<Memory> allocate(std::size_t, const std::vector<std::int64_t>&) override {
      return Status::unavailable("no memory for 12 bytes");
    }
    void set_received_splits(std::vector<std::int64_t>) override {}
  } nowhere;
  SessionWorld world(2);
  world.run([&](Session& session, int rank) -> std::string {
    const Tensor tensor = filled<float>({3}, 1.0F);
    Trip trip(tensor);
    Status status;
    if (rank == 1) {
      submit::Arguments arguments;
      arguments.request = request_of(Operation::kAllgather, "g");
      arguments.request.shape = tensor.shape;
      arguments.parts = {{tensor.dtype, tensor.data.data(), nullptr, 3}};
      arguments.results = &nowhere;
      const auto handle = session.submit(std::move(arguments), {});
      status = handle.ok() ? *session.wait(*handle, Deadline::never()) : handle.status();
    } else {
      status = trip.run(session, request_of(Operation::kAllgather, "g"));
    }
    const bool named = contains(status.message(), "rank 1 failed inside allgather of 'g'") &&
                       contains(status.message(), "no memory");
    return status.code() == StatusCode::kAborted && named ? "" : "ended with: " + status.message();
  });
  world.shutdown();
}

}  // namespace
}  // namespace roundelay::contract
