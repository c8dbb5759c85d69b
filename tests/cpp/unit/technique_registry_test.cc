// The text that chooses a technique.
#include <filesystem>
#include <random>

#include "compress/registry.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/techniques.h"

namespace roundelay::compress {
namespace {

std::string error_of(const std::string& text) {
  const auto made = make_technique(with_library(text));
  REQUIRE_FALSE(made.ok());
  CHECK(made.status().code() == StatusCode::kInvalidArgument);
  return made.status().message();
}

std::string text_of(const std::string& text) {
  const auto made = make_technique(with_library(text));
  INFO(made.status().message());
  REQUIRE(made.ok());
  return made.value()->text();
}

TEST_CASE("two spellings of a technique have one text", "[technique]") {
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
        "there is no technique ''; known are csc, half, allreduce, topk, quantised, power_sgd");
  CHECK(error_of("Csc") ==
        "there is no technique 'Csc'; known are csc, half, allreduce, topk, quantised, power_sgd");
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

TEST_CASE("the text of a library's technique has its fingerprint and not its path", "[technique]") {
  const std::string text = text_of("cyclic");
  INFO(text);
  const std::string name = text.substr(0, text.find(':'));
  CHECK(name.size() == std::string("cyclic@").size() + 16);
  CHECK(name.find_first_not_of("0123456789abcdef", name.find('@') + 1) == std::string::npos);
  CHECK(text == name + ":parts=4");
  CHECK(text_of("cyclic:parts=0016") == name + ":parts=16");
  CHECK(text_of(text) == text);
  CHECK(text_of(name + ":parts=2") == name + ":parts=2");
  CHECK(text_of("negate").starts_with("negate@"));
}

TEST_CASE("a technique that a library does not have", "[technique]") {
  const std::string library = std::filesystem::canonical(ROUNDELAY_TEST_TECHNIQUES "/cyclic.so").string();
  const std::string absent = "the library '" + library + "': there is no technique '";
  for (const char* name : {"", "Cyclic", "csc"})
    CHECK(error_of(library + ":" + name) == absent + name + "'; known are cyclic");
  CHECK(error_of(library).find("there is no technique ''") != std::string::npos);
  CHECK(error_of("cyclic@0123456789abcdef") ==
        "technique 'cyclic@0123456789abcdef' is of a library that this process has not opened: give the "
        "library's file, as in library.so:cyclic");
  for (const char* file : {"nothing.so", "./nothing", "/nothing.so:cyclic"})
    CHECK(error_of(file).ends_with("cannot be opened: No such file or directory"));
  CHECK(error_of("/:cyclic") == "the library '/' is no file");
}

TEST_CASE("every technique is known by its name, with a meaning for users", "[technique]") {
  REQUIRE(known_techniques().size() >= 2);
  for (const TechniqueKind* kind : known_techniques()) {
    INFO(kind->name);
    const auto made = make_technique(kind->name);
    REQUIRE(made.ok());
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
  const std::vector<std::string> pieces = {"half",  "topk",
                                           "csc",   "keep",
                                           "dense", "0.25",
                                           "parts", ":",
                                           "=",     ",",
                                           "4",     "1",
                                           "-",     "+",
                                           " ",     std::string(1, '\0'),
                                           "\xff",  "99999999999999999999999",
                                           "@",     "/",
                                           ".so"};
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
