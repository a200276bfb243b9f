#include "lockstep/planner/emit/emit.h"

#include <algorithm>

#include "lockstep/planner/emit/script.h"

namespace lockstep::planner {

namespace {

// As part of a comment, which a line end in it would end.
std::string in_a_line(std::string text) {
  std::ranges::replace_if(text, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text;
}

}  // namespace

std::string head_of(const Framework& framework, const Job& job, std::string_view where,
                    std::initializer_list<const char*> asked) {
  const mesh::Degrees& d = job.layout.degrees;
  const std::int64_t devices = d.tp * d.cp * d.pp * d.dp;
  std::string text = join_parts("#!/bin/bash\n# ", in_a_line(job.model.name), " on ", devices,
                                " devices: ", to_text(job.layout), job.fp8 ? ", fp8" : "",
                                "\n# For ", framework.title, "; start it on ", where,
                                ".\nset -eu\n\n# Yours to set. No other line is.\n");
  for (const char* name : asked) text += join_parts(": \"${", name, ":?}\"\n");
  return text + join_parts("\nGPUS_PER_NODE=${GPUS_PER_NODE:-",
                           std::min(job.gpus_per_node, devices), "}\nNNODES=$((", devices,
                           " / GPUS_PER_NODE))\n[ $((NNODES * GPUS_PER_NODE)) -eq ", devices,
                           " ] || { echo \"GPUS_PER_NODE=$GPUS_PER_NODE does not divide ", devices,
                           "\" >&2; exit 2; }\n");
}

Error no_words(const Framework& framework, const Job& job, std::string_view what,
               std::string_view help) {
  return Error{Code::kConflict,
               join_parts(framework.title, " has no words for ", what, " of ", job.model.name),
               std::string(help)};
}

Result<Script> emit(const Framework& framework, const Job& job) {
  if (job.model.mtp_layers > 0)
    return no_words(framework, job, "the prediction layers as layers of a stage",
                    "set mtp_layers = 0, and add them to the script");
  if (framework.name == "megatron") return emit_megatron(framework, job);
  if (framework.name == "torchtitan") return emit_torchtitan(framework, job);
  return emit_deepspeed(framework, job);
}

}  // namespace lockstep::planner
