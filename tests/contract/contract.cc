#include "tests/contract/contract.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>

#include "lockstep/base/block_cache.h"
#include "lockstep/base/random.h"

namespace lockstep::comm::contract {
namespace {

// Data repeats with a prime period, so that megabytes are made and compared at memory speed, while
// a piece that landed anywhere but in its place still shows: no size in use is a multiple of the
// period.
constexpr std::int64_t kPeriod = 4099;
constexpr Seconds kPatience{60};

using Table = std::vector<std::byte>;

// Memory of one case. Blocks are reused: fresh pages for every 64 MiB would take most of the time.
class Memory {
 public:
  explicit Memory(std::int64_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(cache().take(capacity()))) {
    if (bytes > 0) std::memset(data_, 0x5a, static_cast<std::size_t>(bytes));
  }
  ~Memory() { cache().give(data_, capacity()); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() { return data_; }
  std::int64_t size() const { return bytes_; }

 private:
  static BlockCache& cache() {
    static BlockCache blocks(std::size_t{4} << 30);
    return blocks;
  }
  std::size_t capacity() const {
    return static_cast<std::size_t>(std::max<std::int64_t>(bytes_, 1));
  }

  std::int64_t bytes_;
  std::byte* data_;
};

std::int64_t width(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

template <class T>
void put(Table& table, std::int64_t i, T value) {
  std::memcpy(table.data() + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}
template <class T>
T get(const Table& table, std::int64_t i) {
  T value;
  std::memcpy(&value, table.data() + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

std::uint16_t to_bf16(float x) {  // nearest even, by way of arithmetic instead of bit tricks
  const float step = std::ldexp(1.0f, std::ilogb(x) - 7);
  const float rounded = x == 0 ? x : std::nearbyint(x / step) * step;
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded) >> 16);
}
float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// One period of member `member`'s data: magnitudes spread over six decades, so that the order of
// additions shows.
Table make_period(DType dtype, int member) {
  const RandomStream random(7, "contract/" + std::to_string(member) + std::string(to_text(dtype)));
  Table table(static_cast<std::size_t>(kPeriod * width(dtype)));
  for (std::int64_t i = 0; i < kPeriod; ++i) {
    const auto index = static_cast<std::uint64_t>(2 * i);
    const double real = random.normal(index) * std::pow(10.0, 6 * random.uniform(index + 1) - 3);
    switch (dtype) {
      case DType::kF64:
        put(table, i, real);
        break;
      case DType::kF32:
        put(table, i, static_cast<float>(real));
        break;
      case DType::kBF16:
        put(table, i, to_bf16(static_cast<float>(real)));
        break;
      case DType::kI64:
        put(table, i, random.bits(index));
        break;
      default:
        put(table, i, static_cast<std::uint8_t>(random.bits(index)));
    }
  }
  return table;
}

// Made once per process: ranks that are threads share them.
const Table& period_of(DType dtype, int member) {
  static std::mutex mutex;
  static std::map<std::pair<DType, int>, Table> tables;
  std::lock_guard lock(mutex);
  Table& table = tables[{dtype, member}];
  if (table.empty()) table = make_period(dtype, member);
  return table;
}

// The tree of tree_sum.h, evaluated one element at a time.
template <class T>
T tree(std::span<const T> leaves) {
  if (leaves.size() == 1) return leaves[0];
  std::size_t half = 1;
  while (2 * half < leaves.size()) half *= 2;
  return static_cast<T>(tree(leaves.first(half)) + tree(leaves.subspan(half)));
}

template <class T, class Load, class Store>
Table sum_with(const std::vector<Table>& tables, DType dtype, Load load, Store store) {
  Table sums(static_cast<std::size_t>(kPeriod * width(dtype)));
  std::vector<T> leaves(tables.size());
  for (std::int64_t i = 0; i < kPeriod; ++i) {
    for (std::size_t m = 0; m < tables.size(); ++m) leaves[m] = load(tables[m], i);
    store(sums, i, tree<T>(leaves));
  }
  return sums;
}

Table sum_of(const std::vector<Table>& tables, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return sum_with<double>(tables, dtype, get<double>, put<double>);
    case DType::kF32:
      return sum_with<float>(tables, dtype, get<float>, put<float>);
    case DType::kI64:
      return sum_with<std::uint64_t>(tables, dtype, get<std::uint64_t>, put<std::uint64_t>);
    default:
      return sum_with<float>(
          tables, dtype,
          [](const Table& t, std::int64_t i) { return from_bf16(get<std::uint16_t>(t, i)); },
          [](Table& t, std::int64_t i, float x) { put(t, i, to_bf16(x)); });
  }
}

// Writes or compares `bytes` of the endless repetition of `period` from byte `from` on.
void fill(std::byte* to, std::int64_t bytes, const Table& period, std::int64_t from) {
  const auto length = static_cast<std::int64_t>(period.size());
  for (std::int64_t at = 0; at < bytes;) {
    const std::int64_t phase = (from + at) % length;
    const std::int64_t step = std::min(bytes - at, length - phase);
    std::memcpy(to + at, period.data() + phase, static_cast<std::size_t>(step));
    at += step;
  }
}
bool matches(const std::byte* data, std::int64_t bytes, const Table& period, std::int64_t from) {
  const auto length = static_cast<std::int64_t>(period.size());
  for (std::int64_t at = 0; at < bytes;) {
    const std::int64_t phase = (from + at) % length;
    const std::int64_t step = std::min(bytes - at, length - phase);
    if (std::memcmp(data + at, period.data() + phase, static_cast<std::size_t>(step)) != 0)
      return false;
    at += step;
  }
  return true;
}

// The cases of one group. `seed member`: data depends on the world rank, so groups cannot be
// confused.
class Suite {
 public:
  Suite(Communicator& comm, Ledger& ledger, Report& report)
      : comm_(comm), ledger_(ledger), report_(report) {}

  void run_dtype(DType dtype, const std::vector<std::int64_t>& sizes) {
    dtype_ = dtype;
    tables_.clear();
    for (const Rank rank : comm_.membership().members)
      tables_.push_back(period_of(dtype, rank.value));
    const bool sums = dtype != DType::kU8;
    if (sums) sum_ = sum_of(tables_, dtype);
    for (const std::int64_t bytes : sizes) {
      const std::int64_t count = bytes < 0 ? -bytes : bytes / width(dtype);  // negative: elements
      for (const bool in_place : {false, true}) all_gather(count, in_place);
      if (sums)
        for (const bool in_place : {false, true}) reduce_scatter(count, in_place);
      if (sums) all_reduce(count);
      all_to_all(count);
      broadcast(count);
      exchange(count);
    }
  }

  void run_together() {
    dtype_ = DType::kF32;
    tables_.clear();
    for (const Rank rank : comm_.membership().members)
      tables_.push_back(period_of(dtype_, rank.value));
    sum_ = sum_of(tables_, dtype_);
    in_flight_together();
    there_and_back();
    barrier();
  }

 private:
  int n() const { return comm_.size(); }
  int me() const { return comm_.index(); }
  const Table& table(int member) const { return tables_[static_cast<std::size_t>(member)]; }
  Deadline soon() const { return Deadline::after(kPatience); }
  Buffer buffer(Memory& bytes) const {
    return {bytes.data(), bytes.size() / width(dtype_), dtype_, {}};
  }
  Memory make(std::int64_t count) const { return Memory(count * width(dtype_)); }
  void fill_own(Memory& bytes) const { fill(bytes.data(), bytes.size(), table(me()), 0); }

  void verdict(bool good, OpKind op, std::int64_t sent, std::int64_t count,
               const std::string& note = "") {
    ++report_.cases;
    const Bytes counted = ledger_.entry(comm_.membership().axis, op).sent;
    ledger_.clear();
    if (good && counted.value == sent) return;
    report_.failures.push_back(
        comm_.describe() + ": " + std::string(to_text(op)) + " of " + std::to_string(count) + " " +
        std::string(to_text(dtype_)) + note +
        (good ? ": ledger " + std::to_string(counted.value) + ", expected " + std::to_string(sent)
              : ": wrong data"));
  }

  void all_gather(std::int64_t count, bool in_place) {
    const std::int64_t piece = (count + n() - 1) / n(), bytes = piece * width(dtype_);
    Memory in = make(in_place ? 0 : piece);
    Memory out = make(piece * n());
    std::byte* own = in_place ? out.data() + me() * bytes : in.data();
    fill(own, bytes, table(me()), 0);
    comm_.all_gather({own, piece, dtype_}, buffer(out), soon()).wait();
    bool good = true;
    for (int m = 0; m < n(); ++m)
      good = good && matches(out.data() + m * bytes, bytes, table(m), 0);
    verdict(good, OpKind::kAllGather, bytes * (n() - 1), count, in_place ? " in place" : "");
  }

  void reduce_scatter(std::int64_t count, bool in_place) {
    const std::int64_t piece = (count + n() - 1) / n(), bytes = piece * width(dtype_);
    Memory in = make(piece * n());
    Memory out = make(in_place ? 0 : piece);
    fill_own(in);
    std::byte* own = in_place ? in.data() + me() * bytes : out.data();
    comm_.reduce_scatter(buffer(in), {own, piece, dtype_, {}}, soon()).wait();
    const bool good = matches(own, bytes, sum_, me() * bytes);
    verdict(good, OpKind::kReduceScatter, bytes * (n() - 1), count, in_place ? " in place" : "");
  }

  void all_reduce(std::int64_t count) {
    Memory data = make(count);
    fill_own(data);
    comm_.all_reduce(buffer(data), soon()).wait();
    const std::int64_t padded = (count + n() - 1) / n() * n();
    verdict(matches(data.data(), count * width(dtype_), sum_, 0), OpKind::kAllReduce,
            2 * padded / n() * width(dtype_) * (n() - 1), count);
  }

  // Member i sends to member j a share that grows with (i + 2j) mod n, so sizes differ and some are
  // zero.
  void all_to_all(std::int64_t count) {
    const auto share = [&](int from, int to) {
      return count / (n() * n()) * ((from + 2 * to) % n()) + (to == from ? 1 : 0);
    };
    std::vector<std::int64_t> send_counts, recv_counts;
    for (int m = 0; m < n(); ++m) {
      send_counts.push_back(share(me(), m));
      recv_counts.push_back(share(m, me()));
    }
    Memory in = make(std::accumulate(send_counts.begin(), send_counts.end(), std::int64_t{0}));
    Memory out = make(std::accumulate(recv_counts.begin(), recv_counts.end(), std::int64_t{0}));
    fill_own(in);
    comm_.all_to_all(buffer(in), send_counts, buffer(out), recv_counts, soon()).wait();
    bool good = true;
    std::int64_t at = 0;
    for (int m = 0; m < n(); ++m) {
      std::int64_t before = 0;  // where my piece starts in member m's input
      for (int k = 0; k < me(); ++k) before += share(m, k) * width(dtype_);
      const std::int64_t bytes = share(m, me()) * width(dtype_);
      good = good && matches(out.data() + at, bytes, table(m), before);
      at += bytes;
    }
    const auto own = send_counts[static_cast<std::size_t>(me())] * width(dtype_);
    verdict(good, OpKind::kAllToAll, in.size() - own, count);
  }

  void broadcast(std::int64_t count) {
    const int root = static_cast<int>(count % n());
    Memory data = make(count);
    if (me() == root) fill_own(data);
    comm_.broadcast(buffer(data), root, soon()).wait();
    const auto bytes = data.size();
    verdict(matches(data.data(), bytes, table(root), 0), OpKind::kBroadcast,
            me() == root ? bytes * (n() - 1) : 0, count);
  }

  // Both directions at once with both neighbours, two tags, received in the opposite order of
  // sending.
  void exchange(std::int64_t count) {
    if (n() == 1) return;
    const int next = (me() + 1) % n(), last = (me() + n() - 1) % n();
    Memory mine = make(count);
    Memory from_next = make(count);
    Memory from_last = make(count);
    fill_own(mine);
    Work s1 = comm_.send(buffer(mine), next, 1, soon());
    Work s2 = comm_.send(buffer(mine), last, 2, soon());
    Work r2 = comm_.recv(buffer(from_next), next, 2, soon());
    Work r1 = comm_.recv(buffer(from_last), last, 1, soon());
    for (Work* work : {&r1, &r2, &s2, &s1}) work->wait();
    const auto bytes = mine.size();
    verdict(matches(from_next.data(), bytes, table(next), 0) &&
                matches(from_last.data(), bytes, table(last), 0),
            OpKind::kSend, 2 * bytes, count);
  }

  // Three operations before the first wait; the second reads what the first writes.
  void in_flight_together() {
    const std::int64_t piece = 640, bytes = piece * width(dtype_);
    Memory in = make(piece * n());
    Memory shard = make(piece);
    Memory out = make(piece * n());
    Memory extra = make(1000);
    fill_own(in);
    fill_own(extra);
    const SteadyPoint issued = std::chrono::steady_clock::now();
    Work a = comm_.reduce_scatter(buffer(in), buffer(shard), soon());
    Work b = comm_.all_gather(buffer(shard), buffer(out), soon());
    Work c = comm_.all_reduce(buffer(extra), soon());
    std::vector<std::optional<Ran>> ran;
    for (Work* work : {&c, &b, &a}) ran.insert(ran.begin(), work->wait());
    verdict(ran_in_order(issued, ran) &&
                matches(out.data(), piece * n() * width(dtype_), sum_, 0) &&
                matches(extra.data(), 1000 * width(dtype_), sum_, 0) &&
                matches(shard.data(), bytes, sum_, me() * bytes),
            OpKind::kAllGather, bytes * (n() - 1), piece, " in flight together");
  }

  // Of every collective it is known when it ran; alone there is nothing to run.
  bool ran_in_order(SteadyPoint issued, const std::vector<std::optional<Ran>>& ran) const {
    const bool tells = n() > 1;
    SteadyPoint last = issued;
    for (const std::optional<Ran>& one : ran) {
      if (one.has_value() != tells) return false;
      if (!tells) continue;
      if (one->begin < last || one->end < one->begin) return false;
      last = one->end;
    }
    return last <= std::chrono::steady_clock::now();
  }

  // The shape of an all_reduce, but through another buffer.
  void there_and_back() {
    // The larger one is more than a segment of the gloo row.
    const std::vector<std::int64_t> pieces =
        n() <= 8 ? std::vector<std::int64_t>{640, 700'001} : std::vector<std::int64_t>{640};
    for (const std::int64_t piece : pieces) {
      const std::int64_t bytes = piece * width(dtype_);
      Memory full = make(piece * n());
      Memory shard = make(piece);
      fill_own(full);
      Work a = comm_.reduce_scatter(buffer(full), buffer(shard), soon());
      Work b = comm_.all_gather(buffer(shard), buffer(full), soon());
      for (Work* work : {&b, &a}) work->wait();
      verdict(matches(full.data(), piece * n() * width(dtype_), sum_, 0), OpKind::kAllGather,
              bytes * (n() - 1), piece, " there and back");
    }
  }

  void barrier() {
    for (int round = 0; round < 3; ++round) comm_.barrier(soon()).wait();
    verdict(true, OpKind::kBarrier, 0, 3);
  }

  Communicator& comm_;
  Ledger& ledger_;
  Report& report_;
  DType dtype_ = DType::kF32;
  std::vector<Table> tables_;
  Table sum_;
};

std::vector<Rank> ranks_where(const std::function<bool(int)>& keep) {
  std::vector<Rank> ranks;
  for (int r = 0; r < 8; ++r)
    if (keep(r)) ranks.push_back(Rank{r});
  return ranks;
}

// A 2x2x2 mesh: every pair along an axis and every plane, each rank connecting only what it belongs
// to.
void run_subgroups(World& world, Report& report) {
  const int me = world.rank().value;
  for (int fixed = 1; fixed < 7; ++fixed) {  // bits of the rank shared by all members
    const std::string name = "mesh" + std::to_string(fixed) + "." + std::to_string(me & fixed);
    auto comm = world.connect(name, "axis" + std::to_string(fixed),
                              ranks_where([&](int r) { return (r & fixed) == (me & fixed); }),
                              Deadline::after(kPatience));
    Suite suite(*comm, world.ledger(), report);
    suite.run_dtype(DType::kF32, {0, -1, -1013, 1 << 10});
    suite.run_together();
  }
}

}  // namespace

Report run(World& world, Extent extent) {
  Report report;
  std::vector<Rank> all;
  for (int r = 0; r < world.size(); ++r) all.push_back(Rank{r});
  auto comm = world.connect("world", "world", all, Deadline::after(kPatience));
  Suite suite(*comm, world.ledger(), report);
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI64, DType::kU8})
    suite.run_dtype(dtype, {0, -1, -1013, 1 << 10, extent.largest_bytes});
  suite.run_together();
  if (world.size() == 8) run_subgroups(world, report);
  return report;
}

}  // namespace lockstep::comm::contract
