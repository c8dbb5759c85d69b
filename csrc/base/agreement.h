// An agreement: the members of a group merge small values, field by field, and all get the same result. Pure.
//
// A rank's values are one string of bytes: the bytes of all fields, one after the other. Messages carry no
// values: they carry the change between values and a base that both sides know. So values that stay the same
// cost nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace roundelay {

// Says how the members' values of one field are merged. The numbers travel in messages: append new ones.
enum class Merge : std::uint8_t {
  kEqual,  // all have to be equal; if not, the result is that of the lowest rank
  kAnd,    // bitwise and
  kOr,     // bitwise or
  kMax,    // the largest of each byte, without a sign
  kRoot,   // that of the agreement's root; zeros if the root takes no part
  kSum,    // the sums of doubles, in the order of ranks; of bytes that make up no double, the lowest rank's
};
inline constexpr int kMergeCount = 6;

struct AgreementField {
  Merge merge = Merge::kEqual;
  std::uint32_t bytes = 0;
  friend bool operator==(const AgreementField&, const AgreementField&) = default;
};

// The limits of one agreement. Messages with more are refused.
inline constexpr std::size_t kMostAgreementFields = 255;
inline constexpr std::size_t kMostAgreementBytes = std::size_t{1} << 20;

// Bytes of some values, from `offset` on.
struct ByteRun {
  std::uint32_t offset = 0;
  std::string bytes;  // not empty
  friend bool operator==(const ByteRun&, const ByteRun&) = default;
};
// The bytes in which values differ from a base. The runs ascend and do not overlap.
using ByteChange = std::vector<ByteRun>;

// Two ranks whose values of a field with Merge::kEqual differ.
struct Difference {
  std::uint32_t field = 0;      // index
  std::int32_t rank = 0;        // world rank: the lowest one
  std::int32_t other_rank = 0;  // the lowest one whose value is another
  std::string value;
  std::string other_value;
  friend bool operator==(const Difference&, const Difference&) = default;
};

// The result of an agreement, equal on all members.
struct Agreed {
  std::string values;
  std::vector<Difference> differences;  // one for each field that differs, by ascending field
  std::vector<std::int32_t> absent{};   // the world ranks that have joined and took no part, ascending
  friend bool operator==(const Agreed&, const Agreed&) = default;
};

// Returns the size of the values.
[[nodiscard]] std::size_t bytes_of(const std::vector<AgreementField>& fields);

// Returns the change that turns `base` into `values`, which have the same size. Runs that are near each other
// are one run.
[[nodiscard]] ByteChange change_between(std::string_view base, std::string_view values);
// Returns whether all runs lie within values of `bytes` bytes. Check every change that another process made.
[[nodiscard]] bool fits(const ByteChange& change, std::size_t bytes);
// Applies the change, which fits, to the values in place.
void apply_change(const ByteChange& change, std::string& values);

// Merges the values of the members that take part. One thread at a time.
class Merger {
 public:
  // `root`: a world rank, or -1. `fields` outlive the merger.
  Merger(const std::vector<AgreementField>& fields, int root);

  // Adds the values of `rank`; their size is bytes_of(fields). Ranks come in ascending order.
  void add(int rank, std::string_view values);
  // Returns the result of those that were added, without `absent`.
  [[nodiscard]] Agreed finish();

 private:
  void compare(std::size_t field, int rank, std::string_view mine, std::string_view first);

  const std::vector<AgreementField>& fields_;
  const int root_;
  int first_ = -1;  // the lowest rank that was added
  Agreed agreed_;
};

}  // namespace roundelay
