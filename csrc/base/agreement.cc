#include "base/agreement.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace roundelay {
namespace {

// The offset and the length of a run take about so many bytes. A gap that is not longer travels with the run.
constexpr std::size_t kRunHeader = 3;

unsigned char number(char byte) { return static_cast<unsigned char>(byte); }

double double_at(const char* bytes) {
  double value = 0.0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Adds doubles. Members of a locked schedule compare bytes, so there is one NaN.
void add_doubles(std::string_view mine, char* all) {
  for (std::size_t i = 0; i + sizeof(double) <= mine.size(); i += sizeof(double)) {
    double sum = double_at(all + i) + double_at(mine.data() + i);
    if (std::isnan(sum)) sum = std::numeric_limits<double>::quiet_NaN();
    std::memcpy(all + i, &sum, sizeof sum);
  }
}

// Merges the values of one more rank into `all`.
void merge(Merge how, std::string_view mine, char* all) {
  if (how == Merge::kSum) return add_doubles(mine, all);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (how == Merge::kAnd) all[i] = static_cast<char>(all[i] & mine[i]);
    if (how == Merge::kOr) all[i] = static_cast<char>(all[i] | mine[i]);
    if (how == Merge::kMax) all[i] = number(all[i]) < number(mine[i]) ? mine[i] : all[i];
  }
}

}  // namespace

std::size_t bytes_of(const std::vector<AgreementField>& fields) {
  std::size_t sum = 0;
  for (const AgreementField& field : fields) sum += field.bytes;
  return sum;
}

ByteChange change_between(std::string_view base, std::string_view values) {
  assert(base.size() == values.size());
  ByteChange change;
  if (base == values) return change;
  for (std::size_t begin = 0; begin < values.size(); ++begin) {
    if (base[begin] == values[begin]) continue;
    std::size_t last = begin;  // the last byte of the run, which differs
    for (std::size_t i = begin; i < values.size() && i - last <= kRunHeader + 1; ++i) {
      if (base[i] != values[i]) last = i;
    }
    change.push_back(
        {static_cast<std::uint32_t>(begin), std::string(values.substr(begin, last + 1 - begin))});
    begin = last;
  }
  return change;
}

bool fits(const ByteChange& change, std::size_t bytes) {
  return std::all_of(change.begin(), change.end(), [bytes](const ByteRun& run) {
    return run.offset <= bytes && run.bytes.size() <= bytes - run.offset;
  });
}

void apply_change(const ByteChange& change, std::string& values) {
  assert(fits(change, values.size()));
  for (const ByteRun& run : change) values.replace(run.offset, run.bytes.size(), run.bytes);
}

Merger::Merger(const std::vector<AgreementField>& fields, int root) : fields_(fields), root_(root) {
  agreed_.values.assign(bytes_of(fields), '\0');
}

void Merger::add(int rank, std::string_view values) {
  assert(values.size() == agreed_.values.size() && rank > first_);
  const bool is_first = first_ < 0;
  if (is_first) first_ = rank;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const AgreementField& field = fields_[i];
    const std::string_view mine = values.substr(offset, field.bytes);
    char* const all = agreed_.values.data() + offset;
    const bool as_it_is = field.merge == Merge::kRoot ? rank == root_ : is_first;
    if (as_it_is) {
      std::copy(mine.begin(), mine.end(), all);
    } else if (field.merge == Merge::kEqual) {
      compare(i, rank, mine, {all, mine.size()});
    } else {
      merge(field.merge, mine, all);
    }
    offset += field.bytes;
  }
}

// Keeps the first difference of each field.
void Merger::compare(std::size_t field, int rank, std::string_view mine, std::string_view first) {
  if (mine == first) return;
  auto& found = agreed_.differences;
  const auto place = std::lower_bound(found.begin(), found.end(), field,
                                      [](const Difference& one, std::size_t f) { return one.field < f; });
  if (place != found.end() && place->field == field) return;
  found.insert(place,
               {static_cast<std::uint32_t>(field), first_, rank, std::string(first), std::string(mine)});
}

Agreed Merger::finish() { return std::move(agreed_); }

}  // namespace roundelay
