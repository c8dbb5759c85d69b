#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "control/inquiry.h"
#include "tests/cpp/catch.h"

namespace roundelay::control {
namespace {

class Program : public Whereabouts {
 public:
  void ask(std::function<void(const std::string&)> tell) override { questions.push_back(std::move(tell)); }

  std::vector<std::function<void(const std::string&)>> questions;
};

struct Desk {
  std::vector<std::pair<int, std::string>> answers;
  std::shared_ptr<Program> program = std::make_shared<Program>();

  std::unique_ptr<Inquiry> open(bool with_program) {
    return std::make_unique<Inquiry>(with_program ? program : nullptr, [this](int by, std::string text) {
      answers.emplace_back(by, std::move(text));
    });
  }
};

constexpr TimePoint kNow{std::chrono::seconds(100)};

TEST_CASE("without a program to ask, the answer is what the kernel shows", "[inquiry]") {
  Desk desk;
  const auto inquiry = desk.open(false);
  inquiry->asked(3, kNow);
  REQUIRE(desk.answers.size() == 1);
  CHECK(desk.answers[0].first == 3);
  CHECK(desk.answers[0].second.find("its process ") == 0);
  CHECK(desk.answers[0].second.find("Python") == std::string::npos);
}

TEST_CASE("all ranks that ask get the program's answer, once", "[inquiry]") {
  Desk desk;
  const auto inquiry = desk.open(true);
  inquiry->asked(0, kNow);
  inquiry->asked(2, kNow + std::chrono::seconds(1));
  CHECK(desk.answers.empty());
  CHECK(inquiry->look(kNow) == Deadline::at(kNow + Inquiry::kTimeout));
  REQUIRE(desk.program->questions.size() == 2);
  desk.program->questions[0]("Python is here");
  REQUIRE(desk.answers.size() == 2);
  CHECK(desk.answers[1].first == 2);
  CHECK(desk.answers[1].second.find("; Python is here") != std::string::npos);
  desk.program->questions[1]("Python is there");
  CHECK(desk.answers.size() == 2);
  CHECK(inquiry->look(kNow + std::chrono::hours(1)) == Deadline::never());
}

TEST_CASE("without an answer in time, the reply says that Python cannot be looked at", "[inquiry]") {
  Desk desk;
  const auto inquiry = desk.open(true);
  inquiry->asked(0, kNow);
  CHECK(inquiry->look(kNow + Inquiry::kTimeout) == Deadline::never());
  REQUIRE(desk.answers.size() == 1);
  CHECK(desk.answers[0].second.find("Python cannot be looked at") != std::string::npos);
  desk.program->questions[0]("Python is here");
  CHECK(desk.answers.size() == 1);
}

TEST_CASE("a program that answers after the end is ignored", "[inquiry]") {
  Desk desk;
  auto inquiry = desk.open(true);
  inquiry->asked(0, kNow);
  inquiry.reset();
  desk.program->questions[0]("Python is here");
  CHECK(desk.answers.empty());
}

}  // namespace
}  // namespace roundelay::control
