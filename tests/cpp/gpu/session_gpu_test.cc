// Whole sessions whose tensors are on GPUs, over a fake device and a fake NCCL.
#include "tests/cpp/gpu/gpu_trip.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <memory>
#include <thread>

namespace roundelay::contract {
namespace {

struct Job {
  std::string fabric;
  int size, nodes = 1;
  [[nodiscard]] GpuWorld world() const { return {size, fabric, true, true, {}, nodes}; }
  [[nodiscard]] std::string text() const {
    return fabric + ", " + std::to_string(size) + " ranks, " + std::to_string(nodes) + " nodes";
  }
};
const Job kNodes{"two_level", 4, 2};

const std::string kBoth[] = {"nccl", "staged"};

float sum_to(int size) { return static_cast<float>(size * (size + 1) / 2); }

TEST_CASE("every operation on a GPU has the CPU's result", "[session][gpu]") {
  const Job job = GENERATE(Job{"nccl", 1}, Job{"nccl", 2}, Job{"nccl", 3}, Job{"staged", 2}, Job{"staged", 3},
                           Job{"mpi", 1}, Job{"mpi", 2}, Job{"mpi", 3}, kNodes, Job{"two_level", 6, 2},
                           Job{"two_level", 2, 2}, Job{"two_level", 2}, Job{"two_level", 1});
  INFO(job.text());
  const int size = job.size;
  GpuWorld world = job.world();
  world.run([&](runtime::Session& session, Device& device, int rank) -> std::string {
    const auto mine = static_cast<float>(rank + 1);
    for (int round = 0; round < 3; ++round) {
      GpuTrip sum(device, filled<float>({5, 7}, mine));
      Status status = sum.run(session, request_of(Operation::kAllreduce, "sum"));
      if (auto wrong = expect(sum, status, {filled<float>({5, 7}, sum_to(size))}); !wrong.empty())
        return wrong;

      GpuTrip mean(device, filled<double>({3}, rank));
      status = mean.run(session, request_of(Operation::kAllreduce, "mean", ReduceOp::kAverage));
      if (auto wrong = expect(mean, status, {filled<double>({3}, (size - 1) / 2.0)}); !wrong.empty())
        return wrong;

      GpuTrip root(device, filled<std::int64_t>({4}, rank));
      wire::Request from_last = request_of(Operation::kBroadcast, "root");
      from_last.root = size - 1;
      status = root.run(session, from_last);
      if (auto wrong = expect(root, status, {filled<std::int64_t>({4}, size - 1)}); !wrong.empty())
        return wrong;

      std::vector<std::int32_t> all;
      for (int r = 0; r < size; ++r) all.insert(all.end(), static_cast<std::size_t>(r + 1), r);
      GpuTrip gathered(device, filled<std::int32_t>({rank + 1}, rank));
      status = gathered.run(session, request_of(Operation::kAllgather, "gather"));
      if (auto wrong = expect(gathered, status, {vector_of(all)}); !wrong.empty()) return wrong;

      std::vector<std::int32_t> from_each;
      for (int r = 0; r < size; ++r) from_each.insert(from_each.end(), 2, r);
      GpuTrip exchanged(device, filled<std::int32_t>({2 * size}, rank));
      status = exchanged.run(session, request_of(Operation::kAlltoall, "exchange"),
                             std::vector<std::int64_t>(static_cast<std::size_t>(size), 2));
      if (auto wrong = expect(exchanged, status, {vector_of(from_each)}); !wrong.empty()) return wrong;

      GpuTrip scattered(device, filled<float>({2 * size, 3}, mine));
      status = scattered.run(session, request_of(Operation::kReducescatter, "scatter"));
      if (auto wrong = expect(scattered, status, {filled<float>({2, 3}, sum_to(size))}); !wrong.empty())
        return wrong;
    }
    return {};
  });
  world.shutdown();
}

TEST_CASE("many tensors in flight on a GPU and on the CPU go by the order of names", "[session][gpu]") {
  const Job job = GENERATE(Job{"nccl", 2}, Job{"staged", 2}, Job{"mpi", 2}, kNodes);
  INFO(job.text());
  GpuWorld world = job.world();
  world.run([&](runtime::Session& session, Device& device, int rank) -> std::string {
    for (int round = 0; round < 5; ++round) {
      std::vector<std::unique_ptr<GpuTrip>> trips;
      std::vector<std::unique_ptr<Trip>> on_cpu;
      for (int i = 0; i < 20; ++i) {
        const auto value = static_cast<float>(rank + i);
        const std::string name = std::to_string(i);
        trips.push_back(std::make_unique<GpuTrip>(device, filled<float>({i * 13 + 1}, value)));
        on_cpu.push_back(std::make_unique<Trip>(filled<float>({i + 1}, value)));
        if (Status s = trips.back()->start(session, request_of(Operation::kAllreduce, "gpu" + name)); !s.ok())
          return s.message();
        if (Status s = on_cpu.back()->start(session, request_of(Operation::kAllreduce, "cpu" + name));
            !s.ok())
          return s.message();
      }
      session.end_linger();
      for (int i = 0; i < 20; ++i) {
        const auto index = static_cast<std::size_t>(i);
        const float sum = sum_to(job.size - 1) + static_cast<float>(job.size * i);
        Status status = trips[index]->wait(session);
        if (status.ok()) status = trips[index]->fetch();
        if (auto wrong = expect(*trips[index], status, {filled<float>({i * 13 + 1}, sum)}); !wrong.empty())
          return wrong;
        status = on_cpu[index]->finish(session);
        if (auto wrong = expect(*on_cpu[index], status, {filled<float>({i + 1}, sum)}); !wrong.empty())
          return wrong;
      }
    }
    if (session.stats().at("gpu_operations") == 0) return "nothing went over the GPU";
    return {};
  });
  world.shutdown();
}

TEST_CASE("the host waits until a collective is enqueued, not for the device", "[session][gpu]") {
  const int size = GENERATE(1, 2);
  GpuWorld world(size, "nccl");
  world.run([&](runtime::Session& session, Device& device, int) -> std::string {
    GpuTrip first(device, filled<float>({8}, 1.0F));  // the members meet
    const Status met = first.run(session, request_of(Operation::kAllreduce, "first"));
    if (!met.ok()) return met.message();
    GpuTrip trip(device, filled<float>({8}, 1.0F));
    {
      const doubles::FakeGpu::Hold busy(device.gpu);
      if (Status s = trip.start(session, request_of(Operation::kAllreduce, "held")); !s.ok())
        return s.message();
      const Status enqueued = trip.wait(session);  // would hang if it waited for the device
      if (!enqueued.ok()) return enqueued.message();
    }
    return expect(trip, trip.fetch(), {filled<float>({8}, static_cast<float>(size))});
  });
  world.shutdown();
}

TEST_CASE("ranks that disagree on the device hear of it, and go on", "[session][gpu]") {
  GpuWorld world(2, "staged");
  world.run([](runtime::Session& session, Device& device, int rank) -> std::string {
    const wire::Request request = request_of(Operation::kAllreduce, "here or there");
    Trip here(filled<float>({2}, 1.0F));
    GpuTrip there(device, filled<float>({2}, 1.0F));
    Status status = rank == 0 ? here.start(session, request) : there.start(session, request);
    if (!status.ok()) return status.message();
    status = rank == 0 ? here.finish(session) : there.wait(session);
    const std::string expected =
        "Mismatched allreduce of 'here or there': rank 0 has a tensor on the CPU, rank 1 has a tensor on a "
        "GPU.";
    if (status.message().find(expected) != 0) return "said: " + status.message();
    GpuTrip again(device, filled<float>({2}, 1.0F));
    status = again.run(session, request);
    return expect(again, status, {filled<float>({2}, 2.0F)});
  });
  world.shutdown();
}

TEST_CASE("a GPU tensor without a CUDA part is refused on all ranks", "[session][gpu]") {
  SessionWorld world(2);
  world.run([](runtime::Session& session, int rank) -> std::string {
    Flight flight{std::vector<float>(4, 1.0F)};
    const auto on_gpu = [](wire::Request& request) { request.device = DeviceType::kGpu; };
    Status status = rank == 0 ? take_off(session, "g", flight, on_gpu) : take_off(session, "g", flight);
    if (rank == 1 && status.ok()) status = *session.wait(flight.handle, Deadline::never());
    const std::string expected = "the tensor is on a GPU, but this build has no CUDA part";
    if (status.message().find(expected) == std::string::npos) return "said: " + status.message();
    return sum_once(session, rank, "after", 2);
  });
  world.shutdown();
}

TEST_CASE("two ranks on one GPU go through host memory", "[session][gpu]") {
  GpuWorld world(2, "auto", false);
  world.run([](runtime::Session& session, Device& device, int) -> std::string {
    GpuTrip trip(device, filled<float>({3}, 1.0F));
    const Status status = trip.run(session, request_of(Operation::kAllreduce, "t"));
    return expect(trip, status, {filled<float>({3}, 2.0F)});
  });
  world.shutdown();
}

// A user whose allreduce must fail with these words.
GpuWorld::User hears(const std::string& words) {
  return [words](runtime::Session& session, Device& device, int) -> std::string {
    GpuTrip trip(device, filled<float>({3}, 1.0F));
    if (Status s = trip.start(session, request_of(Operation::kAllreduce, "t")); !s.ok()) return s.message();
    const std::string said = trip.wait(session).message();
    return said.find(words) != std::string::npos ? "" : "said: " + said;
  };
}

TEST_CASE("where NCCL is demanded and cannot be, all ranks hear why", "[session][gpu]") {
  GpuWorld world(2, "nccl", true, false);
  world.run(hears("ROUNDELAY_GPU_FABRIC=nccl, but rank 0 has no NCCL"));
  world.shutdown();
}

TEST_CASE("where MPI is demanded and cannot be, all ranks hear why", "[session][gpu]") {
  GpuWorld no_mpi(2, "mpi", true, false);
  no_mpi.run(hears("ROUNDELAY_GPU_FABRIC=mpi, but rank 0: the job has no MPI"));
  no_mpi.shutdown();
}

TEST_CASE("sums over MPI, and questions to the driver, are counted", "[session][gpu]") {
  GpuWorld world(2, "mpi");
  world.run([](runtime::Session& session, Device& device, int) -> std::string {
    for (int round = 0; round < 20; ++round) {
      GpuTrip trip(device, filled<float>({100}, 1.0F));
      const Status status = trip.run(session, request_of(Operation::kAllreduce, "t"));
      if (auto wrong = expect(trip, status, {filled<float>({100}, 2.0F)}); !wrong.empty()) return wrong;
    }
    const auto stats = session.stats();
    if (stats.at("gpu_sums") != 20 || stats.at("gpu_sum_bytes") != 20 * 400) return "the sums are miscounted";
    if (stats.at("pointer_misses") != device.gpu.questions()) return "the questions are miscounted";
    return "";
  });
  world.shutdown();
}

TEST_CASE("where two levels are demanded and cannot be, all ranks hear why", "[session][gpu]") {
  GpuWorld uneven(3, "two_level", true, true, {}, 2);
  uneven.run(hears("ROUNDELAY_GPU_FABRIC=two_level, but process set 0 has 2 ranks on the node of rank 0"));
  uneven.shutdown();
  GpuWorld without_nccl(4, "two_level", true, false, {}, 2);
  without_nccl.run(hears("ROUNDELAY_GPU_FABRIC=two_level, but rank 0 has no NCCL"));
  without_nccl.shutdown();
  Config hurried;
  hurried.start_timeout = std::chrono::seconds(1);
  GpuWorld one_cannot_join(4, "two_level", true, true, hurried, 2);
  one_cannot_join.devices[2]->nccl.fail("join", Status::aborted("no driver"));
  one_cannot_join.run(hears("two_level, but rank 2 could not join NCCL's communicator"));
  one_cannot_join.shutdown();
}

TEST_CASE("process sets that share GPUs enqueue in one order", "[session][gpu]") {
  const std::string fabric = GENERATE(kBoth[0], kBoth[1]);
  INFO(fabric);
  GpuWorld world(3, fabric);
  world.run([](runtime::Session& session, Device& device, int rank) -> std::string {
    std::vector<std::pair<ProcessSetId, float>> mine = {{0, 3.0F}};
    for (const std::vector<int>& ranks : {std::vector<int>{0, 1}, {1, 2}, {0, 2}}) {
      const auto id = add_set(session, ranks);
      if (!id.ok()) return id.status().message();
      if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) mine.emplace_back(*id, 2.0F);
    }
    for (int round = 0; round < 20; ++round) {
      std::rotate(mine.begin(), mine.begin() + 1 + (rank + round) % 2, mine.end());  // differs by rank
      std::vector<std::unique_ptr<GpuTrip>> trips;
      for (const auto& [id, sum] : mine) {
        trips.push_back(std::make_unique<GpuTrip>(device, filled<float>({50}, 1.0F), id));
        const Status started = trips.back()->start(session, request_of(Operation::kAllreduce, "t"));
        if (!started.ok()) return started.message();
      }
      for (std::size_t i = 0; i < trips.size(); ++i) {
        Status status = trips[i]->wait(session);
        if (status.ok()) status = trips[i]->fetch();
        const Tensor expected = filled<float>({50}, mine[i].second);
        if (auto wrong = expect(*trips[i], status, {expected}); !wrong.empty()) return wrong;
      }
    }
    return {};
  });
  world.shutdown();
}

TEST_CASE("a process set is dropped when its device has done the work", "[session][gpu]") {
  GpuWorld world(2, "nccl");
  world.run([](runtime::Session& session, Device& device, int) -> std::string {
    const auto id = add_set(session, {0, 1});
    if (!id.ok()) return id.status().message();
    GpuTrip first(device, filled<float>({8}, 1.0F), *id);  // the members meet
    const Status met = first.run(session, request_of(Operation::kAllreduce, "first"));
    if (!met.ok()) return met.message();
    GpuTrip trip(device, filled<float>({8}, 1.0F), *id);
    auto busy = std::make_unique<doubles::FakeGpu::Hold>(device.gpu);
    if (Status s = trip.start(session, request_of(Operation::kAllreduce, "held")); !s.ok())
      return s.message();
    if (Status s = trip.wait(session); !s.ok()) return s.message();
    std::atomic<bool> released{false};
    std::thread device_goes_on([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // longer than a drop that does not wait
      released = true;
      busy.reset();
    });
    const Status dropped = remove_set(session, *id);
    const bool waited = released;
    device_goes_on.join();
    if (!dropped.ok()) return dropped.message();
    if (!waited) return "the set was dropped while its device worked";
    return expect(trip, trip.fetch(), {filled<float>({8}, 2.0F)});
  });
  world.shutdown();
}

TEST_CASE("while ranks have joined, the others' GPU tensors are summed", "[session][gpu]") {
  const Job job = GENERATE(Job{"nccl", 3}, Job{"staged", 3}, kNodes);
  INFO(job.text());
  GpuWorld world = job.world();
  world.run([&job](runtime::Session& session, Device& device, int rank) -> std::string {
    for (int i = 0; i <= rank; ++i) {
      GpuTrip trip(device, filled<float>({1 << 20}, 1.0F));
      const Status status = trip.run(session, request_of(Operation::kAllreduce, "t"));
      const auto present = static_cast<float>(job.size - i);
      if (auto wrong = expect(trip, status, {filled<float>({1 << 20}, present)}); !wrong.empty())
        return wrong;
    }
    const auto last = join(session);
    if (!last.ok()) return last.status().message();
    GpuTrip after(device, filled<float>({2}, 1.0F));
    return expect(after, after.run(session, request_of(Operation::kAllreduce, "after")),
                  {filled<float>({2}, static_cast<float>(job.size))});
  });
  world.shutdown();
}

TEST_CASE("a device that fails ends the job with its words", "[session][gpu]") {
  const Job job = GENERATE(Job{"nccl", 2}, Job{"staged", 2}, kNodes);
  INFO(job.text());
  GpuWorld world = job.world();
  std::barrier all(job.size);
  world.run([&all](runtime::Session& session, Device& device, int rank) -> std::string {
    GpuTrip first(device, filled<float>({8}, 1.0F));
    const Status met = first.run(session, request_of(Operation::kAllreduce, "first"));
    all.arrive_and_wait();
    if (!met.ok()) return met.message();
    if (rank == 1) device.gpu.fail(Status::aborted("the GPU has fallen off the bus"));
    Trip trip(filled<float>({8}, 1.0F));  // the producer would fail for a tensor on the GPU
    if (rank == 1) {
      session.fail("the GPU has fallen off the bus");
      return {};
    }
    GpuTrip next(device, filled<float>({8}, 1.0F));
    Status status = next.start(session, request_of(Operation::kAllreduce, "next"));
    if (status.ok()) status = next.wait(session);
    return status.message().find("fallen off the bus") != std::string::npos ? ""
                                                                            : "said: " + status.message();
  });
  world.shutdown();
}

}  // namespace
}  // namespace roundelay::contract
