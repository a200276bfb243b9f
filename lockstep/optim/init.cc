#include "lockstep/optim/init.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <thread>

#include "lockstep/base/check.h"
#include "lockstep/base/random.h"

namespace lockstep::optim {
namespace {

template <class Element>
Element rounded(double value) {
  return static_cast<Element>(value);
}
template <>
at::BFloat16 rounded(double value) {
  return static_cast<at::BFloat16>(static_cast<float>(value));
}

template <class Element>
void write_param(const model::Param& param, const std::string& name, std::uint64_t seed,
                 std::int64_t begin, std::int64_t end, Draws* draws, Element* out) {
  switch (param.init.kind) {
    case model::InitKind::kOnes:
      std::fill(out, out + (end - begin), rounded<Element>(1));
      return;
    case model::InitKind::kZeros:
      std::fill(out, out + (end - begin), rounded<Element>(0));
      return;
    case model::InitKind::kNormal:
      break;
  }
  const auto write = [&](const double* normals, std::int64_t count, Element* into) {
    for (std::int64_t i = 0; i < count; ++i)
      into[i] = rounded<Element>(param.init.std * normals[i]);
  };
  if (draws != nullptr)
    return write(draws->normals(seed, name, param.numel())->data() + begin, end - begin, out);
  const RandomStream stream(seed, name);
  std::array<double, 1024> drawn;
  for (std::int64_t at = begin; at < end; at += std::ssize(drawn)) {
    const std::int64_t count = std::min<std::int64_t>(std::ssize(drawn), end - at);
    stream.normals(static_cast<std::uint64_t>(at), std::span(drawn).first(count));
    write(drawn.data(), count, out + (at - begin));
  }
}

template <class Element>
void write(const model::Model& model, int segment, const model::FlatLayout& layout,
           model::TensorPlace rank, model::FlatRange range, std::uint64_t seed, Draws* draws,
           Element* out) {
  std::fill(out, out + range.size(), rounded<Element>(0));
  const model::Unit& unit = model.unit(segment);
  for (const model::FlatRun& run : model::flat_runs(unit, layout, rank, range)) {
    const model::Param& own = unit.params[run.param];
    // The embedding's table is the first parameter of the first unit.
    const model::Param& source = own.tied ? model.unit(0).params.front() : own;
    const int layer = model::Model::layer(own.tied ? 0 : model.unit_of(segment));
    write_param(source, model::name_at(source.name, layer), seed, run.element,
                run.element + run.length, draws, out + (run.at - range.begin));
  }
}

// Calls `write` with pieces of `range`, on several threads at once.
template <class Write>
void write_pieces(const model::FlatRange& range, const Drawing& drawing, const Write& write) {
  constexpr std::int64_t kPiece = 65536;  // 3 ms
  std::atomic<std::int64_t> next = range.begin, written = 0;
  const auto take_one = [&] {
    const std::int64_t begin = next.fetch_add(kPiece);
    if (begin >= range.end) return false;
    const std::int64_t end = std::min(begin + kPiece, range.end);
    write(model::FlatRange{begin, end});
    written += end - begin;
    return true;
  };
  const std::int64_t threads = std::min<std::int64_t>(
      (range.size() + kPiece - 1) / kPiece,
      drawing.threads > 0 ? drawing.threads : std::thread::hardware_concurrency());
  std::vector<std::future<void>> others;  // they end before what they refer to
  for (std::int64_t i = 1; i < threads; ++i)
    others.push_back(std::async(std::launch::async, [&] {
      while (take_one()) continue;
    }));
  try {
    while (take_one())
      if (drawing.between) drawing.between(written.exchange(0));
    for (std::future<void>& other : others) other.get();
  } catch (...) {
    next = range.end;
    throw;
  }
  if (drawing.between && written > 0) drawing.between(written);
}

}  // namespace

std::shared_ptr<const std::vector<double>> Draws::normals(std::uint64_t seed,
                                                          const std::string& name,
                                                          std::int64_t count) {
  const std::lock_guard lock(mutex_);
  auto& known = known_[{seed, name}];
  if (!known) {
    std::vector<double> drawn(count);
    RandomStream(seed, name).normals(0, drawn);
    known = std::make_shared<const std::vector<double>>(std::move(drawn));
  }
  LS_CHECK(known->size() == static_cast<std::size_t>(count), count, " draws of ", name);
  return known;
}

void write_initial(const model::Model& model, int segment, const model::FlatLayout& layout,
                   model::FlatRange range, std::uint64_t seed, const at::Tensor& out,
                   model::TensorPlace place, const Drawing& drawing) {
  LS_CHECK(out.numel() == range.size() && out.is_contiguous() && out.is_cpu(),
           "initial values for ", range.size(), " elements into ", out.numel());
  const auto write_all = [&](auto* first) {
    write_pieces(range, drawing, [&](const model::FlatRange& piece) {
      write(model, segment, layout, place, piece, seed, drawing.known,
            first + (piece.begin - range.begin));
    });
  };
  if (out.scalar_type() == at::kDouble)
    write_all(out.mutable_data_ptr<double>());
  else if (out.scalar_type() == at::kBFloat16)
    write_all(out.mutable_data_ptr<at::BFloat16>());
  else
    write_all(out.mutable_data_ptr<float>());
}

}  // namespace lockstep::optim
