// Result<T>: a value, or the Error that says why there is none. std::expected is C++23.
#pragma once

#include <optional>
#include <utility>
#include <variant>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"

namespace lockstep {

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)  // NOLINT(google-explicit-constructor)
      : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error)  // NOLINT(google-explicit-constructor)
      : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }

  // REQUIRES: ok().
  const T& value() const& { return require(), std::get<0>(state_); }
  T& value() & { return require(), std::get<0>(state_); }
  T&& value() && { return require(), std::get<0>(std::move(state_)); }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

  // REQUIRES: !ok().
  const Error& error() const {
    LS_CHECK(!ok(), "no error in a Result that holds a value");
    return std::get<1>(state_);
  }

 private:
  void require() const {
    if (const Error* failure = std::get_if<1>(&state_)) [[unlikely]]
      fail_check("ok()", __FILE__, __LINE__, "value of a failed Result: " + failure->message);
  }

  std::variant<T, Error> state_;
};

// The Result of work that yields nothing but may be refused.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  void value() const { LS_CHECK(ok(), "a failed Result: ", error_->message); }  // REQUIRES: ok()
  const Error& error() const {
    LS_CHECK(!ok(), "no error in a Result that succeeded");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace lockstep

// The value of a Result; where there is none, the enclosing function returns its Error. To be the
// whole of a statement or of an initializer: `const Json json = LS_TRY(Json::parse(text));`.
#define LS_TRY(...)                   \
  __extension__({                     \
    auto ls_result = (__VA_ARGS__);   \
    if (!ls_result.ok()) [[unlikely]] \
      return ls_result.error();       \
    std::move(ls_result).value();     \
  })
