#include "lockstep/launch/page.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"

namespace lockstep::launch {

struct SharedPage {
  pthread_mutex_t alive;
  std::atomic<std::uint32_t> holds, leaves;
  std::atomic<std::int64_t> pulse, late;  // ns
  std::atomic<std::uint64_t> position;
  std::atomic<std::uint32_t> text_bytes;
  char texts[(std::size_t{1} << 18) - 256];  // a line for each op; touched where there are any
};

namespace {

static_assert(std::atomic<std::int64_t>::is_always_lock_free);

constexpr long kBetweenStopChecks = 200'000'000;  // ns

SharedPage* map(int memory) {
  void* const at =
      ::mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  return at == MAP_FAILED ? nullptr : static_cast<SharedPage*>(at);
}

// Of this process, as a rank; null where no launcher started it. The program and its module each
// have this function, and so a mapping of their own.
SharedPage* own_page() {
  static SharedPage* const own = [] {
    const char* const text = std::getenv(kPage);
    const auto memory = number_in<int>(text == nullptr ? "" : text);
    return memory ? map(*memory) : nullptr;
  }();
  return own;
}

std::int64_t nanoseconds(SteadyPoint point) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(point.time_since_epoch()).count();
}
std::int64_t ticks_now() { return nanoseconds(std::chrono::steady_clock::now()); }

// Never returns: its end is that of the process.
void* hold(void* page) {
  auto* const own = static_cast<SharedPage*>(page);
  ::pthread_mutex_lock(&own->alive);
  own->pulse = ticks_now();
  own->holds = 1;
  const auto planned = static_cast<std::int64_t>(kBetweenPulses.value * 1e9);
  for (;;) {
    const timespec pause = {0, planned};
    ::nanosleep(&pause, nullptr);
    const std::int64_t at = ticks_now();
    own->late += std::max<std::int64_t>(0, at - own->pulse - planned);
    own->pulse = at;
  }
  return nullptr;
}

}  // namespace

void show_life() {
  SharedPage* const own = own_page();
  if (own == nullptr) return;
  std::atexit([] { own_page()->leaves = 1; });
  // Signals are for the thread of the rank.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread = {};
  if (::pthread_create(&thread, nullptr, hold, own) == 0) ::pthread_detach(thread);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void show_position(comm::PositionCell& cell) {
  if (SharedPage* const own = own_page()) cell.show_in(own->position);
}

void show_ops(const std::vector<std::string>& texts) {
  SharedPage* const own = own_page();
  if (own == nullptr) return;
  std::uint32_t size = 0;
  for (const std::string& text : texts) {
    if (size + text.size() + 1 > sizeof own->texts) break;
    std::memcpy(own->texts + size, text.data(), text.size());
    size += static_cast<std::uint32_t>(text.size());
    own->texts[size++] = '\n';
  }
  own->text_bytes = size;
}

// Waits on a thread, with an end of its own where the page is not what it was made.
class Page::DeathWatch {
 public:
  DeathWatch(SharedPage& page, std::function<void()> died)
      : page_(page), died_(std::move(died)), thread_([this] { run(); }) {}
  ~DeathWatch() {
    stop_ = true;
    thread_.join();
  }
  DeathWatch(DeathWatch&&) = delete;

 private:
  void run() {
    while (!stop_) {
      timespec until = {};
      ::clock_gettime(CLOCK_MONOTONIC, &until);
      until.tv_nsec += kBetweenStopChecks;
      if (until.tv_nsec >= 1'000'000'000) {
        ++until.tv_sec;
        until.tv_nsec -= 1'000'000'000;
      }
      const int got = ::pthread_mutex_clocklock(&page_.alive, CLOCK_MONOTONIC, &until);
      if (got == ETIMEDOUT) continue;
      if (got == EOWNERDEAD) died_();
      return;
    }
  }

  SharedPage& page_;
  const std::function<void()> died_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

void Page::Unmap::operator()(SharedPage* page) const { ::munmap(page, sizeof(SharedPage)); }

Result<Page> Page::make() {
  Page made;
  made.memory_ = Descriptor(::memfd_create("lockstep-page", MFD_CLOEXEC));
  if (made.memory_ >= 0 && ::ftruncate(made.memory_, sizeof(SharedPage)) == 0)
    made.page_.reset(map(made.memory_));
  if (!made.page_)
    return Error{Code::kUnsuitableEnvironment,
                 "cannot make memory to share with a rank: " + system_reason()};
  pthread_mutexattr_t kind;
  ::pthread_mutexattr_init(&kind);
  ::pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  ::pthread_mutex_init(&made.page_->alive, &kind);
  ::pthread_mutexattr_destroy(&kind);
  made.page_->position = comm::PositionCell::kUnset;
  return made;
}

Sight Page::look() const {
  const SharedPage& page = *page_;
  return {page.holds == 1, page.leaves == 1, SteadyPoint(std::chrono::nanoseconds(page.pulse)),
          Seconds{static_cast<double>(page.late) * 1e-9},
          comm::PositionCell::decode(page.position)};
}

std::string Page::op_text(int op) const {
  const std::size_t size = std::min<std::size_t>(page_->text_bytes, sizeof page_->texts);
  std::string_view rest(page_->texts, size);
  for (int line = 0; line < op && !rest.empty(); ++line)
    rest.remove_prefix(std::min(rest.size(), std::min(rest.find('\n'), rest.size()) + 1));
  std::string text(rest.substr(0, std::min<std::size_t>(rest.find('\n'), 200)));
  std::ranges::replace_if(text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.empty() ? join_parts("op ", op) : text;
}

void Page::watch(std::function<void()> died) {
  if (!watch_) watch_ = std::make_shared<DeathWatch>(*page_, std::move(died));
}

std::string where_text(const std::optional<comm::Position>& position, const std::string& op_text) {
  if (!position) return "before its first step";
  const std::string step = std::to_string(position->step + 1);
  if (position->op == comm::PositionCell::kBetween) return "behind step " + step;
  std::string text = position->evaluates ? join_parts("in the evaluation behind step ", step,
                                                      " at op ", position->op)
                                         : join_parts("in step ", step, " at ", op_text);
  if (position->part > 0) text += join_parts(", in part ", position->part + 1, " of it");
  if (position->waits) text += ", where it waited for others";
  return text;
}

}  // namespace lockstep::launch
