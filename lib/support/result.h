// Expected<T>: a value or a Diagnostic. Libraries return it instead of throwing.
#pragma once
#include <utility>
#include <variant>

#include "support/diagnostic.h"

namespace shardwright::support {

template <class T>
class [[nodiscard]] Expected {
 public:
  Expected(T v) : v_(std::in_place_index<0>, std::move(v)) {}           // NOLINT: implicit on purpose
  Expected(Diagnostic d) : v_(std::in_place_index<1>, std::move(d)) {}  // NOLINT: implicit on purpose
  explicit operator bool() const { return v_.index() == 0; }
  T& operator*() { return std::get<0>(v_); }
  const T& operator*() const { return std::get<0>(v_); }
  T* operator->() { return &std::get<0>(v_); }
  const T* operator->() const { return &std::get<0>(v_); }
  const Diagnostic& error() const { return std::get<1>(v_); }

 private:
  std::variant<T, Diagnostic> v_;
};

/// A Diagnostic of severity Error, for returning from functions of Expected<T>.
inline Diagnostic failure(std::string message, Range r = {}, std::string code = "") {
  return Diagnostic{Severity::Error, std::move(code), r, std::move(message), {}, {}};
}

}  // namespace shardwright::support
