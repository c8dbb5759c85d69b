// What a lane counts of its work, and tells the timeline.
#include <algorithm>

#include "runtime/lane/lane.h"

namespace roundelay::runtime {

void Lane::record(const Batch& batch, TimePoint reduced) {
  if (batch.pieces.empty()) return;
  const std::size_t bytes = batch.bytes();
  const auto tensors = static_cast<std::uint32_t>(batch.pieces.size());
  counters_.operations += 1;
  counters_.tensors += tensors;
  counters_.bytes += static_cast<std::int64_t>(bytes);
  if (tensors > 1) counters_.fused_tensors += tensors;
  if (batch.on_gpu()) counters_.gpu_operations += 1;
  if (!timeline_.enabled()) return;
  record_copy(batch, "unpack", reduced);
  record_collective(batch, batch.on_gpu() ? timeline::Track::kEnqueue : timeline::Track::kCollective,
                    batch.started, reduced);
}

// One that ends now. On a GPU copies are enqueued, as all the rest.
void Lane::record_copy(const Batch& batch, std::string_view what, TimePoint begin) {
  if (!timeline_.enabled() || batch.fusion == nullptr || batch.on_gpu()) return;
  timeline_.record_span(timeline::Track::kCopy, what, begin, steady_now(), batch.bytes());
}

void Lane::record_collective(const Batch& batch, timeline::Track track, TimePoint begin, TimePoint end) {
  timeline::CollectiveSpan span{.track = track,
                                .operation = batch.request().operation,
                                .dtype = batch.pieces.front().dtype(),
                                .order = batch.sequence,
                                .index = batch.index,
                                .tensors = static_cast<std::uint32_t>(batch.pieces.size()),
                                .bytes = batch.bytes(),
                                .names = {},
                                .begin = begin,
                                .end = end};
  for (std::size_t i = 0; i < std::min(batch.entries.size(), span.names.size()); ++i) {
    span.names[i] = batch.entries[i]->request.name;
  }
  timeline_.record_collective(span);
}

void Lane::record_on_device(const Batch& batch) {
  if (!batch.device_ended.point || batch.pieces.empty()) return;
  const auto span = gpu_->clock().between(batch.device_began, batch.device_ended);
  if (span) record_collective(batch, timeline::Track::kGpu, span->begin, span->end);
}

void Lane::add_counters(LaneCounters& sum) const {
  sum.add(counters_);
  if (!fabric_work_) return;
  sum.bytes_staged += fabric_work_->bytes_staged;
  sum.sleeps += fabric_work_->sleeps;
  sum.wakes += fabric_work_->wakes;
}

}  // namespace roundelay::runtime
