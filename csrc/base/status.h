// Errors are values between threads; exceptions exist only at the Python edge.
#pragma once

#include <cassert>
#include <memory>
#include <string>
#include <utility>
#include <variant>

namespace roundelay {

// What kind of error it is decides which Python exception is raised (bindings/errors.cc).
enum class StatusCode : unsigned char {
  kOk,
  kInvalidArgument,  // ValueError: the caller can fix the call; data is untouched, the job goes on
  kMismatch,         // two ranks' calls differ: MismatchError, a HorovodInternalError; the job goes on
  kAborted,          // a peer failed or left, or a deadline passed: HorovodInternalError
  kUnavailable,      // something that is needed is not there: not initialized, no MPI, no sockets
  kInternal,         // a bug in Roundelay
  kIncomplete,       // some rank does not take part: HorovodInternalError, the job goes on
};

// A cheap, copyable result without value. Success allocates nothing; copies share the message.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : error_(std::make_shared<const Error>(Error{code, std::move(message)})) {
    assert(code != StatusCode::kOk);
  }

  static Status invalid(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }
  static Status mismatch(std::string message) { return {StatusCode::kMismatch, std::move(message)}; }
  static Status aborted(std::string message) { return {StatusCode::kAborted, std::move(message)}; }
  static Status unavailable(std::string message) { return {StatusCode::kUnavailable, std::move(message)}; }
  static Status internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

  [[nodiscard]] bool ok() const { return error_ == nullptr; }
  [[nodiscard]] StatusCode code() const { return error_ ? error_->code : StatusCode::kOk; }
  [[nodiscard]] const std::string& message() const {
    static const std::string kNone;
    return error_ ? error_->message : kNone;
  }
  friend bool operator==(const Status& a, const Status& b) {
    return a.code() == b.code() && a.message() == b.message();
  }

 private:
  struct Error {
    StatusCode code;
    std::string message;
  };
  std::shared_ptr<const Error> error_;
};

// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Status error) : state_(std::move(error)) {
    assert(!status().ok());
  }  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return std::holds_alternative<T>(state_); }
  [[nodiscard]] Status status() const { return ok() ? Status{} : std::get<Status>(state_); }
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace roundelay

// Passes an error on to the caller: for functions that return Status or Result.
#define ROUNDELAY_RETURN_IF_ERROR(expression)                                      \
  do {                                                                             \
    if (::roundelay::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)
