#include "timeline/json.h"

#include <array>
#include <cstdio>
#include <utility>

namespace roundelay::timeline {
namespace {

constexpr std::array<std::string_view, 12> kRows = {
    "tensors", "training",     "copy",        "collective",    "negotiation",   "enqueue",
    "GPU",     "collective 2", "in the node", "between nodes", "in the node 2", "between nodes 2"};

}  // namespace

void JsonEvents::add_string(std::string_view value) {
  text_ += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\u%04x", static_cast<unsigned>(c));
      text_ += escaped.data();
    } else {
      text_ += c;
    }
  }
  text_ += '"';
}

void JsonEvents::add_microseconds(std::int64_t nanoseconds) {
  const bool negative = nanoseconds < 0;
  const std::uint64_t size =
      negative ? 0 - static_cast<std::uint64_t>(nanoseconds) : static_cast<std::uint64_t>(nanoseconds);
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "%s%llu.%03u", negative ? "-" : "",
                static_cast<unsigned long long>(size / 1000), static_cast<unsigned>(size % 1000));
  text_ += number.data();
}

void JsonEvents::open(char phase, int row, std::string_view name) {
  if (!text_.empty()) text_ += ",\n";
  text_ += R"({"ph":")";
  text_ += phase;
  text_ += R"(","pid":)" + std::to_string(rank_) + R"(,"tid":)" + std::to_string(row) + R"(,"name":)";
  add_string(name);
  arguments_ = false;
}

void JsonEvents::metadata(std::string_view kind, int row, std::string_view key, std::string_view value) {
  open('M', row, kind);
  argument(key, value);
  end();
}

void JsonEvents::add_names() {
  metadata("process_name", 0, "name", "rank " + std::to_string(rank_));
  open('M', 0, "process_sort_index");
  argument("sort_index", rank_);
  end();
  for (int row = 1; row < static_cast<int>(kRows.size()); ++row) {
    metadata("thread_name", row, "name", kRows[static_cast<std::size_t>(row)]);
    open('M', row, "thread_sort_index");
    argument("sort_index", row);
    end();
  }
}

void JsonEvents::dropped(std::int64_t at, std::uint64_t count) {
  instant(1, "dropped", at);
  argument("events", count);
  end();
}

void JsonEvents::async(char phase, std::uint64_t id, std::string_view name, std::int64_t at) {
  open(phase, 0, name);
  // Viewers match ids across processes: the rank is part of it.
  std::array<char, 64> rest{};
  std::snprintf(rest.data(), rest.size(), R"(,"cat":"tensor","id":"0x%x%010llx","ts":)",
                static_cast<unsigned>(rank_ + 1), static_cast<unsigned long long>(id));
  text_ += rest.data();
  add_microseconds(at + offset_);
  end();
}

void JsonEvents::complete(int row, std::string_view name, std::int64_t begin, std::int64_t end) {
  open('X', row, name);
  text_ += R"(,"ts":)";
  add_microseconds(begin + offset_);
  text_ += R"(,"dur":)";
  add_microseconds(end - begin);
}

void JsonEvents::instant(int row, std::string_view name, std::int64_t at) {
  open('i', row, name);
  text_ += R"(,"s":"t","ts":)";
  add_microseconds(at + offset_);
}

void JsonEvents::begin_argument(std::string_view key) {
  text_ += arguments_ ? "," : R"(,"args":{)";
  arguments_ = true;
  add_string(key);
  text_ += ':';
}

void JsonEvents::argument(std::string_view key, std::string_view value) {
  begin_argument(key);
  add_string(value);
}

void JsonEvents::argument(std::string_view key, std::span<const std::string_view> values) {
  begin_argument(key);
  text_ += '[';
  bool first = true;
  for (const std::string_view value : values) {
    if (value.empty()) continue;
    if (!std::exchange(first, false)) text_ += ',';
    add_string(value);
  }
  text_ += ']';
}

void JsonEvents::argument_microseconds(std::string_view key, std::int64_t nanoseconds) {
  begin_argument(key);
  add_microseconds(nanoseconds);
}

void JsonEvents::end() { text_ += arguments_ ? "}}" : "}"; }

}  // namespace roundelay::timeline
