// Writes a list down part by part: each call adds one and returns what it makes. Names are those of
// the values; a parameter is called as in the unit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/model_config.h"
#include "lockstep/parts/part.h"

namespace lockstep::parts {

// A unit's pass as it is written: forward ones by families, the head's by hand.
struct Written {
  Values values;
  Parts parts;
  ValueId input = kNoValue;  // none: the embedding, which starts from tokens
  ValueId output = kNoValue;
  std::vector<ValueId> never_kept;  // made again by the backward pass, whatever the policy
};

class Builder {
 public:
  Builder(const model::ModelConfig& config, Written& list) : config_(config), list_(list) {}

  struct Normed {
    ValueId y, rstd, mean;  // mean: kNoValue of an RMS norm
    std::vector<ValueId> stats() const;
  };
  // The model's kind of norm over the last dimension of `x`; statistics are called "<of>_rstd".
  Normed norm(ValueId x, std::string_view param, std::string name, const std::string& of);
  // RMS norm over all heads of a token, which tensor ranks share.
  ValueId wide_norm(ValueId x, std::string_view param);
  // Between a tensor rank's rows and those of all, or of all that share an expert.
  ValueId gather_rows(ValueId x, Group group = Group::kTensor);
  ValueId reduce_rows(ValueId x, Group group = Group::kTensor);
  ValueId linear(ValueId x, Dim columns, std::string_view param, std::string name, bool bias);
  // residual + x weight summed over the tensor ranks (+ bias): the end of a cut part. `norm`: what
  // is added to the residual goes through it, if it has a name.
  ValueId finish(ValueId x, ValueId residual, std::string_view param, std::string name,
                 std::string_view norm);
  // Queries, keys and values of a product.
  std::vector<ValueId> split_heads(ValueId qkv);
  // Unturned where positions are learned.
  std::vector<ValueId> rope(const std::vector<ValueId>& x);
  ValueId attention(ValueId q, ValueId k, ValueId v, std::int64_t window);
  ValueId activation(ValueId x, std::string name);

  // Any part with one new value.
  ValueId part(Kind kind, std::vector<ValueId> in, std::string name, std::vector<Dim> dims,
               Elem elem = Elem::kCompute, std::string_view param = {});
  // And this is like the first operand.
  ValueId same(Kind kind, std::vector<ValueId> in, std::string_view param = {});
  // Any part at all.
  Part& put(Kind kind, std::vector<ValueId> in, std::vector<ValueId> out,
            std::string_view param = {});
  Part& last() { return list_.parts.back(); }

 private:
  const model::ModelConfig& config_;
  Written& list_;
};

}  // namespace lockstep::parts
