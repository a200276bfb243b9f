// What launch scripts have in common.
#pragma once

#include <initializer_list>
#include <string>

#include "lockstep/base/check.h"
#include "lockstep/planner/emit/emit.h"

namespace lockstep::planner {

// Lines of a command that goes on: "  --name value \", quoted where a shell would read more into
// it.
class Flags {
 public:
  template <class... Value>
  void add(std::string_view name, const Value&... value) {
    text_ += join_parts(" \\\n  --", name);
    ((text_ += join_parts(" ", value)), ...);
  }
  std::string take() { return std::move(text_) + "\n"; }

 private:
  std::string text_;
};

// From "#!" to what counts nodes. `where` it is started; `asked`: variables that the user sets.
std::string head_of(const Framework& framework, const Job& job, std::string_view where,
                    std::initializer_list<const char*> asked);

// "torchrun --nnodes ...", up to the program.
inline constexpr const char* kTorchrun =
    "torchrun --nnodes \"$NNODES\" --nproc-per-node \"$GPUS_PER_NODE\" \\\n"
    "  --node-rank \"$NODE_RANK\" --master-addr \"$MASTER_ADDR\" --master-port "
    "\"${MASTER_PORT:-29500}\"";

Error no_words(const Framework& framework, const Job& job, std::string_view what,
               std::string_view help);

Result<Script> emit_megatron(const Framework& framework, const Job& job);
Result<Script> emit_torchtitan(const Framework& framework, const Job& job);
Result<Script> emit_deepspeed(const Framework& framework, const Job& job);

}  // namespace lockstep::planner
