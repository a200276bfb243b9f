#include "lockstep/train/whole_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"
#include "lockstep/comm/texts.h"

namespace lockstep::train {
namespace {

constexpr std::int64_t kBias = 4;  // bytes of a selection bias
constexpr std::int64_t kWord = 4;  // of what is sent, which all types divide into

std::vector<OwnSlice> weights_of(const Job& job, Session& session) {
  std::vector<OwnSlice> slices = own_slices(job, session);
  std::erase_if(slices, [](const OwnSlice& own) {
    return !own.is_bias && own.role != runtime::StateRole::kParameter;
  });
  return slices;
}

Json to_json(const std::vector<OwnSlice>& slices) {
  return Json::list(slices, [](const OwnSlice& own) {
    const checkpoint::Slice& slice = own.typed.slice;
    return Json::array({slice.tensor, Json::list(slice.box.begin), Json::list(slice.box.extent),
                        slice.begin, slice.end, own.is_bias});
  });
}

std::vector<std::int64_t> numbers_in(const Json& json) {
  std::vector<std::int64_t> numbers;
  for (const Json& one : json.items()) numbers.push_back(one.as_int());
  return numbers;
}

}  // namespace

WholeWeights::WholeWeights(const Job& job, Session& session, comm::World& world, Seconds deadline)
    : job_(job),
      session_(session),
      is_first_(world.rank().value == 0),
      deadline_(deadline),
      own_(weights_of(job, session)),
      all_(world.connect_all("whole weights", kCheckpointAxis, Deadline::after(deadline))) {
  for (checkpoint::Slice& slice : model_slices(job.model, checkpoint::Role::kWeight))
    slices_.emplace(slice.tensor, std::move(slice));
  for (const std::string& text :
       comm::gather_texts(*all_, to_json(own_).dump(), Deadline::after(deadline))) {
    std::vector<Part> parts;
    const Json told = Json::parse(text).value();
    for (const Json& one : told.items()) {
      const auto& items = one.items();
      const auto whole = slices_.find(items[0].as_text());
      LS_CHECK(whole != slices_.end(), "no weight is called ", items[0].as_text());
      Part part{whole->second, items[5].as_bool()};
      part.slice.box = {numbers_in(items[1]), numbers_in(items[2])};
      part.slice.begin = items[3].as_int();
      part.slice.end = items[4].as_int();
      parts.push_back(std::move(part));
    }
    parts_.push_back(std::move(parts));
  }
}

DType WholeWeights::type() const { return wide_type(job_.workspace.unit.dtype); }

std::int64_t WholeWeights::width(bool is_bias) const {
  return is_bias ? kBias : type() == DType::kF64 ? 8 : 4;
}

std::int64_t WholeWeights::bytes() const {
  std::int64_t sum = 0;
  for (const auto& [name, slice] : slices_) sum += slice.size() * width(false);
  return sum;
}

std::vector<std::byte> WholeWeights::own_bytes() {
  std::vector<std::byte> bytes;
  for (const OwnSlice& own : own_) {
    const at::Tensor from = elements_of(own, session_).cpu().contiguous();
    const std::size_t at = bytes.size();
    bytes.resize(at + from.nbytes());
    std::memcpy(bytes.data() + at, from.const_data_ptr(), from.nbytes());
  }
  return bytes;
}

void WholeWeights::gather() {
  whole_.clear();
  std::vector<std::byte> bytes = own_bytes();
  const auto buffer = [](std::vector<std::byte>& of) {
    return Buffer{of.data(), std::ssize(of) / kWord, DType::kF32, {}};
  };
  if (!is_first_) {
    all_->send(buffer(bytes), 0, 0, Deadline::after(deadline_)).wait();
    return;
  }
  for (const auto& [name, slice] : slices_)
    whole_[name].resize(static_cast<std::size_t>(slice.size() * width(false)));
  for (int rank = 0; rank < std::ssize(parts_); ++rank) {
    if (rank > 0) {
      std::int64_t size = 0;
      for (const Part& part : parts_[rank]) size += part.slice.size() * width(part.is_bias);
      bytes.resize(static_cast<std::size_t>(size));
      all_->recv(buffer(bytes), rank, 0, Deadline::after(deadline_)).wait();
    }
    place(parts_[rank], bytes);
  }
}

// Slices lie one behind the other.
void WholeWeights::place(const std::vector<Part>& parts, std::span<const std::byte> bytes) {
  const std::int64_t wide = width(false);
  for (const Part& part : parts) {
    std::byte* const into = whole_[part.slice.tensor].data();
    for (const checkpoint::Run& run : common_runs(part.slice, slices_.at(part.slice.tensor))) {
      const std::byte* from = bytes.data() + run.source * width(part.is_bias);
      if (part.is_bias && wide != kBias)
        for (std::int64_t i = 0; i < run.length; ++i) {
          float value = 0;
          std::memcpy(&value, from + i * kBias, sizeof value);
          const double widened = value;
          std::memcpy(into + (run.target + i) * wide, &widened, sizeof widened);
        }
      else
        std::memcpy(into + run.target * wide, from, static_cast<std::size_t>(run.length * wide));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(part.slice.size() * width(part.is_bias)));
  }
}

Result<void> WholeWeights::read(const std::string& name, std::int64_t first,
                                std::span<std::byte> out) const {
  const auto found = whole_.find(name);
  if (found == whole_.end())
    return Error{Code::kBug, join_parts("no weight `", name, "` was gathered"), ""};
  LS_CHECK(static_cast<std::size_t>(first * width(false)) + out.size() <= found->second.size());
  std::memcpy(out.data(), found->second.data() + first * width(false), out.size());
  return {};
}

}  // namespace lockstep::train
