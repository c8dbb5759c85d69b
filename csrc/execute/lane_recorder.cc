#include "execute/lane_recorder.h"

#include <algorithm>
#include <bit>

#include "base/log.h"

namespace roundelay::execute {

void LevelRecorder::busy(std::size_t level, std::string_view stages, TimePoint begin, TimePoint end) {
  timeline_.record_span(level == 0 ? inside_ : between_, stages, begin, end);
}

collective::LevelObserver* LaneRecorder::level_observer(const Batch& batch) {
  return timeline_.enabled() && !batch.on_gpu() ? &by_executor_[batch.executor] : nullptr;
}

void LaneRecorder::record(const Batch& batch) {
  if (batch.tensors.empty()) return;
  const std::size_t bytes = batch.bytes();
  const auto tensors = static_cast<std::uint32_t>(batch.tensors.size());
  counters_.operations += 1;
  counters_.tensors += tensors;
  counters_.bytes += static_cast<std::int64_t>(bytes);
  if (tensors > 1) counters_.fused_tensors += tensors;
  if (batch.on_gpu()) counters_.gpu_operations += 1;
  if (batch.technique() != nullptr) {
    counters_.technique_operations += 1;
    counters_.technique_bytes += static_cast<std::int64_t>(bytes);
    counters_.technique_called_bytes += static_cast<std::int64_t>(batch.called_bytes);
  }
  if (names_algorithms_ && log_enabled(LogLevel::kInfo)) name_algorithm(batch);
  if (!timeline_.enabled()) return;
  record_copy(batch, "unpack", batch.reduced);
  record_collective(batch, row_of(batch), batch.started, batch.reduced);
}

// Buckets repeat in every step: a message for each would hide all others.
void LaneRecorder::name_algorithm(const Batch& batch) {
  const wire::Request& request = batch.request();
  const std::string_view kind = name_of(request.operation);
  if (!named_.emplace(request.operation, std::bit_width(batch.bytes()), batch.algorithm).second) return;
  log(LogLevel::kInfo, std::string(kind) + " of " + std::to_string(batch.bytes()) + " bytes: algorithm " +
                           std::string(batch.algorithm));
}

timeline::Row LaneRecorder::row_of(const Batch& batch) {
  if (batch.on_gpu()) return timeline::Row::kEnqueue;
  return batch.executor == 0 ? timeline::Row::kCollective : timeline::Row::kSecondCollective;
}

void LaneRecorder::record_work(std::string_view name, TimePoint begin) {
  timeline_.record_span(timeline::Row::kCopy, name, begin, steady_now());
}

void LaneRecorder::record_call(const Batch& batch, std::string_view name) {
  timeline_.record_span(row_of(batch), name, batch.called, batch.reduced);
}

// On a GPU the lane enqueues copies with all the rest: it records none.
void LaneRecorder::record_copy(const Batch& batch, std::string_view what, TimePoint begin) {
  if (!timeline_.enabled() || batch.fusion == nullptr || batch.on_gpu()) return;
  timeline_.record_span(timeline::Row::kCopy, what, begin, steady_now(), batch.bytes());
}

void LaneRecorder::record_collective(const Batch& batch, timeline::Row row, TimePoint begin, TimePoint end) {
  timeline::CollectiveSpan span{.row = row,
                                .operation = batch.request().operation,
                                .dtype = batch.tensors.front().dtype(),
                                .order = batch.sequence,
                                .index = batch.index,
                                .tensors = batch.gradients(),
                                .bytes = batch.bytes(),
                                .names = {},
                                .algorithm = batch.algorithm,
                                .technique = {},
                                .called_bytes = batch.called_bytes,
                                .begin = begin,
                                .end = end};
  for (std::size_t i = 0; i < std::min(batch.entries.size(), span.names.size()); ++i) {
    span.names[i] = batch.entries[i]->request.name;
  }
  if (batch.technique() != nullptr) span.technique = batch.request().technique;
  timeline_.record_collective(span);
}

void LaneRecorder::record_on_device(const Batch& batch, gpu::DeviceClock& clock) {
  if (!batch.device_ended.point || batch.tensors.empty()) return;
  const auto span = clock.between(batch.device_began, batch.device_ended);
  if (span) record_collective(batch, timeline::Row::kGpu, span->begin, span->end);
}

void LaneRecorder::add_to(LaneCounters& sum) const {
  sum.add(counters_);
  for (const auto& counters : fabric_counters_) {
    sum.bytes_staged += counters->bytes_staged;
    sum.sleeps += counters->sleeps;
    sum.wakes += counters->wakes;
    sum.gpu_sums += counters->gpu_sums;
    sum.gpu_sum_bytes += counters->gpu_sum_bytes;
  }
}

}  // namespace roundelay::execute
