#include "tests/cuda/host/cuda_runtime.h"

#include <ucontext.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

dim3 threadIdx = 0, blockIdx = 0, blockDim = 0, gridDim = 0;

namespace lockstep::cuda::host {

Device device;

namespace {

constexpr unsigned kWarp = 32, kMaxThreads = 1024;
constexpr std::size_t kStackBytes = 64 << 10;

cudaError_t last_error = cudaSuccess;
std::string why_it_failed;

enum class State { kReady, kAtBarrier, kInExchange, kEnded };

struct Fiber {
  ucontext_t context = {};
  std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
  State state = State::kReady;
  std::source_location where = {};  // it waits
  // Of an exchange.
  unsigned mask = 0, source = 0;
  std::uint64_t brought = 0, taken = 0;
};

bool is_same_place(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         std::string_view(a.file_name()) == b.file_name();
}

std::string name_of(const std::source_location& where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line());
}

class Block;
Block* running = nullptr;

// The blocks of a launch, one after another.
class Block {
 public:
  ~Block() { running = nullptr; }
  Block(unsigned threads, const std::function<void()>& thread)
      : fibers_(threads), thread_(thread) {}
  void run();
  void maybe_pause();
  void wait_for_all(std::source_location where);
  std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned source,
                         std::source_location where);

 private:
  static void enter();
  void start(unsigned thread);
  void leave();
  void wait(State state, std::source_location where);
  void wake(unsigned thread);
  void finish_barrier();
  void finish_exchange(unsigned mask);
  void check_all_ended() const;

  std::vector<Fiber> fibers_;
  const std::function<void()>& thread_;
  ucontext_t scheduler_ = {};
  std::vector<unsigned> ready_;
  bool is_in_kernel_ = false;  // and not in what is here
  std::exception_ptr thrown_;
};

// Exceptions do not leave a fiber.
void Block::enter() {
  running->is_in_kernel_ = true;
  try {
    running->thread_();
  } catch (...) {
    running->thrown_ = std::current_exception();
  }
  running->is_in_kernel_ = false;
  running->fibers_[threadIdx.x].state = State::kEnded;
  running->leave();
}

void Block::start(unsigned thread) {
  Fiber& fiber = fibers_[thread];
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  makecontext(&fiber.context, &Block::enter, 0);
  wake(thread);
}

void Block::run() {
  running = this;
  for (unsigned thread = 0; thread < fibers_.size(); ++thread) start(thread);
  while (!ready_.empty()) {
    std::swap(ready_[device.dice() % ready_.size()], ready_.back());
    threadIdx = ready_.back();
    ready_.pop_back();
    swapcontext(&scheduler_, &fibers_[threadIdx.x].context);
    if (thrown_) std::rethrow_exception(thrown_);
  }
  check_all_ended();
}

void Block::check_all_ended() const {
  for (unsigned thread = 0; thread < fibers_.size(); ++thread) {
    const Fiber& fiber = fibers_[thread];
    if (fiber.state != State::kEnded)
      throw std::runtime_error("thread " + std::to_string(thread) + " waits at " +
                               name_of(fiber.where) + " for threads that do not come");
  }
}

void Block::wake(unsigned thread) {
  fibers_[thread].state = State::kReady;
  ready_.push_back(thread);
}

// Seldom, because it takes its time.
void Block::maybe_pause() {
  if (!is_in_kernel_ || device.dice() % 64 != 0) return;
  wake(threadIdx.x);
  leave();
}

// Returns when the thread is next again.
void Block::leave() {
  is_in_kernel_ = false;
  swapcontext(&fibers_[threadIdx.x].context, &scheduler_);
  is_in_kernel_ = true;
}

void Block::wait(State state, std::source_location where) {
  Fiber& self = fibers_[threadIdx.x];
  self.state = state;
  self.where = where;
  if (state == State::kAtBarrier)
    finish_barrier();
  else
    finish_exchange(self.mask);
  leave();
}

void Block::wait_for_all(std::source_location where) {
  is_in_kernel_ = false;
  wait(State::kAtBarrier, where);
}

void Block::finish_barrier() {
  for (const Fiber& fiber : fibers_) {
    if (fiber.state != State::kAtBarrier) return;
    if (!is_same_place(fiber.where, fibers_[0].where))
      throw std::runtime_error("threads wait for each other at two barriers, " +
                               name_of(fibers_[0].where) + " and " + name_of(fiber.where));
  }
  for (unsigned thread = 0; thread < fibers_.size(); ++thread) wake(thread);
}

std::uint64_t Block::exchange(unsigned mask, std::uint64_t bits, unsigned source,
                              std::source_location where) {
  is_in_kernel_ = false;
  if ((mask >> threadIdx.x % kWarp & 1) == 0 || (mask >> source & 1) == 0)
    throw std::runtime_error("the mask leaves out a lane that gives or takes at " + name_of(where));
  Fiber& self = fibers_[threadIdx.x];
  self.mask = mask;
  self.source = source;
  self.brought = bits;
  wait(State::kInExchange, where);
  return self.taken;
}

void Block::finish_exchange(unsigned mask) {
  const unsigned first = threadIdx.x / kWarp * kWarp;
  std::vector<unsigned> lanes;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    if (first + lane >= fibers_.size()) return;
    const Fiber& other = fibers_[first + lane];
    if (other.state != State::kInExchange || other.mask != mask ||
        !is_same_place(other.where, fibers_[threadIdx.x].where))
      return;
    lanes.push_back(first + lane);
  }
  for (const unsigned lane : lanes) {
    fibers_[lane].taken = fibers_[first + fibers_[lane].source].brought;
    wake(lane);
  }
}

}  // namespace

std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned source,
                       std::source_location where) {
  return running->exchange(mask, bits, source, where);
}

unsigned lane_down(unsigned delta, unsigned width) {
  const unsigned lane = threadIdx.x % kWarp;
  return lane % width + delta < width ? lane + delta : lane;
}

cudaError_t run(const cudaLaunchConfig_t& config, const std::function<void()>& thread) {
  device.asked_blocks = config.gridDim.x;
  if (config.gridDim.x == 0 || config.blockDim.x == 0 || config.blockDim.x > kMaxThreads)
    return last_error = cudaErrorInvalidConfiguration;
  gridDim = std::min(config.gridDim.x, device.max_blocks);
  blockDim = config.blockDim;
  try {
    Block block(blockDim.x, thread);
    for (blockIdx = 0; blockIdx.x < gridDim.x; ++blockIdx.x) block.run();
  } catch (const std::exception& error) {
    why_it_failed = error.what();
    return last_error = cudaErrorLaunchFailure;
  }
  return cudaSuccess;
}

}  // namespace lockstep::cuda::host

void __syncthreads(std::source_location where) {
  lockstep::cuda::host::running->wait_for_all(where);
}

unsigned long long atomicAdd(unsigned long long* into, unsigned long long value) {
  return std::exchange(*into, *into + value);
}

// What -fsanitize=thread has the compiler call; nothing of the sanitizer itself is linked.
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void* /*caller*/) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void** /*table*/, void* /*value*/) {}
void before_access(void* /*address*/) {
  if (lockstep::cuda::host::running != nullptr) lockstep::cuda::host::running->maybe_pause();
}
void before_access_of_range(void* address, std::size_t /*bytes*/) { before_access(address); }
#define LS_ACCESS(name) void name(void*) __attribute__((alias("before_access")))
LS_ACCESS(__tsan_read1);
LS_ACCESS(__tsan_read2);
LS_ACCESS(__tsan_read4);
LS_ACCESS(__tsan_read8);
LS_ACCESS(__tsan_read16);
LS_ACCESS(__tsan_write1);
LS_ACCESS(__tsan_write2);
LS_ACCESS(__tsan_write4);
LS_ACCESS(__tsan_write8);
LS_ACCESS(__tsan_write16);
#define LS_RANGE(name) \
  void name(void*, std::size_t) __attribute__((alias("before_access_of_range")))
LS_RANGE(__tsan_read_range);
LS_RANGE(__tsan_write_range);
}

cudaError_t cudaGetLastError() {
  return std::exchange(lockstep::cuda::host::last_error, cudaSuccess);
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorLaunchFailure:
      return lockstep::cuda::host::why_it_failed.c_str();
  }
  return "unknown";
}
