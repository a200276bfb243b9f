// Writes down what a pass of a unit does: memory taken and given back, collectives of the tensor
// ranks. Internal to model: block_passes.cc and end_passes.cc walk through the passes of nn with
// it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/pass_bytes.h"
#include "lockstep/model/unit_dims.h"
#include "lockstep/model/unit_traffic.h"

namespace lockstep::model {

struct PassRecord {
  MemoryEvents events;
  std::vector<TensorCollective> collectives;
};

// Knows what is live, so that a name is enough to give something back.
class PassRecorder {
 public:
  PassRecorder(const UnitDims& dims, const UnitSizes& sizes)
      : d_(dims),
        tp_(sizes.tp),
        threads_(sizes.threads),
        gathers_(sizes.sequence_parallel && sizes.tp > 1) {}

  // Live before the pass.
  void hold(const std::vector<UnitTensor>& tensors);
  void hold(const std::string& name, std::int64_t bytes);

  void take(const std::string& name, std::int64_t bytes);
  void give(const std::string& name);
  // Scratch of one kernel.
  void moment(const std::string& name, std::int64_t bytes);

  // [T, h] and this rank's rows of it between the parts that tensor parallelism cuts.
  std::int64_t whole() const { return d_.tokens * d_.h * d_.s; }
  std::int64_t path() const { return d_.path * d_.h * d_.s; }
  bool gathers() const { return gathers_; }  // whether the path's rows are fewer

  // nn's TensorGroup. gather_rows(x): all rows of `x`, under the name gathered(x), beside it where
  // it has not all. reduce_rows(x): the product that ends a cut part, live under the name
  // summand(x), becomes `x`.
  std::string gathered(const std::string& x) const { return gathers_ ? x + "_gathered" : x; }
  std::string summand(const std::string& x) const { return gathers_ ? x + "_summand" : x; }
  void gather_rows(const std::string& x);
  void reduce_rows(const std::string& x);
  // `elements` of every rank in the wide type, beside this rank's.
  void gather(const std::string& x, std::int64_t elements);

  // nn's norms (norm.h): `normed` with what is known of each row, under the name `of`; the same
  // again; and the gradients of its parameters under `d_norm`, while that of its output turns into
  // that of its input.
  void norm(const std::string& of, const std::string& normed, const NormRows& over);
  void norm_again(const std::string& normed, const NormRows& over);
  void norm_grad(const std::string& d_norm, const NormRows& over);
  // Gives back what is known of each row.
  void give_stats(const std::string& of);

  PassRecord finish() { return std::move(record_); }

 private:
  void collective(TensorOp op, const std::string& name, std::int64_t elements, std::int64_t width);
  void scale(const std::string& normed, const NormRows& over);
  void layer_norm_grad(const std::string& d_norm, const NormRows& over);
  void rms_norm_grad(const std::string& d_norm, const NormRows& over);
  void widen_params(const NormRows& over);
  void give_params();
  std::int64_t wide_block(const NormRows& over) const;

  UnitDims d_;
  std::int64_t tp_;
  std::int64_t threads_;
  bool gathers_;
  std::map<std::string, std::int64_t> live_;
  PassRecord record_;
};

// REQUIRES: check_unit_bytes(config, sizes.seq).ok(), a pass that the unit has.
PassRecord pass_record(const ModelConfig& config, const Unit& unit, const UnitSizes& sizes,
                       UnitPass pass);
PassRecord block_record(const ModelConfig& config, const Unit& unit, const UnitSizes& sizes,
                        UnitPass pass);
PassRecord embed_record(const ModelConfig& config, const UnitSizes& sizes, UnitPass pass);
PassRecord head_record(const ModelConfig& config, const UnitSizes& sizes, UnitPass pass);

}  // namespace lockstep::model
