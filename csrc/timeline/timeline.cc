#include "timeline/timeline.h"

#include <algorithm>
#include <utility>

#include "timeline/json.h"

namespace roundelay::timeline {
namespace {

constexpr std::size_t kLongestName = 2048;
constexpr std::size_t kTextPerEvent = 64;  // bytes of names in the buffer for each event of its capacity

// Cuts between characters, so that the text stays UTF-8.
std::string_view shorten(std::string_view name) {
  if (name.size() <= kLongestName) return name;
  std::size_t end = kLongestName;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0U) == 0x80U) --end;
  return name.substr(0, end);
}

}  // namespace

void Timeline::start(bool mark_cycles) {
  MutexLock lock(mutex_);
  recorded_.events.reserve(capacity_);
  recorded_.text.reserve(capacity_ * kTextPerEvent);
  recorded_.names_due = true;
  mark_cycles_.store(mark_cycles, std::memory_order_relaxed);
  enabled_.store(true, std::memory_order_relaxed);
}

void Timeline::stop() {
  MutexLock lock(mutex_);
  enabled_.store(false, std::memory_order_relaxed);
}

void Timeline::push(Event event, std::span<const std::string_view> texts) {
  MutexLock lock(mutex_);
  if (!enabled()) return;
  std::size_t bytes = 0;
  for (const std::string_view text : texts) bytes += shorten(text).size();
  if (recorded_.events.size() >= capacity_ || recorded_.text.size() + bytes > capacity_ * kTextPerEvent) {
    if (recorded_.dropped++ == 0) recorded_.first_drop = event.times[0];
    return;
  }
  event.text = static_cast<std::uint32_t>(recorded_.text.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string_view text = shorten(texts[i]);
    recorded_.text.insert(recorded_.text.end(), text.begin(), text.end());
    event.lengths[i] = static_cast<std::uint16_t>(text.size());
  }
  recorded_.events.push_back(event);
}

void Timeline::record_span(Row row, std::string_view name, TimePoint begin, TimePoint end,
                           std::uint64_t bytes) {
  if (!enabled()) return;
  Event event;
  event.kind = Kind::kSpan;
  event.row = row;
  event.bytes = bytes;
  event.times = {nanoseconds(begin), nanoseconds(end)};
  push(event, {&name, 1});
}

void Timeline::record_collective(const CollectiveSpan& span) {
  if (!enabled()) return;
  Event event;
  event.kind = Kind::kCollective;
  event.row = span.row;
  event.operation = span.operation;
  event.dtype = span.dtype;
  event.order = span.order;
  event.index = span.index;
  event.tensors = span.tensors;
  event.bytes = span.bytes;
  event.called_bytes = span.called_bytes;
  event.times = {nanoseconds(span.begin), nanoseconds(span.end)};
  std::array<std::string_view, kTexts> texts{};
  std::copy(span.names.begin(), span.names.end(), texts.begin());
  texts[CollectiveSpan::kShownNames] = span.algorithm;
  texts.back() = span.technique;
  push(event, texts);
}

void Timeline::record_tensor(std::string_view name, const TensorTimes& times) {
  if (!enabled()) return;
  Event event;
  event.kind = Kind::kTensor;
  const auto reached = [&](TimePoint when) { return when == TimePoint{} ? times.completed : when; };
  event.times = {nanoseconds(times.submitted), nanoseconds(reached(times.ordered)),
                 nanoseconds(reached(times.started)), nanoseconds(times.completed)};
  push(event, {&name, 1});
}

void Timeline::record_gradient(const GradientMark& gradient, TimePoint at) {
  if (!enabled()) return;
  Event event;
  event.kind = Kind::kGradient;
  event.row = Row::kTraining;
  event.order = gradient.elements;
  event.bytes = gradient.bytes;
  event.called_bytes = gradient.rows;
  event.times = {nanoseconds(at)};
  push(event, {&gradient.name, 1});
}

void Timeline::record_ready(std::string_view name, int last_rank, Duration waited, TimePoint at) {
  if (!enabled()) return;
  Event event;
  event.kind = Kind::kReady;
  event.row = Row::kNegotiation;
  event.rank = last_rank;
  event.times = {nanoseconds(at), waited.count()};
  push(event, {&name, 1});
}

void Timeline::record_order(std::uint64_t sequence, TimePoint at) {
  if (!enabled() || !mark_cycles_.load(std::memory_order_relaxed)) return;
  Event event;
  event.kind = Kind::kOrder;
  event.row = Row::kNegotiation;
  event.order = sequence;
  event.times = {nanoseconds(at)};
  push(event, {});
}

// Swaps the two buffers, so that nothing is allocated in the steady state. False if nothing was recorded.
bool Timeline::refill() {
  draining_.events.clear();
  draining_.text.clear();
  draining_.dropped = 0;
  draining_.names_due = false;
  next_ = 0;
  MutexLock lock(mutex_);
  if (recorded_.events.empty() && recorded_.dropped == 0 && !recorded_.names_due) return false;
  draining_.events.reserve(recorded_.events.capacity());
  draining_.text.reserve(recorded_.text.capacity());
  std::swap(recorded_, draining_);
  return true;
}

std::string Timeline::drain(std::size_t most) {
  JsonEvents out(rank_, offset_.load(std::memory_order_relaxed));
  while (out.size() < most) {
    if (next_ < draining_.events.size()) {
      format(draining_.events[next_++], out);
      continue;
    }
    if (!refill()) break;
    if (draining_.names_due) out.add_names();
    if (draining_.dropped > 0) out.dropped(draining_.first_drop, draining_.dropped);
  }
  return std::move(out).text();
}

void Timeline::format(const Event& event, JsonEvents& out) {
  std::array<std::string_view, kTexts> texts;
  std::size_t at = event.text;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    texts[i] = std::string_view(draining_.text.data() + at, event.lengths[i]);
    at += event.lengths[i];
  }
  const std::span<const std::string_view> names(texts.data(), CollectiveSpan::kShownNames);
  const auto& times = event.times;
  const int row = static_cast<int>(event.row);
  switch (event.kind) {
    case Kind::kSpan:
      out.complete(row, names[0], times[0], times[1]);
      if (event.bytes > 0) out.argument("bytes", event.bytes);
      return out.end();
    case Kind::kCollective:
      out.complete(row, name_of(event.operation), times[0], times[1]);
      out.argument("order", event.order);
      out.argument("index", event.index);
      out.argument("tensors", event.tensors);
      out.argument("bytes", event.bytes);
      out.argument("dtype", name_of(event.dtype));
      out.argument("names", names);
      if (const auto algorithm = texts[CollectiveSpan::kShownNames]; !algorithm.empty()) {
        out.argument("algorithm", algorithm);
      }
      if (!texts.back().empty()) {
        out.argument("technique", texts.back());
        out.argument("called_bytes", event.called_bytes);
      }
      return out.end();
    case Kind::kTensor:
      // Viewers nest the phases below the tensor by the order of the events.
      ++next_tensor_;
      out.async('b', next_tensor_, names[0], times[0]);
      out.async('n', next_tensor_, "submit", times[0]);
      out.async('b', next_tensor_, "negotiate", times[0]);
      out.async('e', next_tensor_, "negotiate", times[1]);
      out.async('b', next_tensor_, "queue", times[1]);
      out.async('e', next_tensor_, "queue", times[2]);
      out.async('b', next_tensor_, "execute", times[2]);
      out.async('e', next_tensor_, "execute", times[3]);
      out.async('n', next_tensor_, "complete", times[3]);
      return out.async('e', next_tensor_, names[0], times[3]);
    case Kind::kGradient:
      out.instant(row, "gradient", times[0]);
      out.argument("tensor", names[0]);
      out.argument("elements", event.order);
      out.argument("bytes", event.bytes);
      out.argument("rows", event.called_bytes);
      return out.end();
    case Kind::kReady:
      out.instant(row, "ready", times[0]);
      out.argument("tensor", names[0]);
      out.argument("last_rank", event.rank);
      out.argument_microseconds("waited_us", times[1]);
      return out.end();
    case Kind::kOrder:
      out.instant(row, "order", times[0]);
      out.argument("order", event.order);
      return out.end();
  }
}

}  // namespace roundelay::timeline
