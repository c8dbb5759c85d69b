#include "compress/registry.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compress/loader.h"

// One line for each technique: the name of its folder and its namespace.
#define ROUNDELAY_TECHNIQUES(USE) \
  USE(csc)                        \
  USE(half)                       \
  USE(allreduce)                  \
  USE(top_k)                      \
  USE(quantised)                  \
  USE(power_sgd)

namespace roundelay::compress {

#define ROUNDELAY_DECLARE(folder)        \
  namespace folder {                     \
  extern const TechniqueKind kTechnique; \
  }
ROUNDELAY_TECHNIQUES(ROUNDELAY_DECLARE)
#undef ROUNDELAY_DECLARE

#define ROUNDELAY_ADDRESS(folder) &folder::kTechnique,
constexpr std::array kKnown = {ROUNDELAY_TECHNIQUES(ROUNDELAY_ADDRESS)};
#undef ROUNDELAY_ADDRESS

namespace {

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

// Lists names for a message: "csc, half".
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

// A technique as a text names it.
struct Named {
  const TechniqueKind* kind = nullptr;
  std::string name;           // in the canonical text
  std::string_view settings;  // the rest of the text: empty, or from ':' on
};

Result<Named> named_in(std::span<const TechniqueKind* const> kinds, std::string_view name, Named named) {
  const auto found =
      std::find_if(kinds.begin(), kinds.end(), [&](const TechniqueKind* one) { return one->name == name; });
  if (found == kinds.end()) {
    return Status::invalid("there is no technique " + quoted(name) + "; known are " +
                           listed(kinds, [](const TechniqueKind* one) { return one->name; }));
  }
  named.kind = *found;
  return named;
}

Result<Named> named_in(const Library& library, std::string_view name, std::string_view settings) {
  Named named{nullptr, std::string(name) + "@" + library.fingerprint, settings};
  Result<Named> found = named_in(library.kinds, name, std::move(named));
  if (found.ok()) return found;
  return Status::invalid("the library " + quoted(library.file) + ": " + found.status().message());
}

bool is_file(std::string_view text) { return text.find('/') != text.npos || text.ends_with(".so"); }

// Finds what the text's first part names, or the first two: a file and a name in it.
Result<Named> find(std::string_view text) {
  const auto [first, rest] = split(text, ':');
  if (is_file(first)) {
    const Result<const Library*> library = open_library(first);
    if (!library.ok()) return library.status();
    const std::string_view name = split(rest, ':').first;
    return named_in(**library, name, rest.substr(name.size()));
  }
  const std::string_view settings = text.substr(first.size());
  const auto [name, fingerprint] = split(first, '@');
  if (fingerprint.empty()) return named_in(kKnown, first, {nullptr, std::string(first), settings});
  const Library* const library = opened_library(fingerprint);
  if (library != nullptr) return named_in(*library, name, settings);
  return Status::invalid("technique " + quoted(first) +
                         " is of a library that this process has not opened: " +
                         "give the library's file, as in library.so:" + std::string(name));
}

std::string text_of(const Named& named, std::span<const Value> values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Parameter& parameter = named.kind->parameters[i];
    const std::string value = compress::text_of(values[i]);
    if (value.empty() || (parameter.omits_standard && values[i] == standard_of(parameter))) continue;
    text += (text.empty() ? ":" : ",") + std::string(parameter.key) + "=" + value;
  }
  return named.name + text;
}

}  // namespace

std::span<const TechniqueKind* const> known_techniques() { return kKnown; }

Result<TechniquePtr> make_technique(std::string_view text) {
  const Result<Named> named = find(text);
  if (!named.ok()) return named.status();
  const TechniqueKind& kind = *named->kind;
  std::vector<Value> values;
  for (const Parameter& parameter : kind.parameters) values.push_back(standard_of(parameter));
  std::vector<std::string_view> given;
  std::string_view left = named->settings;
  while (!left.empty()) {  // begins with ':' or ','
    const std::string_view setting = split(left.substr(1), ',').first;
    ROUNDELAY_RETURN_IF_ERROR(take_setting(kind, setting, values, given));
    left = left.substr(1 + setting.size());
  }
  const std::string canonical = text_of(*named, values);
  TechniquePtr made = kind.make(values, canonical);
  // Ranks compare texts: one without the fingerprint would let different libraries work together.
  if (made == nullptr || made->text() != canonical) {
    return Status::invalid("technique " + quoted(kind.name) + " is wrong: it was made for the text " +
                           quoted(canonical) + ", and its text() is " +
                           (made == nullptr ? "none" : quoted(made->text())));
  }
  return made;
}

}  // namespace roundelay::compress
