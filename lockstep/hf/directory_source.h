// The parameters of a Hugging Face directory, as those of a checkpoint are read.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "lockstep/hf/export.h"
#include "lockstep/hf/import.h"

namespace lockstep::hf {

// Refers to the directory. One thread at a time.
class DirectorySource final : public ParamSource {
 public:
  explicit DirectorySource(const Directory& directory);

  DType type() const override { return type_; }  // the widest that its weights are stored in
  // Refuses weights that are not finite (LS0841). REQUIRES: whole rows of a parameter that is
  // there.
  Result<void> read(const std::string& name, const std::vector<std::int64_t>& shape,
                    std::int64_t first, std::span<std::byte> out) override;

 private:
  std::map<std::string_view, std::vector<const HfParams::Place*>> places_;  // by expert
  DType type_;
  std::vector<std::byte> stored_;
};

}  // namespace lockstep::hf
