#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numbers>
#include <queue>
#include <vector>

#include "model/bucket_run.h"
#include "model/groups.h"
#include "model/job.h"
#include "model/link_end.h"

namespace roundelay::model {
namespace {

enum class EventKind : unsigned char { kReady, kBackwardDone, kUpdated, kBegun, kEnd, kTaskDone };

struct Event {
  double time = 0;
  std::uint64_t number = 0;  // events of one time keep the order in which they were made
  EventKind kind{};
  int run = 0;            // or a rank, or an end
  std::int64_t task = 0;  // or a rank, or a version
  friend bool operator>(const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.number > b.number;
  }
};

// Returns a number in (0, 1] that depends on the arguments alone (SplitMix64).
double uniform(std::uint64_t seed, std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = seed + 0x9e3779b97f4a7c15U * (a + 1) + 0xd1342543de82ef95U * (b + 1);
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  x ^= x >> 31U;
  return (static_cast<double>(x >> 11U) + 1) * 0x1.0p-53;
}

// Runs of buckets have even numbers, those of transfers odd ones.
int transfer_run(int transfer) { return 2 * transfer + 1; }
int bucket_run(int bucket) { return 2 * bucket; }

class Simulation {
 public:
  explicit Simulation(const Job& job)
      : job_(job),
        symmetric_(job.jitter == 0 && job.stragglers.empty()),
        groups_(job.cluster, symmetric_),
        ranks_(static_cast<std::size_t>(groups_.ranks())) {
    for (const double bandwidth : groups_.ends()) ends_.emplace_back(bandwidth);
  }

  Outcome run() {
    outcome_.step_ends.assign(static_cast<std::size_t>(job_.steps), 0);
    for (int rank = 0; rank < groups_.ranks(); ++rank) begin_step(rank);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      ++outcome_.events;
      handle(event);
    }
    finish();
    return std::move(outcome_);
  }

 private:
  struct Rank {
    int step = 0;
    int pending = 0;  // buckets of the step, and the end of backward
    int transfers_done = 0;
    bool waits = false;   // for a transfer
    double computed = 0;  // when backward ends
    double exposed = 0;
  };

  [[nodiscard]] int buckets() const { return static_cast<int>(job_.buckets.size()); }
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  void schedule(double time, EventKind kind, int run, std::int64_t task) {
    events_.push({time, ++numbers_, kind, run, task});
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case EventKind::kReady:
        return open_gate(event.run, static_cast<int>(event.task));
      case EventKind::kBackwardDone:
        return part_done(event.run);
      case EventKind::kUpdated:
        return updated(event.run);
      case EventKind::kBegun:
        return send(event.run, event.task);
      case EventKind::kEnd:
        return end_transfer(event.run, static_cast<std::uint64_t>(event.task));
      case EventKind::kTaskDone:
        return task_done(event.run, event.task);
    }
  }

  // --- ranks ---

  double slowness(int rank, int step) const {
    double factor = 1;
    for (const auto& [late, by] : job_.stragglers)
      if (late == rank) factor *= by;
    if (job_.jitter > 0) {
      const auto who = static_cast<std::uint64_t>(rank), when = static_cast<std::uint64_t>(step);
      const double normal = std::sqrt(-2 * std::log(uniform(job_.seed, 2 * who, when))) *
                            std::cos(2 * std::numbers::pi * uniform(job_.seed, 2 * who + 1, when));
      factor *= std::exp(job_.jitter * normal - job_.jitter * job_.jitter / 2);
    }
    return factor;
  }

  void begin_step(int rank) {
    Rank& self = at(rank);
    const double factor = slowness(rank, self.step);
    const double backward_begins = now_ + factor * job_.forward;
    self.pending = buckets() + 1;
    self.computed = backward_begins + factor * job_.backward;
    for (int bucket = 0; bucket < buckets(); ++bucket)
      schedule(
          backward_begins + factor * job_.buckets[static_cast<std::size_t>(bucket)].ready + job_.overhead,
          EventKind::kReady, bucket_run(self.step * buckets() + bucket), rank);
    schedule(self.computed, EventKind::kBackwardDone, rank, 0);
  }

  // A bucket of the rank's step is back, or backward has ended.
  void part_done(int rank) {
    Rank& self = at(rank);
    if (--self.pending > 0) return;
    self.exposed += now_ - self.computed;
    schedule(now_ + slowness(rank, self.step) * job_.update, EventKind::kUpdated, rank, 0);
  }

  void updated(int rank) {
    const Transfer& transfer = job_.transfer;
    const int steps = at(rank).step + 1;
    if (transfer.every > 0 && steps % transfer.every == 0)
      schedule(now_ + job_.overhead, EventKind::kReady, transfer_run(steps / transfer.every - 1), rank);
    at(rank).computed = now_;  // a wait for a transfer is exposed, too
    go_on(rank);
  }

  // Begins the next step, unless a transfer must come first.
  void go_on(int rank) {
    Rank& self = at(rank);
    const int steps = self.step + 1;
    const int due =
        job_.transfer.every > 0 ? std::max(0, steps - job_.transfer.wait) / job_.transfer.every : 0;
    self.waits = self.transfers_done < due;
    if (self.waits) return;
    self.exposed += now_ - self.computed;
    double& end = outcome_.step_ends[static_cast<std::size_t>(self.step)];
    end = std::max(end, now_);
    if (++self.step < job_.steps) begin_step(rank);
  }

  // --- buckets ---

  BucketRun& find(int run) {
    std::unique_ptr<BucketRun>& found = runs_[run];
    if (found == nullptr) {
      const bool is_transfer = run % 2 == 1;
      const int number = run / 2;
      const Program& program = is_transfer
                                   ? job_.transfer.program
                                   : job_.buckets[static_cast<std::size_t>(number % buckets())].program;
      // A bucket waits for its gradients, for the first stage of the one before, and until few others are
      // under way.
      const int gates = 1 + (number > 0 ? 1 : 0) + (!is_transfer && number >= job_.at_once ? 1 : 0);
      found = std::make_unique<BucketRun>(program, groups_, gates);
    }
    return *found;
  }

  void open_gate(int run, int rank) {
    BucketRun& bucket = find(run);
    if (!bucket.open_gate(rank)) return;
    if (bucket.stages() > 0) return arrive(run, bucket, {0, 0, 0}, rank);
    if (run % 2 == 0) open_next(run, rank);
    run_done(run, bucket, rank);
  }

  // Opens the gate of the bucket after this one.
  void open_next(int run, int rank) {
    if (run / 2 + 1 < job_.steps * buckets()) open_gate(run + 2, rank);
  }

  // The rank is ready for the stage, or for a later one if it takes no part in it.
  void arrive(int run, BucketRun& bucket, BucketRun::Task task, int rank) {
    while (task.stage < bucket.stages()) {
      task.group = groups_.group_of(bucket.stage(task), rank);
      if (task.group >= 0) break;
      ++task.stage;
    }
    if (task.stage < bucket.stages()) {
      if (bucket.arrive(task)) begin(run, bucket, task);
      return;
    }
    if (bucket.finish_chunk(rank)) run_done(run, bucket, rank);
  }

  // The rank has all of the bucket. The last rank ends the bucket, and nobody touches it after that.
  void run_done(int run, BucketRun& bucket, int rank) {
    if (bucket.finish_rank()) runs_.erase(run);
    const int number = run / 2;
    if (run % 2 == 0) {
      if (number + job_.at_once < job_.steps * buckets()) open_gate(run + 2 * job_.at_once, rank);
      return part_done(rank);
    }
    if (number + 1 < job_.steps / job_.transfer.every) open_gate(run + 2, rank);
    ++at(rank).transfers_done;
    if (at(rank).waits) go_on(rank);
  }

  // --- tasks ---

  void begin(int run, const BucketRun& bucket, const BucketRun::Task& task) {
    const Stage& stage = bucket.stage(task);
    const double latency =
        stage.kind == Stage::Kind::kLink ? stage.messages * job_.cluster.levels[stage.level].link.latency : 0;
    schedule(now_ + latency, EventKind::kBegun, run, bucket.number(task));
  }

  void send(int run, std::int64_t number) {
    BucketRun& bucket = find(run);
    const BucketRun::Task task = bucket.task(number);
    const Stage& stage = bucket.stage(task);
    const double bytes = stage.bytes / bucket.program().chunks;
    const std::vector<Groups::Share> shares = groups_.shares(stage, task.group);
    if (bytes == 0 || std::isinf(groups_.ends()[static_cast<std::size_t>(shares.front().end)]))
      return reduce(run, bucket, number);
    bucket.begin_transfers(number, static_cast<int>(shares.size()));
    const std::int64_t owner = (std::int64_t{run} << 32U) | number;
    for (const Groups::Share& share : shares) {
      ends_[static_cast<std::size_t>(share.end)].add(now_, owner, bytes, share.weight);
      watch(share.end);
    }
  }

  void watch(int end) {
    const LinkEnd& link = ends_[static_cast<std::size_t>(end)];
    if (link.next_end() != kNever)
      schedule(link.next_end(), EventKind::kEnd, end, static_cast<std::int64_t>(link.version()));
  }

  void end_transfer(int end, std::uint64_t version) {
    LinkEnd& link = ends_[static_cast<std::size_t>(end)];
    if (link.version() != version) return;
    const std::int64_t owner = link.finish(now_);
    watch(end);
    const auto run = static_cast<int>(owner >> 32U);
    const std::int64_t number = owner & 0xffffffff;
    BucketRun& bucket = find(run);
    if (bucket.finish_transfer(number)) reduce(run, bucket, number);
  }

  void reduce(int run, const BucketRun& bucket, std::int64_t number) {
    const Stage& stage = bucket.stage(bucket.task(number));
    const double time = stage.kind == Stage::Kind::kLink ? stage.reduced / bucket.program().chunks *
                                                               job_.cluster.levels[stage.level].link.reduce
                                                         : 0;
    schedule(now_ + time, EventKind::kTaskDone, run, number);
  }

  void task_done(int run, std::int64_t number) {
    BucketRun& bucket = find(run);
    const BucketRun::Task task = bucket.task(number);
    if (task.chunk + 1 < bucket.program().chunks) {
      const BucketRun::Task next{task.chunk + 1, task.stage, task.group};
      if (bucket.arrive(next)) begin(run, bucket, next);
    }
    const bool last_of_first = task.stage == 0 && task.chunk + 1 == bucket.program().chunks;
    for (const int rank : groups_.members(bucket.stage(task), task.group)) {
      if (last_of_first && run % 2 == 0) open_next(run, rank);
      arrive(run, bucket, {task.chunk, task.stage + 1, 0}, rank);
    }
  }

  void finish() {
    outcome_.symmetric = symmetric_;
    outcome_.seconds = outcome_.step_ends.back();
    for (const Rank& rank : ranks_) outcome_.exposed += rank.exposed / static_cast<double>(ranks_.size());
    for (std::size_t level = 0; level < job_.cluster.levels.size(); ++level) {
      double bytes = 0, busy = 0;
      for (int end = groups_.first_end(level); end < groups_.first_end(level + 1); ++end) {
        bytes = std::max(bytes, ends_[static_cast<std::size_t>(end)].bytes());
        busy = std::max(busy, ends_[static_cast<std::size_t>(end)].busy());
      }
      outcome_.bytes.push_back(bytes);
      outcome_.busy.push_back(busy);
    }
  }

  const Job& job_;
  bool symmetric_;
  Groups groups_;
  std::vector<Rank> ranks_;
  std::vector<LinkEnd> ends_{};
  std::map<int, std::unique_ptr<BucketRun>> runs_{};
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_{};
  std::uint64_t numbers_ = 0;
  double now_ = 0;
  Outcome outcome_{};
};

}  // namespace

Outcome simulate(const Job& job) { return Simulation(job).run(); }

}  // namespace roundelay::model
