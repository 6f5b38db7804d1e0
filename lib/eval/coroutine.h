// A stackful coroutine without threads (ucontext). Generators run on one, and so does a whole run (for a deep stack).
// Exceptions do not cross the switch by themselves: the body's are caught and thrown again in resume(). Nobody may switch
// while a C++ exception is being handled (inside a catch block): the interpreter copies exceptions out first.
#pragma once
#include <cstddef>
#include <exception>
#include <functional>

namespace shardwright::eval {

class Coroutine {
 public:
  Coroutine(std::function<void()> body, std::size_t stack_bytes);
  ~Coroutine();  ///< an unfinished body is unwound by throwing Killed in it
  Coroutine(const Coroutine&) = delete;
  Coroutine& operator=(const Coroutine&) = delete;
  /// Runs until the body calls suspend() or ends; throws what the body threw.
  void resume();
  /// Called by the body: back to the resumer.
  void suspend();
  bool done() const { return done_; }
  /// Lowest address of its stack that may still be used.
  const char* stack_limit() const;
  struct Killed {};

 private:
  struct State;
  State* state_;
  std::function<void()> body_;
  std::exception_ptr error_;
  bool done_ = false, started_ = false, kill_ = false;
  static void entry(unsigned hi, unsigned lo);
  void main();
};

}  // namespace shardwright::eval
