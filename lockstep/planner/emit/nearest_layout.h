// Replaces settings of a layout by ones that a framework has, and writes down which. Used by the
// emitters.
#pragma once

#include <string>

#include "lockstep/planner/emit/emit.h"

namespace lockstep::planner {

class NearestLayout {
 public:
  explicit NearestLayout(const Job& job);

  spec::Layout& layout() { return emitted_.layout; }
  const spec::Layout& layout() const { return emitted_.layout; }
  bool has_pipeline() const { return layout().degrees.pp > 1; }
  // Whether the order of pp and dp over the ranks makes a difference.
  bool has_order() const { return has_pipeline() && layout().degrees.dp > 1; }
  bool has_pipe_inside() const { return layout().order == mesh::Order(); }

  void miss(std::string what) { emitted_.missing.push_back(std::move(what)); }
  void note(std::string what) { emitted_.notes.push_back(std::move(what)); }

  void use_schedule(const std::string& name, int chunks);
  void use_even_stages();  // layers dealt evenly
  void use_zero(int stage, const std::string& why);
  void use_whole_shards();                          // no hybrid sharding
  void use_data_inside();                           // order tp, cp, dp, pp
  void use_recompute(const spec::Recompute& made);  // when it differs
  void use_etp_one();
  void use_context(cost::CpMethod made, const std::string& why);  // where cp > 1
  // Settings of Lockstep's own runtime that no other framework has.
  void drop_own_settings();

  Emitted take(std::string text);

 private:
  Emitted emitted_;
};

}  // namespace lockstep::planner
