#include "tests/planner/emit/read_script.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "lockstep/base/json.h"
#include "lockstep/pipeline/layer_split.h"

namespace lockstep::planner {
namespace {

using Words = std::map<std::string, std::string>;

std::int64_t number(const Words& from, const std::string& key, std::int64_t otherwise = 1) {
  const auto at = from.find(key);
  return at == from.end() ? otherwise : std::stoll(at->second);
}

// What stands between two texts.
std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t at = text.find(begin);
  if (at == std::string::npos) return "";
  const std::size_t first = at + begin.size();
  return text.substr(first, text.find(end, first) - first);
}

std::int64_t ranks_of(const std::string& text) {
  return std::stoll(between(text, "NNODES=$((", " /"));
}

// Flags after the program, by name.
Words flags_of(const std::string& text, const std::string& program) {
  Words flags;
  std::istringstream words(text.substr(text.find(program) + program.size()));
  std::string last;
  for (std::string word; words >> word;) {
    if (word == "\\") continue;
    if (word.starts_with("--"))
      flags[last = word] = "";
    else
      flags[last] += (flags[last].empty() ? "" : " ") + word;
  }
  return flags;
}

// What a framework does with its settings, whatever else they are.
void finish(ReadScript& read, std::int64_t ranks, bool data_inside, std::int64_t layers) {
  spec::Layout& l = read.layout;
  mesh::Degrees& d = l.degrees;
  d.dp = ranks / (d.tp * d.cp * d.pp);
  l.microbatches = read.batch.global_batch / (d.dp * read.batch.microbatch);
  l.reduce = spec::default_reduce(l.zero);
  if (data_inside && d.pp > 1 && d.dp > 1) l.order = *mesh::Order::parse("tp,cp,dp,pp");
  if (l.layers.empty())
    l.layers.assign(std::size_t(d.pp * l.chunks), int(layers / (d.pp * l.chunks)));
  if (l.layers == pipeline::default_layer_split(int(layers), int(d.pp) * l.chunks))
    l.layers.clear();
}

std::vector<int> stages_of_megatron(const std::string& quoted) {
  std::vector<int> layers;
  std::istringstream parts(quoted.substr(1, quoted.size() - 2));
  for (std::string part; std::getline(parts, part, '|');) {
    const std::size_t times = part.find('*');
    layers.push_back(times == std::string::npos ? 0 : std::stoi(part.substr(times + 1)));
  }
  return layers;
}

ReadScript read_megatron(const std::string& text, std::int64_t layers) {
  Words flags = flags_of(text, " pretrain_gpt.py");
  ReadScript read;
  spec::Layout& l = read.layout;
  l.degrees = {.tp = number(flags, "--tensor-model-parallel-size"),
               .cp = number(flags, "--context-parallel-size"),
               .pp = number(flags, "--pipeline-model-parallel-size"),
               .ep = number(flags, "--expert-model-parallel-size"),
               .etp = number(flags, "--expert-tensor-parallel-size")};
  if (l.degrees.cp > 1)
    l.context = std::map<std::string, model::CpMethod>{{"p2p", model::CpMethod::kRing},
                                                       {"all_gather", model::CpMethod::kGather},
                                                       {"a2a", model::CpMethod::kUlysses}}
                    .at(flags["--cp-comm-type"]);
  l.sp = l.degrees.tp == 1 || flags.contains("--sequence-parallel");
  l.chunks = int(number(flags, "--num-virtual-stages-per-pipeline-rank"));
  if (flags.contains("--pipeline-model-parallel-layout")) {
    l.layers = stages_of_megatron(flags["--pipeline-model-parallel-layout"]);
    l.chunks = int(std::int64_t(l.layers.size()) / l.degrees.pp);
  }
  l.schedule = l.chunks > 1 ? "interleaved" : "1f1b";
  const std::string strategy = flags["--data-parallel-sharding-strategy"];
  l.zero = strategy == "optim_grads_params"                ? 3
           : strategy == "optim_grads"                     ? 2
           : flags.contains("--use-distributed-optimizer") ? 1
                                                           : 0;
  l.recompute.drop.block = flags["--recompute-granularity"] == "full";
  const std::vector<int> held = l.layers.empty()
                                    ? std::vector<int>(std::size_t(l.degrees.pp * l.chunks),
                                                       int(layers / (l.degrees.pp * l.chunks)))
                                    : l.layers;
  if (flags["--recompute-method"] == "block")
    for (const int blocks : held)
      l.recompute.blocks.push_back(std::min(int(number(flags, "--recompute-num-layers")), blocks));
  read.batch = {number(flags, "--seq-length"), number(flags, "--global-batch-size"),
                number(flags, "--micro-batch-size")};
  read.fp8 = flags.contains("--fp8-format");
  finish(read, ranks_of(text), !flags.contains("--use-tp-pp-dp-mapping"), layers);
  if (flags.contains("--num-distributed-optimizer-instances"))
    l.degrees.dp_shard = l.degrees.dp / number(flags, "--num-distributed-optimizer-instances");
  EXPECT_EQ(number(flags, "--num-layers"), layers);
  for (const auto& [name, value] : flags) read.names.push_back(name);
  return read;
}

ReadScript read_torchtitan(const std::string& text, std::int64_t layers) {
  Words flags = flags_of(text, "--config plan");
  const auto of = [&](const char* key) {
    return number(flags, std::string("--parallelism.") + key);
  };
  ReadScript read;
  spec::Layout& l = read.layout;
  l.degrees = {.tp = of("tensor_parallel_degree"),
               .cp = of("context_parallel_degree"),
               .pp = of("pipeline_parallel_degree"),
               .ep = of("expert_parallel_degree")};
  if (l.degrees.cp > 1) l.context = model::CpMethod::kGather;
  const std::map<std::string, std::string> names = {
      {"", "1f1b"}, {"1F1B", "1f1b"}, {"GPipe", "gpipe"}, {"Interleaved1F1B", "interleaved"}};
  l.schedule = names.at(flags["--parallelism.pipeline_parallel_schedule"]);
  std::istringstream stages(between(text, "stages = [", "]"));
  for (std::string one; std::getline(stages, one, ',');) l.layers.push_back(std::stoi(one));
  if (!l.layers.empty()) l.chunks = int(std::int64_t(l.layers.size()) / l.degrees.pp);
  l.recompute.drop.block =
      between(text, "config.activation_checkpoint = ", "\n") == "FullAC.Config()";
  const std::int64_t local = number(flags, "--training.local_batch_size");
  read.batch = {number(flags, "--training.seq_len"), number(flags, "--training.global_batch_size"),
                l.degrees.pp > 1 ? of("pipeline_parallel_microbatch_size") : local};
  read.fp8 = text.find("Float8LinearConverter.Config") != std::string::npos;
  const std::int64_t shard = of("data_parallel_shard_degree");
  const std::int64_t dp = shard * of("data_parallel_replicate_degree");
  l.zero = l.degrees.pp > 1 || dp * l.degrees.cp == 1                      ? 1
           : flags["--parallelism.fsdp_reshard_after_forward"] == "always" ? 3
                                                                           : 2;
  finish(read, ranks_of(text), true, layers);
  EXPECT_EQ(dp, l.degrees.dp);
  EXPECT_TRUE(l.degrees.pp == 1 || local == read.batch.microbatch * *l.microbatches);
  EXPECT_EQ(flags.contains("--training.disable_cuda_graphs"), l.degrees.pp > 1 || l.degrees.ep > 1);
  if (shard < dp) l.degrees.dp_shard = shard;
  for (const auto& [name, value] : flags) read.names.push_back(name);
  return read;
}

void add_keys(const Json& json, std::vector<std::string>& names) {
  for (const auto& [key, value] : json.members()) {
    names.push_back(key);
    if (value.is_object()) add_keys(value, names);
  }
}

ReadScript read_deepspeed(const std::string& text, std::int64_t layers) {
  const auto json = Json::parse(between(text, "<<'END'\n", "\nEND\n"));
  EXPECT_TRUE(json.ok()) << text;
  const auto inner = [&](const char* table, const char* key, std::int64_t otherwise) {
    const Json* found = json->find(table);
    if (found != nullptr) found = found->find(key);
    return found == nullptr ? otherwise : found->as_int();
  };
  ReadScript read;
  spec::Layout& l = read.layout;
  const Json* context = json->find("sequence_parallel_size");
  l.degrees = {.tp = inner("tensor_parallel", "autotp_size", 1),
               .cp = context == nullptr ? 1 : context->as_int(),
               .pp = inner("pipeline", "stages", 1),
               .ep = inner("expert_parallel", "autoep_size", 1)};
  if (l.degrees.cp > 1) l.context = model::CpMethod::kUlysses;
  l.sp = l.degrees.tp == 1;
  l.zero = int(inner("zero_optimization", "stage", 0));
  l.recompute.drop.block = inner("activation_checkpointing", "number_checkpoints", 0) > 0;
  read.batch = {0, json->find("train_batch_size")->as_int(),
                json->find("train_micro_batch_size_per_gpu")->as_int()};
  finish(read, ranks_of(text), true, layers);
  EXPECT_EQ(json->find("gradient_accumulation_steps")->as_int(), *l.microbatches);
  add_keys(*json, read.names);
  return read;
}

}  // namespace

ReadScript read_script(std::string_view framework, const std::string& text, std::int64_t layers) {
  if (framework == "megatron") return read_megatron(text, layers);
  return framework == "torchtitan" ? read_torchtitan(text, layers) : read_deepspeed(text, layers);
}

}  // namespace lockstep::planner
