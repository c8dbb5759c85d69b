// Handles and the tensor table: each operation ends once, a name is taken while it is in flight, an error
// submits a name too.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "complete/handles.h"
#include "submit/table.h"
#include "tests/cpp/catch.h"

namespace roundelay::submit {

using complete::Exposure;
using complete::Handle;

namespace {

using std::chrono::milliseconds;

Entry entry_of(const std::string& name, Operation operation = Operation::kAllreduce) {
  Entry entry;
  entry.request.name = name;
  entry.request.operation = operation;
  entry.request.shape = {4};
  entry.parts.push_back({DType::kFloat32, nullptr, nullptr, 4});
  return entry;
}

std::vector<wire::Request> drained(TensorTable& table) {
  std::vector<wire::Submission> submissions;
  table.drain(submissions);
  std::vector<wire::Request> out;
  for (const wire::Submission& submission : submissions) out.push_back(submission.request);
  return out;
}

TEST_CASE("a handle is done once and known until it is taken", "[submit]") {
  complete::HandleTable handles;
  const Handle handle = handles.allocate();
  CHECK(handle > 0);
  CHECK(handles.done(handle) == false);
  CHECK_FALSE(handles.take_status(handle));
  CHECK(handles.complete(handle, Status::aborted("first")));
  CHECK_FALSE(handles.complete(handle, Status{}));
  CHECK(handles.done(handle) == true);
  CHECK(handles.take_status(handle) == Status::aborted("first"));
  CHECK_FALSE(handles.done(handle));
  CHECK_FALSE(handles.take_status(handle));
  CHECK_FALSE(handles.complete(handle, Status{}));
}

TEST_CASE("what is under way together counts once, and is exposed while somebody waits", "[submit]") {
  const auto at = [](int milli) { return TimePoint(milliseconds(milli)); };
  Exposure exposure;
  exposure.wait_begins(at(0));  // nothing is in flight
  exposure.submitted(at(10));
  exposure.submitted(at(20));
  CHECK(exposure.wait_ends(at(25))->begin == at(0));
  exposure.completed(at(40));
  exposure.wait_begins(at(50));
  exposure.wait_begins(at(55));
  CHECK(exposure.until(at(60)).exposed == milliseconds(15 + 10));
  CHECK_FALSE(exposure.wait_ends(at(65)));
  exposure.completed(at(70));
  const auto wait = exposure.wait_ends(at(90));
  REQUIRE(wait);
  CHECK(wait->begin == at(50));
  CHECK(wait->end == at(90));
  exposure.submitted(at(80));  // the caller took it before the others came
  exposure.completed(at(95));
  const Exposure::Times times = exposure.until(at(200));
  CHECK(times.under_way == milliseconds(60 + 5));
  CHECK(times.exposed == milliseconds(15 + 20));
}

TEST_CASE("handles count their own time", "[submit]") {
  complete::HandleTable handles;
  const TimePoint begin = steady_now() - milliseconds(50);
  const Handle handle = handles.allocate(begin);
  CHECK(handles.exposure().under_way >= milliseconds(50));
  CHECK(handles.exposure().exposed == Duration{0});
  handles.begin_wait();
  CHECK(handles.complete(handle, Status{}));
  CHECK_FALSE(handles.complete(handle, Status{}, steady_now() + milliseconds(50)));
  const Exposure::Times over = handles.exposure();
  CHECK(handles.end_wait());
  CHECK(handles.exposure().under_way == over.under_way);
  CHECK(over.exposed < over.under_way);
}

TEST_CASE("handles are never reused, also across tables", "[submit]") {
  complete::HandleTable one;
  complete::HandleTable two;
  const Handle first = one.allocate();
  const Handle second = two.allocate();
  CHECK(second > first);
  CHECK_FALSE(two.done(first));
  CHECK_FALSE(one.done(0));
  CHECK_FALSE(one.done(-1));
}

TEST_CASE("a sleeper returns at its deadline, on completion and for unknown handles", "[submit]") {
  complete::HandleTable handles;
  const Handle handle = handles.allocate();
  const TimePoint begin = steady_now();
  CHECK_FALSE(handles.sleep_until_done(handle, Deadline::after(milliseconds(20))));
  CHECK(steady_now() - begin >= milliseconds(20));
  CHECK_FALSE(handles.sleep_until_done(handle, Deadline::at(begin)));
  CHECK(handles.sleep_until_done(handle + 1000000, Deadline::never()));
  REQUIRE(handles.complete(handle, Status{}));
  CHECK(handles.sleep_until_done(handle, Deadline::never()));
  CHECK(handles.take_status(handle)->ok());
}

TEST_CASE("handles that share a place for their sleepers are told apart", "[submit]") {
  complete::HandleTable handles;
  std::vector<Handle> all;
  for (int i = 0; i < 40; ++i) all.push_back(handles.allocate());
  std::atomic<int> woken{0};
  std::vector<std::thread> sleepers;
  for (const Handle handle : all) {
    sleepers.emplace_back([&, handle] {
      const bool done = handles.sleep_until_done(handle, Deadline::never());
      woken += done && handles.take_status(handle)->ok() ? 1 : 0;
    });
  }
  for (const Handle handle : all) REQUIRE(handles.complete(handle, Status{}));
  for (std::thread& sleeper : sleepers) sleeper.join();
  CHECK(woken == 40);
}

TEST_CASE("every sleeper is woken, whenever it went to sleep", "[submit]") {
  for (int round = 0; round < 300; ++round) {
    complete::HandleTable handles;
    const Handle mine = handles.allocate();
    const Handle other = handles.allocate();
    std::atomic<int> woken{0};
    std::vector<std::thread> sleepers;
    for (const Handle handle : {mine, mine, other}) {
      sleepers.emplace_back(
          [&, handle] { woken += handles.sleep_until_done(handle, Deadline::never()) ? 1 : 0; });
    }
    REQUIRE(handles.complete(other, Status{}));
    REQUIRE(handles.complete(mine, Status{}));
    for (std::thread& sleeper : sleepers) sleeper.join();
    REQUIRE(woken == 3);
  }
}

TEST_CASE("of many completions and takes one each wins", "[submit]") {
  for (int round = 0; round < 200; ++round) {
    complete::HandleTable handles;
    const Handle handle = handles.allocate();
    std::atomic<int> completed{0}, taken{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        if (handles.complete(handle, Status{})) ++completed;
        if (handles.take_status(handle)) ++taken;
      });
    }
    for (std::thread& thread : threads) thread.join();
    REQUIRE(completed == 1);
    REQUIRE(taken == 1);
  }
}

TEST_CASE("a name in flight is refused here and reported as a failed submission", "[submit]") {
  complete::HandleTable handles;
  TensorTable table;
  REQUIRE(table.add(entry_of("a"), handles).ok());
  const auto again = table.add(entry_of("a"), handles);
  CHECK(again.status().code() == StatusCode::kInvalidArgument);
  CHECK(again.status().message().find("allreduce of 'a'") == 0);
  CHECK(again.status().message().find("still in flight") != std::string::npos);
  CHECK(table.in_flight() == 1);

  const auto requests = drained(table);
  REQUIRE(requests.size() == 2);
  CHECK(requests[0].name == "a");
  CHECK(requests[0].error.empty());
  CHECK(requests[1].name == "a");
  CHECK(requests[1].error == again.status().message());
  CHECK_FALSE(table.anything_queued());
  CHECK(drained(table).empty());
}

TEST_CASE("unnamed operations count by kind, errors included", "[submit]") {
  complete::HandleTable handles;
  TensorTable table;
  REQUIRE(table.add(entry_of(""), handles).ok());
  wire::Request wrong;
  wrong.error = "bad input";
  table.add_error(wrong);
  REQUIRE(table.add(entry_of("", Operation::kBroadcast), handles).ok());
  REQUIRE(table.add(entry_of(""), handles).ok());
  REQUIRE(table.add(entry_of("named"), handles).ok());
  const auto requests = drained(table);
  REQUIRE(requests.size() == 5);
  CHECK(requests[0].name == "allreduce.noname.1");
  CHECK(requests[1].name == "allreduce.noname.2");
  CHECK(requests[1].error == "bad input");
  CHECK(requests[2].name == "broadcast.noname.1");
  CHECK(requests[3].name == "allreduce.noname.3");
  for (std::size_t i = 0; i < 4; ++i) CHECK_FALSE(requests[i].cacheable);
  CHECK(requests[4].cacheable);
  CHECK(table.in_flight() == 4);  // an error has no entry
}

TEST_CASE("an unnamed submission that meets a taken name still counts", "[submit]") {
  complete::HandleTable handles;
  TensorTable table;
  REQUIRE(table.add(entry_of("allreduce.noname.1"), handles).ok());
  CHECK_FALSE(table.add(entry_of(""), handles).ok());
  REQUIRE(table.add(entry_of(""), handles).ok());
  const auto requests = drained(table);
  REQUIRE(requests.size() == 3);
  CHECK_FALSE(requests[1].error.empty());
  CHECK(requests[2].name == "allreduce.noname.2");
}

TEST_CASE("what differs between ranks or submissions is not cached", "[submit]") {
  complete::HandleTable handles;
  TensorTable table;
  for (int i = 0; i < kOperationCount; ++i)
    REQUIRE(table.add(entry_of("t" + std::to_string(i), static_cast<Operation>(i)), handles).ok() !=
            (i > static_cast<int>(Operation::kJoin)));
  for (const wire::Request& request : drained(table)) {
    const Operation operation = request.operation;
    CHECK(request.cacheable == (operation == Operation::kAllreduce || operation == Operation::kBroadcast ||
                                operation == Operation::kBarrier || operation == Operation::kReducescatter));
  }
}

TEST_CASE("who has joined adds nothing until all have", "[submit]") {
  complete::HandleTable handles;
  TensorTable table;
  REQUIRE(table.add(entry_of(""), handles).ok());
  REQUIRE(table.add(entry_of("", Operation::kAllgather), handles).ok());
  REQUIRE(table.add(entry_of("", Operation::kJoin), handles).ok());
  auto requests = drained(table);
  REQUIRE(requests.size() == 3);
  CHECK(requests[2].name == kJoinName);
  for (const std::size_t i : {0U, 1U, 2U}) CHECK(requests[i].unnamed == (i < 2 ? 1 : 0));

  for (const char* name : {"", "a"}) {
    const auto refused = table.add(entry_of(name), handles);
    CHECK(refused.status().code() == StatusCode::kInvalidArgument);
    CHECK(refused.status().message().find("this rank has joined") != std::string::npos);
  }
  wire::Request wrong;
  wrong.error = "bad input";
  table.add_error(wrong);
  CHECK_FALSE(table.anything_queued());  // the peers do not count this rank's submissions now
  const auto again = table.add(entry_of("", Operation::kJoin), handles);
  CHECK(again.status().message().find("still in flight") != std::string::npos);
  CHECK(drained(table).at(0).error == again.status().message());

  SECTION("all have joined: counters go on from the largest") {
    table.joined({4, 0, 0, 1, 0, 0, 0, 0});
    REQUIRE(table.extract(kJoinName));
    table.release(kJoinName);
    REQUIRE(table.add(entry_of(""), handles).ok());
    REQUIRE(table.add(entry_of("", Operation::kAllgather), handles).ok());
    requests = drained(table);
    CHECK(requests[0].name == "allreduce.noname.5");
    CHECK(requests[1].name == "allgather.noname.2");
  }
  SECTION("the join failed: what the peers did meanwhile counts here too") {
    table.join_failed({4, 0, 0, 0, 0, 0, 0, 0});
    CHECK_FALSE(table.add(entry_of("a"), handles).ok());  // the join is not completed yet
    REQUIRE(table.extract(kJoinName));
    table.release(kJoinName);
    REQUIRE(table.add(entry_of(""), handles).ok());
    REQUIRE(table.add(entry_of("", Operation::kAllgather), handles).ok());
    requests = drained(table);
    CHECK(requests[0].name == "allreduce.noname.5");
    CHECK(requests[0].unnamed == 5);
    CHECK(requests[1].name == "allgather.noname.2");
  }
}

TEST_CASE("the joins' name is theirs alone", "[submit]") {
  complete::HandleTable handles;
  TensorTable table;
  const auto refused = table.add(entry_of(kJoinName), handles);
  CHECK(refused.status().code() == StatusCode::kInvalidArgument);
  CHECK(refused.status().message().find("allreduce of '<join>'") != std::string::npos);
  wire::Request wrong;
  wrong.name = kJoinName;
  wrong.error = "bad input";
  table.add_error(wrong);
  CHECK_FALSE(table.anything_queued());
  CHECK(table.add(entry_of("join"), handles).ok());
  CHECK(table.add(entry_of("", Operation::kJoin), handles).ok());
}

TEST_CASE("a release frees only what was extracted", "[submit]") {
  complete::HandleTable handles;
  TensorTable table;
  REQUIRE(table.add(entry_of("a"), handles).ok());
  table.release("a");
  table.release("b");
  CHECK(table.in_flight() == 1);
}

TEST_CASE("an entry leaves the table once, and its name with release", "[submit]") {
  complete::HandleTable handles;
  TensorTable table;
  const auto handle = table.add(entry_of("a"), handles);
  REQUIRE(handle.ok());
  const auto entry = table.extract("a");
  REQUIRE(entry);
  CHECK(entry->handle == *handle);
  CHECK(entry->parts.front().bytes() == 16);
  CHECK(table.extract("a") == nullptr);
  CHECK(table.extract("b") == nullptr);
  CHECK_FALSE(table.add(entry_of("a"), handles).ok());  // it is extracted and still in flight
  table.release("a");
  CHECK(table.in_flight() == 0);
  const auto again = table.add(entry_of("a"), handles);
  REQUIRE(again.ok());
  CHECK(*again != *handle);
}

TEST_CASE("closing gives back what nobody extracted and refuses the rest", "[submit]") {
  complete::HandleTable handles;
  TensorTable table;
  REQUIRE(table.add(entry_of("a"), handles).ok());
  REQUIRE(table.add(entry_of("b"), handles).ok());
  const auto extracted = table.extract("a");
  const auto left = table.close(Status::aborted("rank 1 is gone"));
  REQUIRE(left.size() == 1);
  CHECK(left.front()->request.name == "b");
  CHECK_FALSE(table.anything_queued());
  const Status refused = Status::aborted("rank 1 is gone (allreduce of 'c' was not started)");
  CHECK(table.add(entry_of("c"), handles).status() == refused);
  CHECK(table.close(Status::aborted("later")).empty());
  CHECK(table.add(entry_of("c"), handles).status() == refused);
  table.add_error(wire::Request{});
  CHECK_FALSE(table.anything_queued());
  CHECK(table.in_flight() == 2);  // their completer releases the names
}

TEST_CASE("closing and extracting at once hands each entry to one of them", "[submit]") {
  for (int round = 0; round < 100; ++round) {
    complete::HandleTable handles;
    TensorTable table;
    for (int i = 0; i < 50; ++i) REQUIRE(table.add(entry_of(std::to_string(i)), handles).ok());
    std::size_t extracted = 0;
    std::thread lane([&] {
      for (int i = 0; i < 50; ++i) extracted += table.extract(std::to_string(i)) ? 1 : 0;
    });
    const std::size_t closed = table.close(Status::aborted("cause")).size();
    lane.join();
    REQUIRE(extracted + closed == 50);
  }
}

}  // namespace
}  // namespace roundelay::submit
