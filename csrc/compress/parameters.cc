#include "compress/parameters.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>

namespace roundelay::compress {
namespace {

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

// Returns the number that the whole text is.
template <typename Number>
std::optional<Number> number_in(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <typename Number>
std::string shortest(Number value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), error == std::errc{} ? end : text.data()};
}

std::optional<Value> parse_whole(const Whole& whole, std::string_view text) {
  const auto value = number_in<std::int64_t>(text);
  if (!value || *value < whole.least || *value > whole.most) return std::nullopt;
  return *value;
}

std::optional<Value> parse_real(const Real& real, std::string_view text) {
  const auto value = number_in<double>(text);
  if (!value) return std::nullopt;
  const bool large = real.above_least ? *value > real.least : *value >= real.least;
  const bool small = real.below_most ? *value < real.most : *value <= real.most;
  if (!large || !small) return std::nullopt;  // a NaN is neither
  return *value + 0.0;                        // -0 becomes 0
}

std::optional<Value> parse_word(const Word& choice, std::string_view text) {
  const auto found = std::find(choice.words.begin(), choice.words.end(), text);
  if (found == choice.words.end()) return std::nullopt;
  return *found;
}

std::optional<Value> parse_numbers(std::string_view text) {
  std::vector<std::uint32_t> numbers;
  while (true) {
    const std::size_t end = text.find('+');
    const auto number = number_in<std::uint32_t>(text.substr(0, end));
    if (!number) return std::nullopt;
    numbers.push_back(*number);
    if (end == std::string_view::npos) return numbers;
    text.remove_prefix(end + 1);
  }
}

std::optional<Value> parse_indices(std::string_view text) {
  std::optional<Value> value = parse_numbers(text);
  if (!value) return std::nullopt;
  const auto& indices = std::get<std::vector<std::uint32_t>>(*value);
  const auto descent = std::adjacent_find(indices.begin(), indices.end(), std::greater_equal());
  return descent == indices.end() ? value : std::nullopt;
}

std::string range_of(const Real& real) {
  return (real.above_least ? "above " : "of at least ") + shortest(real.least) +
         (real.below_most ? " and below " : " and at most ") + shortest(real.most);
}

std::string words_of(const Word& choice) {
  std::string text;
  for (const std::string_view word : choice.words) text += (text.empty() ? "" : ", ") + std::string(word);
  return text;
}

}  // namespace

Value standard_of(const Parameter& parameter) {
  return std::visit(Overloaded{[](const Whole& whole) -> Value { return whole.standard; },
                               [](const Real& real) -> Value { return real.standard; },
                               [](const Word& choice) -> Value { return choice.words.front(); },
                               [](const Indices&) -> Value { return std::vector<std::uint32_t>(); },
                               [](const Numbers&) -> Value { return std::vector<std::uint32_t>(); }},
                    parameter.takes);
}

std::optional<Value> parse(const Parameter& parameter, std::string_view text) {
  return std::visit(Overloaded{[&](const Whole& whole) { return parse_whole(whole, text); },
                               [&](const Real& real) { return parse_real(real, text); },
                               [&](const Word& choice) { return parse_word(choice, text); },
                               [&](const Indices&) { return parse_indices(text); },
                               [&](const Numbers&) { return parse_numbers(text); }},
                    parameter.takes);
}

std::string taken_by(const Parameter& parameter) {
  return std::visit(
      Overloaded{[](const Whole& whole) {
                   return "a whole number from " + shortest(whole.least) + " to " + shortest(whole.most);
                 },
                 [](const Real& real) { return "a number " + range_of(real); },
                 [](const Word& choice) { return "one of " + words_of(choice); },
                 [](const Indices&) { return std::string("ascending indices, such as 0+3+17"); },
                 [](const Numbers&) { return std::string("whole numbers, such as 9+0+9"); }},
      parameter.takes);
}

std::string text_of(const Value& value) {
  return std::visit(Overloaded{[](std::int64_t whole) { return shortest(whole); },
                               [](double real) { return shortest(real); },
                               [](std::string_view word) { return std::string(word); },
                               [](const std::vector<std::uint32_t>& numbers) {
                                 std::string text;
                                 for (const std::uint32_t number : numbers)
                                   text += (text.empty() ? "" : "+") + shortest(number);
                                 return text;
                               }},
                    value);
}

}  // namespace roundelay::compress
