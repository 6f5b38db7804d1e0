#include "eval/coroutine.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace shardwright::eval {
namespace {

/// The address sanitizer has to be told of a change of stacks: before it with the stack that comes, and behind it on that stack.
/// `saved`: what it keeps for the stack that is left; nullptr for one that is left for good.
void leaving([[maybe_unused]] void** saved, [[maybe_unused]] const void* bottom, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(saved, bottom, bytes);
#endif
}
void arrived([[maybe_unused]] void* saved, [[maybe_unused]] const void** bottom, [[maybe_unused]] std::size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(saved, bottom, bytes);
#endif
}

// Stacks are address space until touched; used ones are kept because generators come in hundreds.
struct StackPool {
  std::vector<std::pair<void*, std::size_t>> free;
  ~StackPool() {
    for (auto& s : free) munmap(s.first, s.second);
  }
  void* take(std::size_t bytes) {
    for (std::size_t i = 0; i < free.size(); ++i)
      if (free[i].second == bytes) {
        void* p = free[i].first;
        free.erase(free.begin() + static_cast<std::ptrdiff_t>(i));
        return p;
      }
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    return p;
  }
  void give(void* p, std::size_t bytes) {
    if (free.size() < 16) free.emplace_back(p, bytes);
    else munmap(p, bytes);
  }
};
thread_local StackPool pool;

}  // namespace

struct Coroutine::State {
  ucontext_t self{}, resumer{};
  void* stack = nullptr;
  std::size_t bytes = 0;
  void* saved = nullptr;                // the sanitizer's, of this stack
  const void* resumer_stack = nullptr;  // and where the resumer runs
  std::size_t resumer_bytes = 0;
};

Coroutine::Coroutine(std::function<void()> body, std::size_t stack_bytes) : state_(new State), body_(std::move(body)) {
  state_->bytes = stack_bytes;
  state_->stack = pool.take(stack_bytes);
}

Coroutine::~Coroutine() {
  if (started_ && !done_) {
    kill_ = true;
    try {
      resume();
    } catch (...) {}  // unwinding an abandoned generator: its errors are nobody's
  }
  if (state_->stack) pool.give(state_->stack, state_->bytes);
  delete state_;
}

const char* Coroutine::stack_limit() const { return static_cast<const char*>(state_->stack) + 256 * 1024; }

void Coroutine::entry(unsigned hi, unsigned lo) {
  auto p = (static_cast<std::uintptr_t>(hi) << 32) | lo;
  reinterpret_cast<Coroutine*>(p)->main();
}

void Coroutine::main() {
  arrived(nullptr, &state_->resumer_stack, &state_->resumer_bytes);
  try {
    body_();
  } catch (const Killed&) {
  } catch (...) { error_ = std::current_exception(); }
  done_ = true;
  leaving(nullptr, state_->resumer_stack, state_->resumer_bytes);
  swapcontext(&state_->self, &state_->resumer);
}

void Coroutine::resume() {
  if (done_) return;
  if (!started_) {
    started_ = true;
    getcontext(&state_->self);
    state_->self.uc_stack.ss_sp = state_->stack;
    state_->self.uc_stack.ss_size = state_->bytes;
    state_->self.uc_link = nullptr;
    auto p = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&state_->self, reinterpret_cast<void (*)()>(&Coroutine::entry), 2, static_cast<unsigned>(p >> 32),
                static_cast<unsigned>(p & 0xffffffffu));
  }
  void* saved = nullptr;
  leaving(&saved, state_->stack, state_->bytes);
  swapcontext(&state_->resumer, &state_->self);
  arrived(saved, nullptr, nullptr);
  if (done_ && state_->stack) {  // objects live as long as the interpreter, stacks need not
    pool.give(state_->stack, state_->bytes);
    state_->stack = nullptr;
  }
  if (done_ && error_) {
    auto e = std::exchange(error_, nullptr);
    std::rethrow_exception(e);
  }
}

void Coroutine::suspend() {
  leaving(&state_->saved, state_->resumer_stack, state_->resumer_bytes);
  swapcontext(&state_->self, &state_->resumer);
  arrived(state_->saved, &state_->resumer_stack, &state_->resumer_bytes);
  if (kill_) throw Killed{};
}

}  // namespace shardwright::eval
