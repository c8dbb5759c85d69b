#include "timeline/timeline.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/cpp/catch.h"
#include "timeline/clock.h"
#include "timeline/file.h"

namespace roundelay::timeline {
namespace {

TimePoint at(std::int64_t nanoseconds) { return TimePoint(Duration(nanoseconds)); }

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> found;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) found.push_back(line);
  return found;
}

// Returns the text of one record of an enabled timeline, without the names of tracks.
template <typename Record>
std::vector<std::string> recorded(int rank, Duration offset, Record record) {
  Timeline timeline(rank);
  timeline.start(true);
  timeline.drain();
  timeline.set_offset(offset);
  record(timeline);
  return lines(timeline.drain());
}

TEST_CASE("timeline: records nothing until it is started", "[timeline]") {
  Timeline timeline(0);
  REQUIRE_FALSE(timeline.enabled());
  timeline.record_span(Row::kTraining, "backward", at(1000), at(3500));
  timeline.record_tensor("w", {at(1), at(2), at(3), at(4)});
  REQUIRE(timeline.drain().empty());
}

TEST_CASE("timeline: names the rank and its tracks first", "[timeline]") {
  Timeline timeline(3);
  timeline.start(false);
  timeline.record_span(Row::kTraining, "step", at(0), at(1));
  const auto text = lines(timeline.drain());
  REQUIRE(text.size() == 25);
  CHECK(text[0] == R"({"ph":"M","pid":3,"tid":0,"name":"process_name","args":{"name":"rank 3"}},)");
  CHECK(text[2] == R"({"ph":"M","pid":3,"tid":1,"name":"thread_name","args":{"name":"training"}},)");
  CHECK(text[24] == R"({"ph":"X","pid":3,"tid":1,"name":"step","ts":0.000,"dur":0.001})");
  CHECK(timeline.drain().empty());
}

TEST_CASE("timeline: a span in rank 0's time", "[timeline]") {
  const auto text = recorded(1, Duration(-500), [](Timeline& timeline) {
    timeline.record_span(Row::kTraining, "backward", at(1'000'250), at(3'500'000));
    timeline.record_span(Row::kCopy, "pack", at(0), at(5), 4096);
  });
  REQUIRE(text.size() == 2);
  CHECK(text[0] == R"({"ph":"X","pid":1,"tid":1,"name":"backward","ts":999.750,"dur":2499.750},)");
  CHECK(text[1] ==
        R"({"ph":"X","pid":1,"tid":2,"name":"pack","ts":-0.500,"dur":0.005,"args":{"bytes":4096}})");
}

TEST_CASE("timeline: a fused operation says what is in it", "[timeline]") {
  const auto text = recorded(0, Duration(0), [](Timeline& timeline) {
    CollectiveSpan span;
    span.dtype = DType::kBFloat16;
    span.order = 7;
    span.index = 1;
    span.tensors = 9;
    span.bytes = 5'000'000'000;
    span.names = {"a", "b\"\n", "", ""};
    span.begin = at(2000);
    span.end = at(4000);
    timeline.record_collective(span);
  });
  REQUIRE(text.size() == 1);
  CHECK(text[0] ==
        R"({"ph":"X","pid":0,"tid":3,"name":"allreduce","ts":2.000,"dur":2.000,"args":{"order":7,"index":1,)"
        R"("tensors":9,"bytes":5000000000,"dtype":"bfloat16","names":["a","b\"\u000a"]}})");
}

TEST_CASE("timeline: a bucket with a technique names it and the bytes before and after", "[timeline]") {
  const auto text = recorded(0, Duration(0), [](Timeline& timeline) {
    CollectiveSpan span;
    span.tensors = 1;
    span.bytes = 4096;
    span.called_bytes = 1024;
    span.names = {"bucket0"};
    span.algorithm = "ring";
    span.technique = "cyclic:parts=4";
    timeline.record_collective(span);
    span.technique = {};  // dense: without both
    timeline.record_collective(span);
  });
  REQUIRE(text.size() == 2);
  CHECK(text[0].ends_with(
      R"("names":["bucket0"],"algorithm":"ring","technique":"cyclic:parts=4","called_bytes":1024}},)"));
  CHECK(text[1].ends_with(R"("names":["bucket0"],"algorithm":"ring"}})"));
}

TEST_CASE("timeline: a tensor's life is nested pairs with an id of its rank", "[timeline]") {
  const auto text = recorded(2, Duration(0), [](Timeline& timeline) {
    timeline.record_tensor("w", {at(1000), at(2000), at(3000), at(4000)});
    timeline.record_tensor("w", {at(5000), at(5000), at(5000), at(6000)});
  });
  REQUIRE(text.size() == 20);
  const std::string head = R"(","pid":2,"tid":0,"name":")";
  const std::string first = R"(","cat":"tensor","id":"0x30000000001","ts":)";
  const std::vector<std::vector<std::string>> expected = {
      {"b", "w", "1.000"},         {"n", "submit", "1.000"},  {"b", "negotiate", "1.000"},
      {"e", "negotiate", "2.000"}, {"b", "queue", "2.000"},   {"e", "queue", "3.000"},
      {"b", "execute", "3.000"},   {"e", "execute", "4.000"}, {"n", "complete", "4.000"},
      {"e", "w", "4.000"}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(text[i] == R"({"ph":")" + expected[i][0] + head + expected[i][1] + first + expected[i][2] + "},");
  }
  CHECK(text[10] ==
        R"({"ph":"b","pid":2,"tid":0,"name":"w","cat":"tensor","id":"0x30000000002","ts":5.000},)");
}

TEST_CASE("timeline: a tensor that failed in negotiation was never queued", "[timeline]") {
  const auto text = recorded(0, Duration(0), [](Timeline& timeline) {
    timeline.record_tensor("w", {at(1000), TimePoint{}, TimePoint{}, at(9000)});
  });
  REQUIRE(text.size() == 10);
  const std::string rest = R"(","cat":"tensor","id":"0x10000000001","ts":9.000})";
  CHECK(text[3] == R"({"ph":"e","pid":0,"tid":0,"name":"negotiate)" + rest + ",");
  CHECK(text[4] == R"({"ph":"b","pid":0,"tid":0,"name":"queue)" + rest + ",");
  CHECK(text[7] == R"({"ph":"e","pid":0,"tid":0,"name":"execute)" + rest + ",");
}

TEST_CASE("timeline: a gradient that autograd has completed", "[timeline]") {
  const auto text = recorded(0, Duration(0), [](Timeline& timeline) {
    timeline.record_gradient(
        {.name = "g.w", .elements = 5'000'000'000, .bytes = 20'000'000'000, .rows = 1000}, at(9000));
  });
  REQUIRE(text.size() == 1);
  CHECK(text[0] == R"({"ph":"i","pid":0,"tid":1,"name":"gradient","s":"t","ts":9.000,)"
                   R"("args":{"tensor":"g.w","elements":5000000000,"bytes":20000000000,"rows":1000}})");
}

TEST_CASE("timeline: who was last, and the orders where they are marked", "[timeline]") {
  const auto text = recorded(0, Duration(0), [](Timeline& timeline) {
    timeline.record_ready("w", 3, Duration(1'500'250), at(9000));
    timeline.record_order(12, at(9500));
  });
  REQUIRE(text.size() == 2);
  CHECK(text[0] == R"({"ph":"i","pid":0,"tid":4,"name":"ready","s":"t","ts":9.000,)"
                   R"("args":{"tensor":"w","last_rank":3,"waited_us":1500.250}},)");
  CHECK(text[1] == R"({"ph":"i","pid":0,"tid":4,"name":"order","s":"t","ts":9.500,"args":{"order":12}})");

  Timeline unmarked(0);
  unmarked.start(false);
  unmarked.drain();
  unmarked.record_order(12, at(9500));
  CHECK(unmarked.drain().empty());
}

TEST_CASE("timeline: memory is bounded, and the file says what is missing", "[timeline]") {
  Timeline timeline(0, 4);
  timeline.start(false);
  timeline.drain();
  for (int i = 0; i < 10; ++i) timeline.record_span(Row::kTraining, "s", at(1000 * i), at(1000 * i + 1));
  const auto text = lines(timeline.drain());
  REQUIRE(text.size() == 5);
  CHECK(text[0] == R"({"ph":"i","pid":0,"tid":1,"name":"dropped","s":"t","ts":4.000,"args":{"events":6}},)");
  // There is room again, and names count too.
  timeline.record_span(Row::kTraining, std::string(300, 'x'), at(1), at(2));
  timeline.record_span(Row::kTraining, "ok", at(1), at(2));
  const auto after = lines(timeline.drain());
  REQUIRE(after.size() == 2);
  CHECK(after[0].find("\"dropped\"") != std::string::npos);
  CHECK(after[1].find("\"ok\"") != std::string::npos);
}

TEST_CASE("timeline: a very long name is cut between characters", "[timeline]") {
  std::string name(2047, 'x');
  name += "\xC3\xA4\xC3\xA4";  // two characters of two bytes, the first across the limit
  const auto text = recorded(
      0, Duration(0), [&](Timeline& timeline) { timeline.record_span(Row::kTraining, name, at(0), at(1)); });
  REQUIRE(text.size() == 1);
  CHECK(text[0].find("\"" + std::string(2047, 'x') + "\"") != std::string::npos);
}

TEST_CASE("timeline: drains in pieces and in order", "[timeline]") {
  Timeline timeline(0);
  timeline.start(false);
  timeline.drain();
  for (int i = 0; i < 100; ++i) timeline.record_span(Row::kTraining, std::to_string(i), at(i), at(i + 1));
  std::vector<std::string> all;
  int pieces = 0;
  for (std::string piece = timeline.drain(256); !piece.empty(); piece = timeline.drain(256)) {
    CHECK(piece.size() < 512);
    for (auto& line : lines(piece)) all.push_back(line);
    ++pieces;
  }
  CHECK(pieces > 10);
  REQUIRE(all.size() == 100);
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].find("\"name\":\"" + std::to_string(i) + "\"") != std::string::npos);
  }
}

TEST_CASE("timeline: stops, keeps what it has, and starts again", "[timeline]") {
  Timeline timeline(0);
  timeline.start(false);
  timeline.drain();
  timeline.record_span(Row::kTraining, "first", at(0), at(1));
  timeline.stop();
  timeline.record_span(Row::kTraining, "unseen", at(0), at(1));
  CHECK(lines(timeline.drain()).size() == 1);
  timeline.start(false);
  timeline.record_span(Row::kTraining, "second", at(0), at(1));
  const auto text = lines(timeline.drain());
  REQUIRE(text.size() == 25);  // a new file repeats the names
  CHECK(text[24].find("second") != std::string::npos);
}

TEST_CASE("timeline: threads record while one drains", "[timeline]") {
  constexpr int kThreads = 4;
  constexpr int kEach = 5000;
  Timeline timeline(0, kThreads * kEach);
  timeline.start(false);
  timeline.drain();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&timeline, t] {
      for (int i = 0; i < kEach; ++i)
        timeline.record_span(Row::kTraining, std::to_string(t), at(i), at(i + 1));
    });
  }
  std::array<int, kThreads> seen{};
  const auto take = [&] {
    const std::string text = timeline.drain();
    for (const auto& line : lines(text)) {
      for (std::size_t t = 0; t < kThreads; ++t) {
        // Each thread's events come in its order.
        std::ostringstream next;
        next << R"("name":")" << t << R"(","ts":)" << seen[t] / 1000 << '.';
        if (line.find(next.str()) != std::string::npos) ++seen[t];
      }
    }
    return !text.empty();
  };
  for (int i = 0; i < 20; ++i) take();
  for (auto& thread : threads) thread.join();
  while (take()) {
  }
  for (const int count : seen) CHECK(count == kEach);
}

struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "timelineXXXXXX";
    path = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

std::string contents(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

TEST_CASE("timeline file: one array of all that is appended", "[timeline]") {
  Folder folder;
  const auto path = folder.path / "t.json";
  TimelineFile file;
  CHECK(file.append("lost").ok());  // no file is open
  REQUIRE(file.open(path).ok());
  REQUIRE(file.append("{\"a\":1},\n{\"a\":2}").ok());
  REQUIRE(file.append("").ok());
  CHECK(contents(path) == "[\n{\"a\":1},\n{\"a\":2}");  // complete if the job dies now
  REQUIRE(file.append("{\"a\":3}").ok());
  REQUIRE(file.close().ok());
  CHECK(contents(path) == "[\n{\"a\":1},\n{\"a\":2},\n{\"a\":3}\n]\n");
  CHECK_FALSE(file.is_open());
  REQUIRE(file.open(path).ok());
  REQUIRE(file.close().ok());
  CHECK(contents(path) == "[\n]\n");
}

TEST_CASE("timeline file: a path that cannot be written is named", "[timeline]") {
  Folder folder;
  const std::string path = folder.path / "missing" / "t.json";
  TimelineFile file;
  const Status status = file.open(path);
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(status.message() == "cannot write the timeline to '" + path + "': No such file or directory");
  CHECK_FALSE(file.is_open());
}

TEST_CASE("timeline file: a full disk is told once and ends the file", "[timeline]") {
  if (::access("/dev/full", W_OK) != 0) return;
  TimelineFile file;
  const Status status = file.open("/dev/full");
  CHECK(status.message() == "cannot write the timeline to '/dev/full': No space left on device");
  CHECK_FALSE(file.is_open());
  CHECK(file.append("{}").ok());
  CHECK(file.close().ok());
}

TEST_CASE("clock offset: the least round trip wins", "[timeline]") {
  // The other clock is 1000 ahead. Round trips take 40 (20 each way), 10 (3 there, 7 back) and 100.
  const std::vector<ClockSample> samples = {{0, 1020, 40}, {100, 1103, 110}, {200, 1290, 300}};
  CHECK(estimate(samples) == ClockOffset{998, 5});
}

TEST_CASE("clock offset: nothing to go by", "[timeline]") {
  CHECK_FALSE(estimate({}).has_value());
  const std::vector<ClockSample> backwards = {{10, 5, 9}};
  CHECK_FALSE(estimate(backwards).has_value());
}

}  // namespace
}  // namespace roundelay::timeline
