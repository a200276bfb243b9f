#include "lockstep/cuda/launch.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kWords = 71;               // of an ExactSum
constexpr int kLanes = 8;                // running sums of a tile
constexpr std::int64_t kTile = 256;      // elements
constexpr std::int64_t kIgnored = -100;  // a label

// A block's words are added up in its own memory first, because all of them hit a few.
class BlockWords {
 public:
  __device__ explicit BlockWords(unsigned long long* shared) : shared_(shared) {
    for (int i = threadIdx.x; i < kWords; i += blockDim.x) shared_[i] = 0;
    __syncthreads();
  }
  __device__ void add(double x) {
    optim::add_exactly(x, [this](int word, std::int64_t value) {
      atomicAdd(&shared_[word], static_cast<unsigned long long>(value));
    });
  }
  __device__ void flush(std::int64_t* words) {
    __syncthreads();
    for (int i = threadIdx.x; i < kWords; i += blockDim.x)
      if (shared_[i] != 0) atomicAdd(reinterpret_cast<unsigned long long*>(words + i), shared_[i]);
  }

 private:
  unsigned long long* shared_;
};

// Elements [begin, end) by eight threads side by side, each a lane of the CPU's order
// (optim/squares.cc); the first has the sum.
template <class T>
__device__ double sum_of_squares(const T* x, std::int64_t begin, std::int64_t end, int lane) {
  double sum = 0;
  const std::int64_t whole = begin + (end - begin) / kLanes * kLanes;
  for (std::int64_t i = begin + lane; i < whole; i += kLanes) {
    const double value = static_cast<double>(x[i]);
    sum += value * value;
  }
  if (lane == 0)
    for (std::int64_t i = whole; i < end; ++i) {
      const double value = static_cast<double>(x[i]);
      sum += value * value;
    }
  for (int distance = 1; distance < kLanes; distance *= 2)
    sum += __shfl_down_sync(0xffffffff, sum, distance, kLanes);
  return sum;
}

template <class T>
__global__ void add_squares(const T* grad, std::int64_t count, Holes holes, std::int64_t* words) {
  __shared__ unsigned long long shared[kWords];
  BlockWords block(shared);
  const int lane = threadIdx.x % kLanes;
  const std::int64_t tiles = (count + kTile - 1) / kTile;
  // All threads of a warp make the same number of rounds.
  const std::int64_t per_round = stride() / kLanes;
  for (std::int64_t base = 0; base < tiles; base += per_round) {
    const std::int64_t tile = base + first_index() / kLanes;
    std::int64_t from = tile * kTile, end = from + kTile < count ? from + kTile : count;
    if (from > end) from = end;
    for (int hole = 0; hole <= Holes::kMost; ++hole) {
      std::int64_t until = end, next = end;
      if (hole < Holes::kMost) {
        const bool meets = holes.begin[hole] < end && holes.end[hole] > from &&
                           holes.begin[hole] < holes.end[hole];
        until = meets ? (holes.begin[hole] > from ? holes.begin[hole] : from) : from;
        next = meets ? (holes.end[hole] < end ? holes.end[hole] : end) : from;
      }
      const double sum = sum_of_squares(grad, from, until, lane);
      if (lane == 0 && from < until) block.add(sum);
      from = next;
    }
  }
  block.flush(words);
}

template <class T>
__global__ void add_losses(const T* log_probs, const std::int64_t* labels, std::int64_t count,
                           std::int64_t* words) {
  __shared__ unsigned long long shared[kWords];
  BlockWords block(shared);
  for (std::int64_t i = first_index(); i < count; i += stride())
    if (labels[i] != kIgnored) block.add(-static_cast<double>(log_probs[i]));
  block.flush(words);
}

template <class T>
void start_squares(const T* grad, std::int64_t count, const Holes& holes, std::int64_t* words,
                   Stream stream) {
  if (count == 0) return;
  const std::int64_t tiles = (count + kTile - 1) / kTile;
  launch(add_squares<T>, blocks_for(tiles * kLanes), stream, grad, count, holes, words);
}

template <class T>
void start_losses(const T* log_probs, const std::int64_t* labels, std::int64_t count,
                  std::int64_t* words, Stream stream) {
  if (count == 0) return;
  launch(add_losses<T>, blocks_for(count), stream, log_probs, labels, count, words);
}

}  // namespace

void launch_add_squares(const float* grad, std::int64_t count, const Holes& holes,
                        std::int64_t* words, Stream stream) {
  start_squares(grad, count, holes, words, stream);
}
void launch_add_squares(const double* grad, std::int64_t count, const Holes& holes,
                        std::int64_t* words, Stream stream) {
  start_squares(grad, count, holes, words, stream);
}
void launch_add_losses(const float* log_probs, const std::int64_t* labels, std::int64_t count,
                       std::int64_t* words, Stream stream) {
  start_losses(log_probs, labels, count, words, stream);
}
void launch_add_losses(const double* log_probs, const std::int64_t* labels, std::int64_t count,
                       std::int64_t* words, Stream stream) {
  start_losses(log_probs, labels, count, words, stream);
}

}  // namespace lockstep::cuda
