// A workspace that lets a test stand between the executor and the real one, to falsify one thing.
#pragma once

#include <functional>
#include <span>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/exec/workspace.h"

namespace lockstep::train {

// What is absent is left alone. Each rank has its own, so that it may remember things.
struct Hooks {
  using Inner = exec::Workspace&;
  // In place of the computation.
  std::function<void(const program::Op&, const program::Effects&, Inner)> compute = {};
  // After memory became another value.
  std::function<void(const program::Value& from, const program::Value& to, Inner)> moved = {};
  // Which part of a reduced gradient belongs to replicated parameters.
  std::function<Buffer(int unit, Inner)> replicated_part = {};
  // Which parts belong to heads that several tensor ranks hold.
  std::function<std::vector<Buffer>(int unit, Inner)> copied_parts = {};
  // What the step is told in place of the world's count of tokens.
  std::function<std::int64_t(std::int64_t tokens, Inner)> count = {};
  // Changes what this rank brings to the norm.
  std::function<void(exec::StepSums&, Inner)> sums = {};
  // In place of telling the workspace the world's sums.
  std::function<void(const exec::StepSums&, Inner)> set_sums = {};
};

class HookedWorkspace final : public exec::Workspace {
 public:
  HookedWorkspace(exec::Workspace& inner, Hooks hooks) : inner_(inner), hooks_(std::move(hooks)) {}

  bool holds(const program::Value& value) const override { return inner_.holds(value); }
  Buffer create(const program::Value& value) override { return inner_.create(value); }
  Buffer buffer(const program::Value& value) override { return inner_.buffer(value); }
  void drop(const program::Value& value) override { inner_.drop(value); }
  void move(const program::Value& from, const program::Value& to) override {
    inner_.move(from, to);
    if (hooks_.moved) hooks_.moved(from, to, inner_);
  }
  void add(Buffer from, Buffer into) override { inner_.add(from, into); }
  void copy(Buffer from, Buffer into) override { inner_.copy(from, into); }
  void compute(const program::Op& op, const program::Effects& effects) override {
    hooks_.compute ? hooks_.compute(op, effects, inner_) : inner_.compute(op, effects);
  }
  Buffer tied_part(int unit) override { return inner_.tied_part(unit); }
  Buffer replicated_part(int unit) override {
    return hooks_.replicated_part ? hooks_.replicated_part(unit, inner_)
                                  : inner_.replicated_part(unit);
  }
  std::vector<Buffer> copied_parts(int unit) override {
    return hooks_.copied_parts ? hooks_.copied_parts(unit, inner_) : inner_.copied_parts(unit);
  }
  Buffer own_part(int unit) override { return inner_.own_part(unit); }
  std::int64_t valid_tokens() override { return inner_.valid_tokens(); }
  void set_count(std::int64_t tokens) override {
    inner_.set_count(hooks_.count ? hooks_.count(tokens, inner_) : tokens);
  }
  exec::StepSums sums() override {
    exec::StepSums sums = inner_.sums();
    if (hooks_.sums) hooks_.sums(sums, inner_);
    return sums;
  }
  void set_sums(const exec::StepSums& sums) override {
    hooks_.set_sums ? hooks_.set_sums(sums, inner_) : inner_.set_sums(sums);
  }

 private:
  exec::Workspace& inner_;
  const Hooks hooks_;
};

// The f64 elements of a buffer.
inline std::span<double> numbers(const Buffer& buffer) {
  LS_CHECK(buffer.dtype == DType::kF64, "not f64");
  return {static_cast<double*>(buffer.data), static_cast<std::size_t>(buffer.count)};
}

}  // namespace lockstep::train
