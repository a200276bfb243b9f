// A workspace without a model: values are plain memory of a given size, and computation takes a
// given time. For measuring the executor, the overlap of its lanes, and for finding races. Memory
// is used again and again, so that after the first step nothing but computation takes time.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "lockstep/base/units.h"
#include "lockstep/exec/workspace.h"

namespace lockstep::exec {

class SyntheticWorkspace final : public Workspace {
 public:
  using Count = std::function<std::int64_t(const program::Value&)>;  // elements of f32
  using Length = std::function<Seconds(const program::Op&)>;

  // Holds what is live between steps from the start. `shard_index` is this rank's place among those
  // that share a unit's parameters, `expert_shard` among those that share its experts'.
  SyntheticWorkspace(const program::Program& program, Coord coord, int shard_index, Count count,
                     Length length, int expert_shard = 0);

  bool holds(const program::Value& value) const override { return values_.contains(value); }
  Buffer create(const program::Value& value) override;
  Buffer buffer(const program::Value& value) override;
  void drop(const program::Value& value) override;
  void move(const program::Value& from, const program::Value& to) override;
  void add(Buffer from, Buffer into) override;
  void copy(Buffer from, Buffer into) override;
  void compute(const program::Op& op, const program::Effects& effects) override;
  Buffer tied_part(int unit) override;
  Buffer replicated_part(int segment) override { return tied_part(segment); }
  std::vector<Buffer> copied_parts(int /*segment*/) override { return {}; }
  Buffer own_part(int segment) override;
  std::int64_t valid_tokens() override { return 1; }
  void set_count(std::int64_t tokens) override { count_ = tokens; }
  StepSums sums() override;
  void set_sums(const StepSums& /*sums*/) override {}

  std::int64_t tokens() const { return count_; }

 private:
  program::StepShape step_;
  int shard_index_, expert_shard_;
  Count count_of_;
  Length length_of_;
  std::int64_t count_ = 0;
  std::map<program::Value, std::vector<float>> values_;
  std::map<std::size_t, std::vector<std::vector<float>>> unused_;  // by size
};

}  // namespace lockstep::exec
