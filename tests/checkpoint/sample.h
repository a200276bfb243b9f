// Checkpoints of made-up tensors whose every element tells where it belongs, cut at random.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/file_writer.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/manifest.h"

namespace lockstep::checkpoint {

using Dice = std::mt19937_64;
inline std::int64_t roll(Dice& dice, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(dice);
}

// A path for a test's files: in memory where the machine can, because tests rewrite them thousands
// of times.
inline std::string scratch(const std::string& name) {
  const bool in_memory = ::access("/dev/shm", W_OK) == 0;
  return (in_memory ? "/dev/shm/lockstep-" + std::to_string(::getpid()) + "-"
                    : testing::TempDir()) +
         name;
}

struct SampleTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

inline float value_at(const Slice& slice, std::int64_t global_element, std::int64_t salt) {
  return static_cast<float>(xxh3_64(slice.tensor + entry_name(slice) +
                                    std::to_string(global_element + 1'000'003 * salt)) %
                            1'000'000);
}

// In row-major order of the whole tensor, for each element of the slice; element by element, so
// that it is an oracle.
inline std::vector<std::int64_t> elements_of(const Slice& slice) {
  std::vector<std::int64_t> found;
  for (std::int64_t at = slice.begin; at < slice.end; ++at) {
    std::int64_t rest = at, global = 0, stride = 1;
    for (std::size_t dim = slice.shape.size(); dim-- > 0;) {
      global += (slice.box.begin[dim] + rest % slice.box.extent[dim]) * stride;
      rest /= slice.box.extent[dim];
      stride *= slice.shape[dim];
    }
    found.push_back(global);
  }
  return found;
}

inline std::vector<float> values_of(const Slice& slice, std::int64_t salt) {
  std::vector<float> values;
  for (const std::int64_t element : elements_of(slice))
    values.push_back(value_at(slice, element, salt));
  return values;
}

// The tensor in random boxes, each in random ranges.
inline std::vector<Slice> random_cut(const SampleTensor& tensor, Role role, Dice& dice) {
  std::vector<Box> boxes = {whole(tensor.shape)};
  if (!tensor.shape.empty()) {
    const auto dim =
        static_cast<std::size_t>(roll(dice, 0, static_cast<std::int64_t>(tensor.shape.size()) - 1));
    const std::int64_t at = roll(dice, 0, tensor.shape[dim]);
    if (at > 0 && at < tensor.shape[dim]) {
      boxes.push_back(boxes[0]);
      boxes[0].extent[dim] = at;
      boxes[1].begin[dim] = at;
      boxes[1].extent[dim] -= at;
    }
  }
  std::vector<Slice> slices;
  for (const Box& box : boxes) {
    const std::int64_t middle = roll(dice, 0, box.volume());
    slices.push_back({tensor.name, role, tensor.shape, box, 0, middle});
    slices.push_back({tensor.name, role, tensor.shape, box, middle, box.volume()});
  }
  return slices;
}

inline const std::vector<SampleTensor>& sample_tensors() {
  static const std::vector<SampleTensor> kMade = {
      {"embed.weight", {11, 6}}, {"blocks.0.norm", {7}}, {"cube", {3, 4, 5}}, {"scalar", {}}};
  return kMade;
}

// Written by up to `writers` files into a folder of begin_save, of that step.
inline Manifest write_sample(files::Disk& disk, const std::string& temporary, std::int64_t step,
                             int writers, std::int64_t salt, Dice& dice) {
  std::vector<std::vector<TypedSlice>> by_writer(static_cast<std::size_t>(writers));
  for (const SampleTensor& tensor : sample_tensors())
    for (const Role role : kAllRoles) {
      std::size_t writer = 0;
      for (Slice& slice : random_cut(tensor, role, dice))
        by_writer[writer++ % by_writer.size()].push_back({std::move(slice)});
    }
  std::vector<Manifest> parts;
  for (int writer = 0; writer < writers; ++writer) {
    // One slice of a name fits into a file; more of them go to further files.
    for (auto left = std::move(by_writer[static_cast<std::size_t>(writer)]); !left.empty();) {
      std::vector<TypedSlice> here, later;
      std::set<std::string> names;
      for (TypedSlice& slice : left)
        (names.insert(entry_name(slice.slice)).second ? here : later).push_back(std::move(slice));
      left = std::move(later);
      FileWriter file(disk, temporary, file_name(static_cast<int>(parts.size())), std::move(here));
      for (const TypedSlice& slice : file.order()) {
        const auto values = values_of(slice.slice, salt);
        file.write(std::as_bytes(std::span(values)));
      }
      parts.push_back(file.finish());
    }
  }
  Manifest manifest = join(std::move(parts)).value();
  manifest.step = step;
  manifest.samples = 16 * step;
  manifest.tokens = 1000 * step;
  manifest.updates = step;
  manifest.model = {{"layers", "2"}, {"hidden", "32"}};
  manifest.config = {{"seed", "1"}, {"lr", "0.1"}, {"global_batch", "16"}, {"seq", "64"}};
  manifest.data = "made up";
  manifest.state = {{"noise", "0x1p-3"}};
  manifest.layout = "dp2";
  manifest.lockstep = "0.1.0";
  manifest.torch = "2";
  return manifest;
}

inline std::string save_sample(files::Disk& disk, const std::string& folder, std::int64_t step,
                               Dice& dice, int writers = 2) {
  const std::string temporary = begin_save(disk, folder, step, "n" + std::to_string(step));
  const Manifest manifest = write_sample(disk, temporary, step, writers, step, dice);
  return publish(disk, folder, temporary, manifest);
}

}  // namespace lockstep::checkpoint
