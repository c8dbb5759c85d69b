#include "collective/tuning/tuning.h"

#include <algorithm>
#include <cstdint>
#include <locale>
#include <optional>
#include <sstream>
#include <utility>

namespace roundelay::collective {
namespace {

std::optional<Operation> operation_named(std::string_view name) {
  for (int i = 0; i < kOperationCount; ++i) {
    if (kOperations[i].name == name) return static_cast<Operation>(i);
  }
  return std::nullopt;
}

bool read_link(std::istream& words, Tuning& tuning) {
  Tuning::Link link;
  words >> link.level >> link.alpha >> link.bandwidth >> link.gamma;
  if (!words || link.alpha < 0 || link.bandwidth <= 0 || link.gamma < 0) return false;
  tuning.links.push_back(std::move(link));
  return true;
}

bool read_choice(std::istream& words, Tuning& tuning) {
  Tuning::Choice choice;
  std::string operation;
  std::string most;
  words >> choice.level >> operation >> choice.members >> most >> choice.algorithm;
  const std::optional<Operation> known = operation_named(operation);
  if (!words || !known || choice.members < 2) return false;
  choice.operation = *known;
  choice.most_bytes = SIZE_MAX;
  if (most != "any") {
    std::istringstream number(most);
    number >> choice.most_bytes;
    if (!number || !number.eof()) return false;
  }
  tuning.table.push_back(std::move(choice));
  return true;
}

bool read_level(std::istream& words, Tuning& tuning) {
  Tuning::Level level;
  words >> level.name >> level.members;
  if (!words) return false;
  tuning.levels.push_back(std::move(level));
  return true;
}

bool read_line(const std::string& line, Tuning& tuning) {
  std::istringstream words(line);
  words.imbue(std::locale::classic());
  std::string kind;
  words >> kind;
  if (kind == "fabric") return static_cast<bool>(words >> tuning.fabric);
  if (kind == "level") return read_level(words, tuning);
  if (kind == "link") return read_link(words, tuning);
  return kind == "choice" && read_choice(words, tuning);
}

}  // namespace

Result<Tuning> Tuning::parse(std::string_view text) {
  Tuning tuning;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (!read_line(line, tuning)) return Status::invalid("the tuning has a bad line: " + line);
  }
  if (tuning.fabric.empty()) return Status::invalid("the tuning names no fabric");
  return tuning;
}

const Tuning::Link* Tuning::link(std::string_view level) const {
  const auto found =
      std::find_if(links.begin(), links.end(), [&](const Link& one) { return one.level == level; });
  return found == links.end() ? nullptr : &*found;
}

}  // namespace roundelay::collective
