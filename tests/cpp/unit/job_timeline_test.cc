#include "runtime/session/job_timeline.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "tests/cpp/catch.h"
#include "tests/cpp/in_time.h"

namespace roundelay::runtime {
namespace {

using timeline::Row;

// Two ranks, whose inboxes the test empties as their negotiators would.
struct Job {
  void carry() {
    carry(first, 0);
    carry(second, 1);
  }
  void carry(control::ControlInbox& inbox, int rank) {
    for (auto& message : inbox.drain().messages) {
      if (const auto* to = std::get_if<wire::TimelineSwitch>(&message)) {
        REQUIRE(rank == 0);
        other.on_switch(*to);
      } else {
        rank_0.on_chunk(std::get<wire::TimelineChunk>(message));
      }
    }
  }
  [[nodiscard]] std::string text() const {
    std::stringstream all;
    all << std::ifstream(path).rdbuf();
    return all.str();
  }
  ~Job() { std::remove(path.c_str()); }

  const std::string path = "job_timeline_test." + std::to_string(::getpid()) + ".json";
  control::ControlInbox first;
  control::ControlInbox second;
  JobTimeline rank_0{0, 2, nullptr, first};
  JobTimeline other{1, 2, nullptr, second};
};

TEST_CASE("rank 0 starts and stops the timeline everywhere, and writes what all ranks record", "[timeline]") {
  Job job;
  const TimePoint now = steady_now();
  CHECK_FALSE(job.rank_0.is_open());
  CHECK(job.rank_0.send_if_due(now) == Deadline::never());
  REQUIRE(job.rank_0.open(job.path).ok());
  job.rank_0.start_everywhere(false);
  CHECK(job.rank_0.events().enabled());
  CHECK_FALSE(job.other.events().enabled());
  job.carry();
  CHECK(job.other.events().enabled());

  job.other.events().record_span(Row::kTraining, "on rank 1", now, now);
  const Deadline next = job.other.send_if_due(now);
  CHECK(next == Deadline::at(now + std::chrono::milliseconds(500)));
  job.carry();
  CHECK(job.text().find("on rank 1") != std::string::npos);
  job.other.events().record_span(Row::kTraining, "later", now, now);
  CHECK(job.other.send_if_due(now) == next);  // not due yet
  job.carry();
  CHECK(job.text().find("later") == std::string::npos);

  job.rank_0.stop_everywhere();
  CHECK_FALSE(job.rank_0.events().enabled());
  job.carry();
  CHECK_FALSE(job.other.events().enabled());
  job.carry();
  job.rank_0.wait_for_last_chunks();
  REQUIRE(job.rank_0.close().ok());
  CHECK(job.text().find("later") != std::string::npos);
  CHECK(job.text().substr(job.text().size() - 3) == "\n]\n");
}

TEST_CASE("rank 0 waits for the last chunk of every rank", "[timeline]") {
  Job job;
  REQUIRE(job.rank_0.open(job.path).ok());
  job.rank_0.start_everywhere(false);
  job.rank_0.stop_everywhere();
  job.carry(job.first, 0);
  bool carried = false;
  std::thread negotiator([&] {
    carried = true;
    job.carry(job.second, 1);
  });
  job.rank_0.wait_for_last_chunks();
  CHECK(carried);
  negotiator.join();
}

TEST_CASE("a rank that ends twice does not stand for another one", "[timeline]") {
  Job job;
  REQUIRE(job.rank_0.open(job.path).ok());
  job.rank_0.start_everywhere(false);
  job.rank_0.stop_everywhere();
  job.other.on_switch({true, false});
  job.other.on_switch({false, false});
  job.other.send_last();  // it leaves
  job.carry(job.second, 1);
  bool carried = false;
  std::thread negotiator([&] {
    carried = true;
    job.carry(job.first, 0);
  });
  job.rank_0.wait_for_last_chunks();
  CHECK(carried);
  negotiator.join();
}

TEST_CASE("there is no wait for chunks after an abort, or without a file", "[timeline]") {
  Job job;
  job.rank_0.wait_for_last_chunks();
  REQUIRE(job.rank_0.open(job.path).ok());
  job.rank_0.start_everywhere(false);
  std::thread aborter([&] { job.rank_0.abort(); });
  job.rank_0.wait_for_last_chunks();
  aborter.join();
  const TimePoint before = steady_now();
  job.rank_0.wait_for_last_chunks();
  testing::expect_within(std::chrono::seconds(4), steady_now() - before);
}

}  // namespace
}  // namespace roundelay::runtime
