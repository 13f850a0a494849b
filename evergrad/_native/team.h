// Threads for work that is too short for one that has to be woken.

#ifndef EVERGRAD_TEAM_H_
#define EVERGRAD_TEAM_H_

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

inline void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Helpers of whoever calls. A helper that has done its work looks for more for a while, and lets other threads go first, before
// it sleeps: the products of a step are as short as the time that it takes to wake a thread. The caller takes what is left,
// never waits for a helper that has not begun, and works alone where somebody else has the helpers.
class Team {
 public:
  static Team& Get() {
    static Team* team = Begun();
    return *team;
  }

  template <typename Item>
  void Run(int64_t threads, int64_t count, Item& item) {
    std::unique_lock<std::mutex> mine(taken_, std::try_to_lock);
    const int64_t helpers = std::min(threads, count) - 1;
    if (helpers < 1 || !mine.owns_lock()) {
      for (int64_t i = 0; i < count; ++i) item(i);
      return;
    }
    for (; helpers_ < helpers; ++helpers_) std::thread([this] { Help(); }).detach();
    call_ = [](void* item, int64_t i) { (*static_cast<Item*>(item))(i); };
    item_ = &item;
    count_ = count;
    next_ = 0;
    left_ = 0;
    gate_ = 0;
    rounds_.fetch_add(1);
    if (asleep_.load() > 0) {
      std::lock_guard<std::mutex> lock(bed_);
      wake_.notify_all();
    }
    Work();
    const int64_t entered = gate_.fetch_or(kClosed);
    while (left_.load() < entered) Pause();
  }

 private:
  static constexpr int64_t kClosed = int64_t{1} << 40;
  static constexpr std::chrono::microseconds kPatience{300};

  // In a child of a fork the helpers are gone.
  static Team* Begun() {
    pthread_atfork(nullptr, nullptr, [] { new (&Get()) Team(); });
    return new Team();
  }

  void Work() {
    for (int64_t i; (i = next_.fetch_add(1)) < count_;) call_(item_, i);
  }

  void Help() {
    for (int64_t seen = 0;;) {
      Await(seen);
      seen = rounds_.load();
      if (gate_.fetch_add(1) < kClosed) {
        Work();
        left_.fetch_add(1);
      }
    }
  }

  void Await(int64_t seen) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < until) {
      for (int i = 0; i < 64; ++i) {
        if (rounds_.load(std::memory_order_relaxed) != seen) return;
        Pause();
      }
      sched_yield();
    }
    std::unique_lock<std::mutex> lock(bed_);
    asleep_.fetch_add(1);
    wake_.wait(lock, [&] { return rounds_.load() != seen; });
    asleep_.fetch_sub(1);
  }

  std::mutex taken_, bed_;
  std::condition_variable wake_;
  int64_t helpers_ = 0, count_ = 0;
  void (*call_)(void*, int64_t) = nullptr;
  void* item_ = nullptr;
  std::atomic<int64_t> rounds_{0}, asleep_{0}, next_{0}, left_{0}, gate_{kClosed};
};

// Calls item(0), ..., item(count - 1) on the threads of XLA's own pool. The caller takes what is left, so that it never waits
// for a thread that has not begun.
template <typename Item>
void ShareOutInPool(ffi::ThreadPool& pool, int64_t count, Item item) {
  struct Work {
    Item item;
    int64_t count;
    std::atomic<int64_t> next{0}, done{0};
    Work(Item i, int64_t n) : item(i), count(n) {}
    void Run() {
      for (int64_t i; (i = next.fetch_add(1)) < count;) {
        item(i);
        done.fetch_add(1, std::memory_order_release);
      }
    }
  };
  auto work = std::make_shared<Work>(item, count);
  for (int64_t i = 1; i < std::min(pool.num_threads(), count); ++i) {
    pool.Schedule([work] { work->Run(); });
  }
  work->Run();
  while (work->done.load(std::memory_order_acquire) < count) std::this_thread::yield();
}

// Calls item(0), ..., item(count - 1) on as many threads as XLA has.
template <typename Item>
void ShareOut(ffi::ThreadPool& pool, int64_t count, Item item) {
  Team::Get().Run(pool.num_threads(), count, item);
}

}  // namespace

#endif  // EVERGRAD_TEAM_H_
