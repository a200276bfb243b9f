#include "lockstep/planner/emit/nearest_layout.h"

#include "lockstep/base/check.h"

namespace lockstep::planner {

NearestLayout::NearestLayout(const Job& job) {
  emitted_.layout = job.layout;
  emitted_.layout.microbatches = spec::num_microbatches(job.layout, job.batch);
}

void NearestLayout::use_schedule(const std::string& name, int chunks) {
  if (layout().schedule == name && layout().chunks == chunks) return;
  const auto words = [](const std::string& schedule, int of) {
    return of > 1 ? join_parts(schedule, " with ", of, " virtual stages") : schedule;
  };
  miss(join_parts("schedule ", words(layout().schedule, layout().chunks), ": ", words(name, chunks),
                  " is written instead"));
  if (layout().chunks != chunks) use_even_stages();
  layout().schedule = name;
  layout().chunks = chunks;
}

void NearestLayout::use_even_stages() {
  if (layout().layers.empty()) return;
  miss(join_parts("layers=", spec::layers_text(layout().layers), ": stages are even instead"));
  layout().layers.clear();
}

void NearestLayout::use_zero(int stage, const std::string& why) {
  if (layout().zero == stage) return;
  miss(join_parts("zero ", layout().zero, why, ": zero ", stage, " is written instead"));
  layout().zero = stage;
  layout().reduce = spec::default_reduce(stage);
}

void NearestLayout::use_whole_shards() {
  mesh::Degrees& degrees = layout().degrees;
  if (!degrees.dp_shard) return;
  if (*degrees.dp_shard != degrees.dp)
    miss(join_parts("shards of ", *degrees.dp_shard, " of dp ", degrees.dp, " with zero ",
                    layout().zero, ": all of dp shares them instead"));
  degrees.dp_shard.reset();
}

void NearestLayout::use_data_inside() {
  if (!has_order() || !has_pipe_inside()) return;
  layout().order = *mesh::Order::parse("tp,cp,dp,pp");
  miss("order tp,cp,pp,dp: neighbours of the data axis lie next to each other instead of stages");
}

void NearestLayout::use_recompute(const spec::Recompute& made) {
  if (layout().recompute == made) return;
  miss(join_parts("recompute=", to_text(layout().recompute), ": recompute=", to_text(made),
                  " is written instead"));
  layout().recompute = made;
}

void NearestLayout::use_etp_one() {
  if (layout().degrees.etp == 1) return;
  miss(join_parts("etp ", layout().degrees.etp, ": experts are not cut by tensor ranks instead"));
  layout().degrees.etp = 1;
}

void NearestLayout::use_context(cost::CpMethod made, const std::string& why) {
  if (layout().degrees.cp == 1 || layout().context == made) return;
  miss(join_parts("cp_comm_type=", to_text(layout().context), why, ": ranks of a sequence meet by ",
                  to_text(made), " instead"));
  layout().context = made;
}

void NearestLayout::drop_own_settings() {
  spec::Layout& l = layout();
  if (l.resident) miss(join_parts("resident=", *l.resident)), l.resident.reset();
  if (l.prefetch) miss(join_parts("prefetch=", *l.prefetch)), l.prefetch.reset();
  if (l.reduce != spec::default_reduce(l.zero)) {
    miss(join_parts("gradients reduced after every ", spec::name_of(l.reduce), " with zero ",
                    l.zero));
    l.reduce = spec::default_reduce(l.zero);
  }
  if (l.degrees.dp_shard == l.degrees.dp) l.degrees.dp_shard.reset();
}

Emitted NearestLayout::take(std::string text) {
  emitted_.text = std::move(text);
  return std::move(emitted_);
}

}  // namespace lockstep::planner
