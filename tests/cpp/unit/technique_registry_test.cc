// The text that chooses a technique.
#include <random>

#include "compress/registry.h"
#include "tests/cpp/catch.h"

namespace roundelay::compress {
namespace {

std::string error_of(const std::string& text) {
  const auto made = make_technique(text);
  REQUIRE_FALSE(made.ok());
  CHECK(made.status().code() == StatusCode::kInvalidArgument);
  return made.status().message();
}

std::string text_of(const std::string& text) {
  const auto made = make_technique(text);
  INFO(made.status().message());
  REQUIRE(made.ok());
  return made.value()->text();
}

TEST_CASE("two spellings of a technique have one text", "[technique]") {
  CHECK(text_of("cyclic") == "cyclic:parts=4");
  CHECK(text_of("cyclic:parts=4") == "cyclic:parts=4");
  CHECK(text_of("cyclic:parts=0016") == "cyclic:parts=16");
  CHECK(text_of("negate") == "negate");
  const std::string standard = "csc:before=0,chunk=32768,keep=0.1,momentum=0,nesterov=0,norms=same,wire=none";
  CHECK(text_of("csc") == standard);
  CHECK(text_of("csc:keep=1e-1,momentum=-0.0,wire=none,norms=same") == standard);
  CHECK(text_of("csc:wire=bf16,keep=1.00,dense=0+03+17,before=5,momentum=.5") ==
        "csc:before=5,chunk=32768,dense=0+3+17,keep=1,momentum=0.5,nesterov=0,norms=same,wire=bf16");
  CHECK(text_of("csc:masking=1") == standard);
  CHECK(text_of("csc:masking=0") ==
        "csc:before=0,chunk=32768,keep=0.1,masking=0,momentum=0,nesterov=0,norms=same,wire=none");
  CHECK(text_of("power_sgd") == "power_sgd:rank=2,seed=0,wire=none");
  CHECK(text_of("power_sgd:columns=9+00+9,rank=4") == "power_sgd:columns=9+0+9,rank=4,seed=0,wire=none");
}

TEST_CASE("a text that chooses no technique says what would", "[technique]") {
  CHECK(error_of("") ==
        "there is no technique ''; known are negate, cyclic, csc, half, allreduce, topk, power_sgd");
  CHECK(error_of("Cyclic") ==
        "there is no technique 'Cyclic'; known are negate, cyclic, csc, half, allreduce, topk, power_sgd");
  CHECK(error_of("negate:x=1") == "technique 'negate' has no key 'x'; it has no parameters");
  CHECK(error_of("negate:") == "technique 'negate' has no key ''; it has no parameters");
  CHECK(error_of("cyclic:part=4") == "technique 'cyclic' has no key 'part'; its keys are parts");
  CHECK(error_of("cyclic:parts=4,") == "technique 'cyclic' has no key ''; its keys are parts");
  CHECK(error_of("cyclic:parts=4,parts=4") == "technique 'cyclic': parts is given twice");
  for (const char* value : {"", "0", "-1", "+4", "4.0", " 4", "4 ", "0x4", "four", "99999999999999999999"}) {
    CHECK(error_of("cyclic:parts=" + std::string(value)) ==
          "technique 'cyclic': parts=" + std::string(value) + " is not a whole number from 1 to 1048576");
  }
  for (const char* value : {"", "0", "1.5", "-1", "nan", "inf", "1e-999", "0x1p-2", "+0.5", "0.5 ", "0,5"}) {
    const std::string setting = "csc:keep=" + std::string(value);
    CHECK(error_of(setting).find("'csc': keep=") != std::string::npos);
  }
  CHECK(error_of("csc:keep=2") == "technique 'csc': keep=2 is not a number above 0 and at most 1");
  CHECK(error_of("csc:momentum=1") ==
        "technique 'csc': momentum=1 is not a number of at least 0 and below 1");
  CHECK(error_of("csc:norms=next") == "technique 'csc': norms=next is not one of same, previous");
  for (const char* value : {"", "+", "3+", "+3", "3+3", "4+3", "-1", "1++2", "4294967296", "a"}) {
    CHECK(error_of("csc:dense=" + std::string(value)) ==
          "technique 'csc': dense=" + std::string(value) + " is not ascending indices, such as 0+3+17");
  }
  for (const char* value : {"", "+", "3+", "+3", "-1", "1++2", "4294967296", "a"}) {
    CHECK(error_of("power_sgd:columns=" + std::string(value)) ==
          "technique 'power_sgd': columns=" + std::string(value) + " is not whole numbers, such as 9+0+9");
  }
  CHECK(error_of("cyclic:parts") == "technique 'cyclic': parts= is not a whole number from 1 to 1048576");
}

TEST_CASE("every technique is known by its name, with a meaning for users", "[technique]") {
  REQUIRE(known_techniques().size() >= 2);
  for (const TechniqueKind* kind : known_techniques()) {
    INFO(kind->name);
    const auto made = make_technique(kind->name);
    REQUIRE(made.ok());
    CHECK(made.value()->name() == kind->name);
    CHECK(kind->meaning.ends_with("."));
    const std::string text = made.value()->text();
    CHECK(text_of(text) == text);
    for (const Parameter& parameter : kind->parameters) {
      const std::string standard = compress::text_of(standard_of(parameter));
      const std::string setting = std::string(parameter.key) + "=";
      const bool omitted = standard.empty() || parameter.omits_standard;
      CHECK((text.find(setting) == std::string::npos) == omitted);
      if (omitted) continue;
      CHECK(text.find(setting + standard) != std::string::npos);
      CHECK(parse(parameter, standard) == standard_of(parameter));
    }
  }
}

// Joins pieces of valid texts and other bytes: each text is refused with a reason, or has one canonical form.
TEST_CASE("any text gives a technique or a reason", "[technique]") {
  const std::vector<std::string> pieces = {"cyclic", "negate",
                                           "csc",    "keep",
                                           "dense",  "0.25",
                                           "parts",  ":",
                                           "=",      ",",
                                           "4",      "1",
                                           "-",      "+",
                                           " ",      std::string(1, '\0'),
                                           "\xff",   "99999999999999999999999"};
  std::mt19937 random(1);
  int made_some = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (unsigned n = random() % 8; n > 0; --n) text += pieces[random() % pieces.size()];
    const auto made = make_technique(text);
    if (made.ok()) {
      const std::string canonical = made.value()->text();
      REQUIRE(text_of(canonical) == canonical);
      ++made_some;
    } else {
      REQUIRE_FALSE(made.status().message().empty());
    }
  }
  CHECK(made_some > 100);
}

}  // namespace
}  // namespace roundelay::compress
