#include "gradients/backward_end.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <exception>
#include <optional>

#include "adapter/process.h"
#include "adapter/waiting.h"
#include "timeline/timeline.h"

namespace roundelay::gradients {

BackwardEnd& backward_end() {
  static auto& end = *new BackwardEnd;  // never destroyed: hooks may run at exit
  return end;
}

int BackwardEnd::add(const std::shared_ptr<Listener>& listener) {
  if (began_ == TimePoint{}) began_ = steady_now();
  const int task = torch::autograd::get_current_graph_task_id();
  waiting_in(task).push_back(listener);
  return task;
}

void BackwardEnd::queue() {
  Waiting& waiting = waiting_in(torch::autograd::get_current_graph_task_id());
  waiting.insert(waiting.end(), inner_.begin(), inner_.end());
  inner_.clear();
}

// A task that is new has no callback yet. Compiled autograd has none, and ends by itself.
BackwardEnd::Waiting& BackwardEnd::waiting_in(int task) {
  const auto [found, is_new] = waiting_.try_emplace(task);
  if (is_new && task >= 0) engine_.queue(task);
  return found->second;
}

void BackwardEnd::end_span() {
  if (began_ == TimePoint{}) return;
  const TimePoint begin = std::exchange(began_, TimePoint{});
  const TimePoint end = steady_now();
  total_ += end - begin;
  if (const auto context = adapter::current_context(); context.ok() && (*context)->timeline().enabled())
    (*context)->timeline().record_span(timeline::Row::kTraining, "backward", begin, end);
}

Status BackwardEnd::ended(int task) {
  const Waiting ended = std::exchange(waiting_[task], {});
  waiting_.erase(task);
  if (torch::autograd::get_current_node() != nullptr) {  // this backward is not the outermost
    inner_.insert(inner_.end(), ended.begin(), ended.end());
    engine_.pass_on();
    return {};
  }
  Listeners listeners;
  for (const auto& one : ended) {
    auto listener = one.lock();
    if (listener && std::find(listeners.begin(), listeners.end(), listener) == listeners.end())
      listeners.push_back(std::move(listener));
  }
  std::sort(listeners.begin(), listeners.end(),
            [](const auto& a, const auto& b) { return a->order() < b->order(); });
  end_span();
  std::erase_if(listeners, [](const auto& listener) { return !listener->backward_ended(); });
  if (listeners.empty()) return {};
  const auto context = adapter::current_context();
  if (!context.ok()) return context.status();
  const adapter::Waiting waiting(**context);
  return complete(listeners);
}

// All rounds begin before the first is waited for, as ranks may use their optimizers in any order.
Status BackwardEnd::complete(const Listeners& listeners) {
  for (const auto& listener : listeners)
    ROUNDELAY_RETURN_IF_ERROR(listener->begin_round(false, listeners.size() == 1));
  Status failure;
  std::exception_ptr thrown;
  for (const auto& listener : listeners) {
    // The other listeners' gradients are in flight after a failure: wait for them.
    try {
      const Status done = listener->end_round();
      if (failure.ok() && !thrown) failure = done;
    } catch (...) {
      if (failure.ok() && !thrown) thrown = std::current_exception();
    }
  }
  if (thrown) std::rethrow_exception(thrown);
  return failure;
}

}  // namespace roundelay::gradients
