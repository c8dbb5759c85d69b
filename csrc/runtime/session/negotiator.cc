#include "runtime/session/negotiator.h"

#include <algorithm>
#include <utility>

#include "wire/codec.h"

namespace roundelay::runtime {
namespace {

constexpr std::size_t kClockSamples = 8;

}  // namespace

Negotiator::Negotiator(channel::Channel& channel, int rank, int size, negotiate::CoordinatorOptions options,
                       NegotiationSink& sink)
    : channel_(channel), rank_(rank), size_(size), options_(options), sink_(sink), gpu_order_(size) {}

void Negotiator::add_lane(LaneId id, const Group& group, submit::TensorTable& table) {
  Lane lane{group,
            &table,
            negotiate::Participant(id, group.index),
            nullptr,
            {},
            negotiate::CoordinatorWatch(options_.stall_warning, options_.stall_abort),
            negotiate::Watchdog(group)};
  negotiate::CoordinatorOptions options = options_;
  options.schedule_lock = options.schedule_lock && table.can_lock();
  if (group.index == 0) lane.coordinator = std::make_unique<negotiate::Coordinator>(id, group, options);
  if (shares_gpus(id, lane)) tell_ticket_members(id, group.ranks);
  lanes_.emplace(id, std::move(lane));
}

void Negotiator::remove_lane(LaneId id) {
  const auto found = lanes_.find(id);
  if (found == lanes_.end()) return;
  if (shares_gpus(id, found->second) && !found->second.closed) tell_ticket_members(id, {});
  lanes_.erase(found);
}

void Negotiator::begin_removal(LaneId id) {
  if (const auto found = lanes_.find(id); found != lanes_.end()) found->second.participant.remove();
}

bool Negotiator::step(TimePoint now) {
  bool moved = receive_all(now);  // first: it takes back wake-ups, which may be meant for what comes next
  moved = run_tasks() || moved;
  moved = take_posted(now) || moved;
  if (aborted_) return moved;
  moved = report_news(now) || moved;
  moved = give_orders(now) || moved;
  watch_coordinators(now);
  watch_neighbours(now);
  give_up_asking(now);
  return check_watchdogs(now) || moved;
}

Deadline Negotiator::next_due() const {
  if (aborted_) return Deadline::never();
  Deadline due = Deadline::never();
  for (const auto& [rank, until] : asked_) due = due.sooner(until);
  for (const auto& [id, lane] : lanes_) {
    due = due.sooner(lane.watchdog.next_due());
    if (lane.closed) continue;
    due = due.sooner(lane.watch.next_due());
    due = due.sooner(lane.neighbour_watch.next_due());
    if (lane.coordinator) due = due.sooner(lane.coordinator->next_due());
  }
  return due;
}

bool Negotiator::run_tasks() {
  std::vector<std::function<void()>> tasks;
  std::vector<LaneId> flushes;
  {
    MutexLock lock(posted_mutex_);
    tasks.swap(tasks_);
    flushes.swap(flushes_);
  }
  for (const auto& task : tasks) task();
  for (const LaneId id : flushes) {
    if (const auto found = lanes_.find(id); found != lanes_.end()) found->second.flush = true;
  }
  return !tasks.empty();
}

bool Negotiator::receive_all(TimePoint now) {
  bool moved = false;
  while (auto incoming = channel_.receive()) {
    moved = true;
    if (!incoming->lost.ok()) {
      on_lost(incoming->from, incoming->lost);
      continue;
    }
    Result<wire::Message> message = wire::decode(incoming->bytes);
    if (!message.ok()) {
      abort(
          {incoming->from, "rank " + std::to_string(incoming->from) + " sent rank " + std::to_string(rank_) +
                               " a message that cannot be read: " + message.status().message()},
          rank_);
      continue;
    }
    dispatch(incoming->from, std::move(message).value(), now);
  }
  return moved;
}

void Negotiator::dispatch(int from, wire::Message message, TimePoint now) {
  for (auto& [id, lane] : lanes_) {
    if (awaited_by(lane) == from) lane.watch.on_heard(now);
  }
  if (auto* report = std::get_if<wire::Report>(&message)) {
    on_report(from, *report, now);
  } else if (auto* order = std::get_if<wire::Order>(&message)) {
    on_order(*order);
  } else if (auto* fault = std::get_if<wire::Abort>(&message)) {
    abort(*fault, from);
  } else if (auto* stuck = std::get_if<wire::Stuck>(&message)) {
    on_stuck(from, *stuck, now);
  } else if (auto* ping = std::get_if<wire::Ping>(&message)) {
    send(from, wire::Pong{ping->token, ping->sent, nanoseconds(now)});
  } else if (auto* pong = std::get_if<wire::Pong>(&message)) {
    on_pong(from, *pong);
  } else if (auto* chunk = std::get_if<wire::TimelineChunk>(&message)) {
    sink_.timeline_chunk(std::move(*chunk));
  } else if (auto* to = std::get_if<wire::TimelineSwitch>(&message)) {
    sink_.timeline_switch(*to);
  } else if (std::holds_alternative<wire::StateQuestion>(message)) {
    sink_.state_asked(from);
  } else if (auto* state = std::get_if<wire::StateAnswer>(&message)) {
    on_state(from, state->text);
  } else if (!aborted_) {
    dispatch_tickets(from, message);
  }
}

void Negotiator::on_report(int from, const wire::Report& report, TimePoint now) {
  const auto found = lanes_.find(report.lane);
  if (aborted_ || found == lanes_.end() || !found->second.coordinator) return;
  Lane& lane = found->second;
  for (int member = 0; member < lane.group.size(); ++member) {
    if (lane.group.ranks[static_cast<std::size_t>(member)] != from) continue;
    if (Status s = lane.coordinator->on_report(member, report, now); !s.ok())
      abort({from, s.message()}, rank_);
  }
}

void Negotiator::on_order(const wire::Order& order) {
  const auto found = lanes_.find(order.lane);
  if (aborted_ || found == lanes_.end()) return;
  Lane& lane = found->second;
  Result<negotiate::Applied> applied = lane.participant.apply(order);
  if (!applied.ok()) {
    abort({rank_, "rank " + std::to_string(rank_) + ": " + applied.status().message()}, rank_);
    return;
  }
  if (applied->freeze) lane.table->freeze();
  if (applied->unlock) {
    ++counters_.unlocks;
    sink_.unlock(order.lane, *applied->unlock);
    lane.flush = true;  // who waits for what was announced has asked for no flush
  }
  for (auto& execution : applied->operations) {
    sink_.execute(order.lane, order.sequence, std::move(execution));
  }
  settle_all(order.lane, std::move(applied->failed));
  if (applied->joined) sink_.joined(order.lane, *applied->joined);
  settle_all(order.lane, lane.participant.take_settled());
  if (applied->schedule) begin_schedule(lane, order.lane, order.sequence, std::move(*applied->schedule));
  lane.closed = applied->shut_down_by >= 0 || applied->removed;
  if (lane.closed) lane.watchdog.on_closed();
  if (applied->shut_down_by >= 0) sink_.rank_left(order.lane, applied->shut_down_by);
  if (applied->removed) sink_.removed(order.lane);
}

void Negotiator::begin_schedule(Lane& lane, LaneId id, std::uint64_t sequence, negotiate::Schedule schedule) {
  ++counters_.locks;
  lane.table->begin_schedule(schedule.number, schedule.operations, std::move(schedule.returned));
  sink_.locked(id, sequence);
}

// Under a lock the table keeps what is submitted, and only that it is frozen is news.
void Negotiator::take_uses(Lane& lane) {
  if (!lane.table->scheduled()) {
    lane.table->drain(drained_);
    for (const wire::Request& request : drained_) lane.participant.submit(request);
    return;
  }
  if (lane.participant.ends()) lane.table->freeze();
  if (const auto announced = lane.table->frozen_after()) lane.participant.freeze(*announced);
}

void Negotiator::settle_all(LaneId id, std::vector<negotiate::Settled> settled) {
  for (auto& s : settled) sink_.settle(id, std::move(s));
}

bool Negotiator::report_news(TimePoint now) {
  const bool flush = flush_.exchange(false, std::memory_order_acq_rel);
  const bool leave = leave_.load(std::memory_order_acquire);
  bool moved = false;
  if (leave) refuse_tickets();
  for (auto& [id, lane] : lanes_) {
    if (lane.closed) continue;
    if (leave) lane.participant.leave();
    take_uses(lane);
    if (std::exchange(lane.flush, false) || flush) lane.participant.flush();
    auto settled = lane.participant.take_settled();
    moved = moved || !settled.empty();  // who waits for one of them must look again before it sleeps
    settle_all(id, std::move(settled));
    auto report = lane.participant.take_report();
    if (!report) continue;
    moved = true;
    ++counters_.reports;
    counters_.cached_requests += static_cast<std::int64_t>(report->cached.size());
    counters_.full_requests += static_cast<std::int64_t>(report->requests.size());
    const int coordinator = lane.group.ranks.front();
    if (coordinator == rank_) {
      on_report(rank_, *report, now);
    } else {
      send(coordinator, *report);
    }
  }
  return moved;
}

bool Negotiator::take_posted(TimePoint now) {
  std::deque<wire::Message> posted;
  {
    MutexLock lock(posted_mutex_);
    posted.swap(posted_);
  }
  for (wire::Message& message : posted) {
    if (auto* stuck = std::get_if<wire::Stuck>(&message)) {
      on_stuck(rank_, *stuck, now);
    } else if (auto* fault = std::get_if<wire::Abort>(&message)) {
      abort(*fault, rank_);
    } else if (auto* chunk = std::get_if<wire::TimelineChunk>(&message)) {
      if (rank_ == 0) {
        sink_.timeline_chunk(std::move(*chunk));
      } else {
        send(0, message);
      }
    } else {
      for (int rank = 0; rank < size_; ++rank) {
        if (rank != rank_) send(rank, message);
      }
    }
  }
  return !posted.empty();
}

void Negotiator::measure_clock(TimePoint now) {
  clock_samples_.clear();
  if (rank_ != 0) send(0, wire::Ping{1, nanoseconds(now)});
}

void Negotiator::on_pong(int from, const wire::Pong& pong) {
  for (auto& [id, lane] : lanes_) lane.watchdog.on_sign_of_life(from);
  if (pong.token == 0) return;
  const TimePoint now = steady_now();
  clock_samples_.push_back({pong.sent, pong.here, nanoseconds(now)});
  if (clock_samples_.size() < kClockSamples) {
    send(0, wire::Ping{pong.token + 1, nanoseconds(now)});
  } else if (const auto offset = timeline::estimate(clock_samples_)) {
    sink_.clock_offset(offset->offset);
  }
}

void Negotiator::on_lost(int from, const Status& why) {
  if (from == 0) tickets_over_ = true;
  if (!shares_open_lane(from)) return;  // it has left: a closed connection is what we expect
  abort({from, "rank " + std::to_string(from) + " is gone: " + why.message() +
                   "; its process ended or its host is unreachable: look for its own last message"},
        rank_);
}

void Negotiator::abort(const wire::Abort& cause, int heard_from) {
  if (std::exchange(aborted_, true)) return;
  // Through rank 0, so that everyone hears of it once; whoever cannot reach rank 0 sees that by itself. When
  // rank 0 has left, a smaller set's ranks tell each other.
  const bool through_rank_0 = rank_ != 0 && shares_open_lane(0);
  for (int rank = 0; rank < size_; ++rank) {
    // The culprit too: stopped, it reads it when it goes on; gone, nothing is sent.
    const bool tell =
        rank != rank_ && rank != heard_from && (through_rank_0 ? rank == 0 : shares_open_lane(rank));
    if (tell) send(rank, cause);
  }
  sink_.abort(Status::aborted(cause.text));
}

void Negotiator::send(int to, const wire::Message& message) {
  const Bytes bytes = wire::encode(message);
  ++counters_.messages_sent;
  counters_.message_bytes += static_cast<std::int64_t>(bytes.size());
  // A peer that is gone is reported by receive(), with the reason: nothing to add here.
  const Status sent = channel_.send(to, bytes);
  if (sent.code() == StatusCode::kInvalidArgument) {
    abort({rank_, "rank " + std::to_string(rank_) + " cannot send a control message: " + sent.message()},
          rank_);
  }
}

bool Negotiator::shares_open_lane(int rank) const {
  return std::any_of(lanes_.begin(), lanes_.end(), [rank](const auto& entry) {
    const Lane& lane = entry.second;
    return !lane.closed && std::binary_search(lane.group.ranks.begin(), lane.group.ranks.end(), rank);
  });
}

std::size_t Negotiator::outstanding() const {
  std::size_t sum = 0;
  for (const auto& [id, lane] : lanes_) {
    sum += lane.participant.outstanding() + (lane.coordinator ? lane.coordinator->waiting() : 0);
  }
  return sum;
}

void Negotiator::request_flush(LaneId lane) {
  MutexLock lock(posted_mutex_);
  if (std::find(flushes_.begin(), flushes_.end(), lane) == flushes_.end()) flushes_.push_back(lane);
}

void Negotiator::post(std::function<void()> task) {
  MutexLock lock(posted_mutex_);
  tasks_.push_back(std::move(task));
}

void Negotiator::answer_state(int to, std::string text) {
  post([this, to, text = std::move(text)] {
    if (to == rank_) {
      on_state(rank_, text);
    } else {
      send(to, wire::StateAnswer{text});
    }
  });
}

void Negotiator::report_stuck(wire::Stuck stuck) {
  MutexLock lock(posted_mutex_);
  posted_.emplace_back(std::move(stuck));
}

void Negotiator::report_fault(wire::Abort abort) {
  MutexLock lock(posted_mutex_);
  posted_.emplace_back(std::move(abort));
}

void Negotiator::post_timeline(wire::TimelineChunk chunk) {
  MutexLock lock(posted_mutex_);
  posted_.emplace_back(std::move(chunk));
}

void Negotiator::post_timeline(wire::TimelineSwitch to) {
  MutexLock lock(posted_mutex_);
  posted_.emplace_back(to);
}

}  // namespace roundelay::runtime
