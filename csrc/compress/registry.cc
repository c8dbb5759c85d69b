#include "compress/registry.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// One line for each technique: the name of its folder and its namespace.
#define ROUNDELAY_TECHNIQUES(USE) \
  USE(negate)                     \
  USE(cyclic)                     \
  USE(csc)                        \
  USE(half)                       \
  USE(allreduce)                  \
  USE(top_k)                      \
  USE(power_sgd)

namespace roundelay::compress {

#define ROUNDELAY_DECLARE(folder)        \
  namespace folder {                     \
  extern const TechniqueKind kTechnique; \
  }
ROUNDELAY_TECHNIQUES(ROUNDELAY_DECLARE)
#undef ROUNDELAY_DECLARE

namespace {

#define ROUNDELAY_ADDRESS(folder) &folder::kTechnique,
constexpr std::array kKnown = {ROUNDELAY_TECHNIQUES(ROUNDELAY_ADDRESS)};
#undef ROUNDELAY_ADDRESS

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

// Lists names for a message: "negate, cyclic".
template <typename List, typename NameOf>
std::string listed(const List& list, NameOf name_of_one) {
  std::string text;
  for (const auto& one : list) text += (text.empty() ? "" : ", ") + std::string(name_of_one(one));
  return text;
}

std::string keys_of(const TechniqueKind& kind) {
  if (kind.parameters.empty()) return "it has no parameters";
  return "its keys are " + listed(kind.parameters, [](const Parameter& one) { return one.key; });
}

// Splits at the first `mark`. The second part is empty if there is none.
std::pair<std::string_view, std::string_view> split(std::string_view text, char mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + 1)};
}

// Sets the value that "key=value" names. `given`: the keys that came before.
Status take_setting(const TechniqueKind& kind, std::string_view setting, std::vector<Value>& values,
                    std::vector<std::string_view>& given) {
  const auto [key, value] = split(setting, '=');
  const auto found = std::find_if(kind.parameters.begin(), kind.parameters.end(),
                                  [&, wanted = key](const Parameter& one) { return one.key == wanted; });
  if (found == kind.parameters.end()) {
    return Status::invalid("technique " + quoted(kind.name) + " has no key " + quoted(key) + "; " +
                           keys_of(kind));
  }
  if (std::find(given.begin(), given.end(), key) != given.end()) {
    return Status::invalid("technique " + quoted(kind.name) + ": " + std::string(key) + " is given twice");
  }
  given.push_back(key);
  std::optional<Value> parsed = parse(*found, value);
  if (!parsed) {
    return Status::invalid("technique " + quoted(kind.name) + ": " + std::string(key) + "=" +
                           std::string(value) + " is not " + taken_by(*found));
  }
  values[static_cast<std::size_t>(found - kind.parameters.begin())] = *std::move(parsed);
  return {};
}

std::string text_of(const TechniqueKind& kind, std::span<const Value> values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Parameter& parameter = kind.parameters[i];
    const std::string value = compress::text_of(values[i]);
    if (value.empty() || (parameter.omits_standard && values[i] == standard_of(parameter))) continue;
    text += (text.empty() ? ":" : ",") + std::string(parameter.key) + "=" + value;
  }
  return std::string(kind.name) + text;
}

}  // namespace

std::span<const TechniqueKind* const> known_techniques() { return kKnown; }

Result<TechniquePtr> make_technique(std::string_view text) {
  const std::string_view name = split(text, ':').first;
  const auto found = std::find_if(kKnown.begin(), kKnown.end(), [&, wanted = name](const TechniqueKind* one) {
    return one->name == wanted;
  });
  if (found == kKnown.end()) {
    return Status::invalid("there is no technique " + quoted(name) + "; known are " +
                           listed(kKnown, [](const TechniqueKind* one) { return one->name; }));
  }
  const TechniqueKind& kind = **found;
  std::vector<Value> values;
  for (const Parameter& parameter : kind.parameters) values.push_back(standard_of(parameter));
  std::vector<std::string_view> given;
  std::string_view left = text.substr(name.size());
  while (!left.empty()) {  // begins with ':' or ','
    const std::string_view setting = split(left.substr(1), ',').first;
    ROUNDELAY_RETURN_IF_ERROR(take_setting(kind, setting, values, given));
    left = left.substr(1 + setting.size());
  }
  return kind.make(values, text_of(kind, values));
}

}  // namespace roundelay::compress
