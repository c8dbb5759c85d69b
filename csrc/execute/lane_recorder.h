// Counts the operations of a lane, and records them in the timeline.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "collective/fabric.h"
#include "execute/batch.h"
#include "gpu/device_clock.h"
#include "timeline/timeline.h"

namespace roundelay::execute {

// Counts since the lane was made. Any thread may read.
struct LaneCounters {
  std::atomic<std::int64_t> operations{0}, tensors{0}, bytes{0}, fused_tensors{0}, locked_operations{0};
  std::atomic<std::int64_t> gpu_operations{0};
  // Count operations with a technique, their gradients' bytes, and the bytes that this member gave to the
  // fabric instead.
  std::atomic<std::int64_t> technique_operations{0}, technique_bytes{0}, technique_called_bytes{0};
  // The lane's fabrics count these (collective::FabricCounters). They stay 0 here; add_to() adds them to a
  // sum.
  std::atomic<std::int64_t> bytes_staged{0}, sleeps{0}, wakes{0}, gpu_sums{0}, gpu_sum_bytes{0};

  void add(const LaneCounters& other) {
    operations += other.operations;
    tensors += other.tensors;
    bytes += other.bytes;
    fused_tensors += other.fused_tensors;
    bytes_staged += other.bytes_staged;
    sleeps += other.sleeps;
    wakes += other.wakes;
    gpu_sums += other.gpu_sums;
    gpu_sum_bytes += other.gpu_sum_bytes;
    locked_operations += other.locked_operations;
    gpu_operations += other.gpu_operations;
    technique_operations += other.technique_operations;
    technique_bytes += other.technique_bytes;
    technique_called_bytes += other.technique_called_bytes;
  }
};

// Records when the calls of one executor were busy inside the nodes and between them.
class LevelRecorder final : public collective::LevelObserver {
 public:
  LevelRecorder(timeline::Timeline& timeline, timeline::Row inside, timeline::Row between)
      : timeline_(timeline), inside_(inside), between_(between) {}
  void busy(std::size_t level, std::string_view stages, TimePoint begin, TimePoint end) override;

 private:
  timeline::Timeline& timeline_;
  const timeline::Row inside_, between_;
};

// The holder of the lane's token calls the record functions. Any thread may call the others.
class LaneRecorder {
 public:
  using CountersOfFabrics = std::vector<std::shared_ptr<const collective::FabricCounters>>;

  // `timeline` outlives the recorder. `fabric_counters`: the counters of the lane's fabrics.
  // `names_algorithms`: this member logs the algorithms. One member does, because all use the same ones.
  LaneRecorder(timeline::Timeline& timeline, CountersOfFabrics fabric_counters, bool names_algorithms)
      : timeline_(timeline),
        fabric_counters_(std::move(fabric_counters)),
        names_algorithms_(names_algorithms) {}

  // Returns whether the timeline is on. It is one relaxed load.
  [[nodiscard]] bool has_timeline() const { return timeline_.enabled(); }
  // Returns this recorder if the batch's technique is to record spans, or null.
  [[nodiscard]] LaneRecorder* span_recorder(const Batch& batch) {
    return timeline_.enabled() && !batch.on_gpu() && batch.technique() != nullptr ? this : nullptr;
  }
  // Records a technique's own work, which ends now, and one of its calls, which is over.
  void record_work(std::string_view name, TimePoint begin);
  void record_call(const Batch& batch, std::string_view name);
  // Returns the observer of the batch's calls. Null: the timeline is off, or the batch is on a GPU, where
  // calls end before their work does. The recorder owns it.
  [[nodiscard]] collective::LevelObserver* level_observer(const Batch& batch);
  // Records the packing of a batch, from `begin` until now.
  void record_pack(const Batch& batch, TimePoint begin) { record_copy(batch, "pack", begin); }
  // Counts a batch that is done on the host and records its call and its unpacking, which ends now. Logs the
  // algorithm of the first batch of each operation and order of magnitude (power of 2).
  void record(const Batch& batch);
  // Records when the device carried out a batch on a GPU that is complete.
  void record_on_device(const Batch& batch, gpu::DeviceClock& clock);
  // Counts an operation that began by a locked schedule.
  void count_scheduled() { ++counters_.locked_operations; }

  [[nodiscard]] const LaneCounters& counters() const { return counters_; }
  // Adds the lane's counters and those of its fabrics.
  void add_to(LaneCounters& sum) const;

 private:
  void record_copy(const Batch& batch, std::string_view what, TimePoint begin);
  void name_algorithm(const Batch& batch);
  [[nodiscard]] static timeline::Row row_of(const Batch& batch);
  void record_collective(const Batch& batch, timeline::Row row, TimePoint begin, TimePoint end);

  timeline::Timeline& timeline_;
  const CountersOfFabrics fabric_counters_;
  const bool names_algorithms_;
  std::set<std::tuple<Operation, int, std::string>> named_;
  LaneCounters counters_;
  std::array<LevelRecorder, kExecutors> by_executor_{
      LevelRecorder(timeline_, timeline::Row::kInside, timeline::Row::kBetween),
      LevelRecorder(timeline_, timeline::Row::kSecondInside, timeline::Row::kSecondBetween)};
};

}  // namespace roundelay::execute
