#include "gradients/step_groups.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "gradients/bucket.h"

namespace roundelay::gradients {
namespace {

constexpr int kMostFilled = 255;  // a byte of a round says how often a group was submitted

}  // namespace

void StepGroups::set(Groups groups) {
  for (const auto& group : groups_) {
    if (!group->seen()) continue;
    for (const auto& gradient : group->gradients()) gradient->note_seen();
  }
  groups_ = std::move(groups);
}

Status StepGroups::submit_overdue(int passes, bool by_hand) {
  for (const auto& group : groups_) ROUNDELAY_RETURN_IF_ERROR(group->submit_overdue(passes, by_hand));
  return {};
}

void StepGroups::put_back() {
  for (const auto& group : groups_) group->put_back();
}

bool StepGroups::has_submitted() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const auto& group) { return group->filled() > 0 || group->any_ready(); });
}

bool StepGroups::outstanding() const {
  const auto in_flight = [](const auto& gradient) { return gradient->reductions() > 0; };
  return has_submitted() || std::any_of(groups_.begin(), groups_.end(), [&](const auto& group) {
           return std::any_of(group->gradients().begin(), group->gradients().end(), in_flight);
         });
}

void StepGroups::write(RoundValues& values) {
  for (const auto& group : groups_) {
    const int submitted = std::min(group->take_filled(), kMostFilled);
    values.submitted += static_cast<char>(submitted);
    values.kinds.append(group->kinds().begin(), group->kinds().end());
    // A group that was submitted counts as seen, and nobody asks who wants its gradients.
    for (const auto& gradient : group->gradients())
      values.wanted += static_cast<char>(submitted == 0 && gradient->wanted());
  }
}

void StepGroups::note(const RoundValues& merged) {
  complete_ = true;
  std::size_t first = 0;  // index of the group's first gradient
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const auto& gradients = groups_[g]->gradients();
    if (merged.submitted[g] != 0) groups_[g]->note_seen();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (merged.submitted[g] == 0 && merged.kinds[first + i] != 0) gradients[i]->note_seen();
      const bool missing = merged.wanted[first + i] != 0 && !gradients[i]->seen();
      complete_ = complete_ && (groups_[g]->seen() || !missing);
    }
    first += gradients.size();
  }
}

Result<bool> StepGroups::contribute(const RoundValues& merged, const std::string& submitted,
                                    SparseReducer& sparse) {
  bool lacking = false;
  std::size_t first = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    GradientGroup& group = *groups_[g];
    const auto others = static_cast<unsigned char>(merged.submitted[g]);
    for (int mine = static_cast<unsigned char>(submitted[g]); mine < others; ++mine) {
      ROUNDELAY_RETURN_IF_ERROR(group.submit_all());
      lacking = true;
    }
    const std::string_view kinds = std::string_view(merged.kinds).substr(first, group.gradients().size());
    if (kinds.find_first_not_of('\0') != std::string_view::npos) {
      ROUNDELAY_RETURN_IF_ERROR(group.submit_ready(kinds, sparse));
      lacking = true;
    }
    first += kinds.size();
  }
  return lacking;
}

Status StepGroups::finish() {
  std::set<GradientPool*> pools;
  for (const auto& group : groups_) {
    ROUNDELAY_RETURN_IF_ERROR(group->finish());
    if (const auto* const bucket = dynamic_cast<const Bucket*>(group.get())) pools.insert(&bucket->pool());
  }
  for (GradientPool* const pool : pools) ROUNDELAY_RETURN_IF_ERROR(pool->record_event());
  return {};
}

void StepGroups::abandon() {
  for (const auto& group : groups_) group->abandon();
}

void StepGroups::new_step() {
  for (const auto& group : groups_) group->new_step();
  complete_ = false;
}

std::vector<std::string> StepGroups::names_in_flight() const {
  std::set<std::string> names;
  for (const auto& group : groups_) {
    names.insert(group->names_in_flight().begin(), group->names_in_flight().end());
  }
  return {names.begin(), names.end()};
}

Status StepGroups::naming_gradients(const Status& error) const {
  constexpr int kShown = 6;
  std::string names;
  int number = 0;
  for (const auto& group : groups_) {
    for (const auto& gradient : group->gradients()) {
      if (gradient->reductions() == 0 || ++number > kShown) continue;
      names += (number == 1 ? "; with it '" : ", '") + gradient->name() + "'";
    }
  }
  if (number == 0) return error;
  if (number > kShown) names += " and " + std::to_string(number - kShown) + " more";
  return {error.code(), error.message() + names};
}

}  // namespace roundelay::gradients
