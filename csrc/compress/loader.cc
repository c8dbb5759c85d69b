#include "compress/loader.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/log.h"
#include "compress/library.h"
#include "trust/trust.h"

namespace roundelay::compress {
namespace {

constexpr std::size_t kLongestAbi = 256;
constexpr std::size_t kFingerprintBytes = 8;

Status refused(const std::string& file, const std::string& why) {
  return Status::invalid("the library '" + file + "' " + why);
}

std::string fingerprint_of(ConstByteSpan content) {
  const trust::Mac mac = trust::mac_of(trust::Key{}, "library of techniques", {content});
  std::string text;
  for (std::size_t i = 0; i < kFingerprintBytes; ++i) {
    const auto byte = std::to_integer<unsigned>(mac[i]);
    for (const unsigned digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
  }
  return text;
}

// Tells one content of a file from another without reading it.
struct Written {
  ino_t file = 0;
  off_t bytes = 0;
  std::array<std::int64_t, 2> changed{};  // seconds and nanoseconds
  friend bool operator==(const Written&, const Written&) = default;
};

Written written(const std::string& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) != 0) return {};
  return {found.st_ino, found.st_size, {found.st_ctim.tv_sec, found.st_ctim.tv_nsec}};
}

// Checks the version first: what another version calls a list of techniques is none.
Result<std::span<const TechniqueKind* const>> kinds_in(void* library, const std::string& file) {
  const auto* const abi = static_cast<const char*>(::dlsym(library, "roundelay_technique_abi"));
  if (abi == nullptr) {
    return refused(file,
                   "has no techniques: it has no symbol roundelay_technique_abi; its source needs the line "
                   "ROUNDELAY_TECHNIQUE_LIBRARY (compress/library.h)");
  }
  const std::string has(abi, ::strnlen(abi, kLongestAbi));
  if (has != ROUNDELAY_TECHNIQUE_ABI) {
    return refused(file,
                   "was compiled for another Roundelay: it has '" + has + "', and needed is '" +
                       ROUNDELAY_TECHNIQUE_ABI +
                       "'; compile it again with that compiler and the headers in `roundelay --include-dir`");
  }
  const auto* const kinds =
      static_cast<const TechniqueKind* const*>(::dlsym(library, "roundelay_techniques"));
  if (kinds == nullptr) return refused(file, "has no symbol roundelay_techniques");
  std::size_t count = 0;
  for (; kinds[count] != nullptr; ++count) {
    const std::string_view name = kinds[count]->name;
    constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";
    if (name.empty() || name.find_first_not_of(kLetters) != std::string_view::npos) {
      return refused(file, "has a technique '" + std::string(name) +
                               "': a name has lower-case letters, digits and '_' only");
    }
  }
  return std::span(kinds, count);
}

Result<Library> load(const std::string& file) {
  const Written before = written(file);
  Bytes content(static_cast<std::size_t>(before.bytes));
  std::ifstream in(file, std::ios::binary);
  in.read(reinterpret_cast<char*>(content.data()), before.bytes);
  if (!in) return refused(file, "cannot be read");
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return refused(file, "cannot be loaded: " + std::string(why == nullptr ? "no reason is known" : why));
  }
  // The fingerprint must be that of the code that runs.
  if (written(file) != before) return refused(file, "has changed while it was opened: try again");
  Result<std::span<const TechniqueKind* const>> kinds = kinds_in(library, file);
  if (!kinds.ok()) return kinds.status();
  return Library{file, fingerprint_of(content), *kinds};
}

class Libraries {
 public:
  Result<const Library*> open(const std::string& file) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (const Library* known = find(&Library::file, file)) return known;
    Result<Library> loaded = load(file);
    if (!loaded.ok()) return loaded.status();
    log(LogLevel::kInfo, "opened the library '" + file + "', whose fingerprint is " + loaded->fingerprint);
    return &open_.emplace_back(std::move(loaded).value());
  }
  const Library* opened(std::string_view fingerprint) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return find(&Library::fingerprint, fingerprint);
  }

 private:
  const Library* find(std::string Library::*field, std::string_view value) REQUIRES(mutex_) {
    const auto found =
        std::find_if(open_.begin(), open_.end(), [&](const Library& one) { return one.*field == value; });
    return found == open_.end() ? nullptr : &*found;
  }

  Mutex mutex_;
  std::deque<Library> open_ GUARDED_BY(mutex_);  // it only grows
};

// It is never destroyed: threads may still run techniques while the process ends.
Libraries& libraries() {
  static Libraries& all = *new Libraries;
  return all;
}

}  // namespace

Result<const Library*> open_library(std::string_view path) {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(path, error);
  if (error) return refused(std::string(path), "cannot be opened: " + error.message());
  if (!std::filesystem::is_regular_file(file, error)) return refused(file.string(), "is no file");
  return libraries().open(file.string());
}

const Library* opened_library(std::string_view fingerprint) { return libraries().opened(fingerprint); }

}  // namespace roundelay::compress
