#include "lockstep/planner/emit/emit.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <sstream>

#include "lockstep/base/json.h"
#include "lockstep/model/catalog.h"
#include "lockstep/pipeline/layer_split.h"
#include "lockstep/spec/contradictions.h"

namespace lockstep::planner {
namespace {

struct Read {
  spec::Layout layout;
  spec::Batch batch;
};

std::int64_t number(const std::map<std::string, std::string>& from, const std::string& key,
                    std::int64_t otherwise = 1) {
  const auto at = from.find(key);
  return at == from.end() ? otherwise : std::stoll(at->second);
}

// What a framework does with its settings, from its documentation; `ranks` is how many processes
// are started.
void finish(Read& read, std::int64_t ranks, bool data_inside) {
  mesh::Degrees& d = read.layout.degrees;
  d.dp = ranks / (d.tp * d.cp * d.pp);
  read.layout.microbatches = read.batch.global_batch / (d.dp * read.batch.microbatch);
  read.layout.reduce = spec::default_reduce(read.layout.zero);
  if (data_inside && d.pp > 1 && d.dp > 1) read.layout.order = *mesh::Order::parse("tp,cp,dp,pp");
}

Read read_megatron(const std::string& text, std::int64_t ranks, std::int64_t layers) {
  std::map<std::string, std::string> flags;
  std::istringstream words(text);
  std::string last;
  for (std::string word; words >> word;) {
    if (word == "\\") continue;
    if (word.starts_with("--"))
      flags[last = word.substr(2)] = "";
    else
      flags[last] += (flags[last].empty() ? "" : " ") + word;
  }
  Read read;
  spec::Layout& l = read.layout;
  l.degrees = {.tp = number(flags, "tensor-model-parallel-size"),
               .cp = number(flags, "context-parallel-size"),
               .pp = number(flags, "pipeline-model-parallel-size"),
               .ep = number(flags, "expert-model-parallel-size"),
               .etp = number(flags, "expert-tensor-parallel-size")};
  const std::map<std::string, cost::CpMethod> ways = {{"p2p", cost::CpMethod::kRing},
                                                      {"all_gather", cost::CpMethod::kGather},
                                                      {"a2a", cost::CpMethod::kUlysses}};
  EXPECT_EQ(flags.contains("cp-comm-type"), l.degrees.cp > 1);
  if (l.degrees.cp > 1) l.context = ways.at(flags["cp-comm-type"]);
  l.sp = l.degrees.tp == 1 || flags.contains("sequence-parallel");
  l.chunks = int(number(flags, "num-virtual-stages-per-pipeline-rank"));
  if (const std::string stages = flags["pipeline-model-parallel-layout"]; !stages.empty()) {
    std::istringstream parts(stages.substr(1, stages.size() - 2));  // without quotes
    for (std::string part; std::getline(parts, part, '|');) {
      const std::size_t times = part.find('*');
      l.layers.push_back(times == std::string::npos ? 0 : std::stoi(part.substr(times + 1)));
    }
    l.chunks = int(std::int64_t(l.layers.size()) / l.degrees.pp);
  }
  l.schedule = l.chunks > 1 ? "interleaved" : "1f1b";
  const std::string strategy = flags["data-parallel-sharding-strategy"];
  l.zero = strategy == "optim_grads_params"              ? 3
           : strategy == "optim_grads"                   ? 2
           : flags.contains("use-distributed-optimizer") ? 1
                                                         : 0;
  const std::string modules = flags["recompute-modules"];
  l.recompute.block = flags["recompute-granularity"] == "full";
  if (flags["recompute-method"] == "block") {
    const std::vector<int> all =
        l.layers.empty() ? pipeline::default_layer_split(int(layers), int(l.degrees.pp * l.chunks))
                         : l.layers;
    for (const int blocks : all)
      l.recompute.blocks.push_back(std::min(int(number(flags, "recompute-num-layers")), blocks));
  }
  l.recompute.attn_normed = l.recompute.mlp_normed = modules.find("layernorm") != std::string::npos;
  l.recompute.product = modules.find("moe_act") != std::string::npos;
  read.batch = {number(flags, "seq-length"), number(flags, "global-batch-size"),
                number(flags, "micro-batch-size")};
  finish(read, ranks, !flags.contains("use-tp-pp-dp-mapping"));
  if (flags.contains("num-distributed-optimizer-instances"))
    l.degrees.dp_shard = l.degrees.dp / number(flags, "num-distributed-optimizer-instances");
  return read;
}

Read read_torchtitan(const std::string& text, std::int64_t ranks, std::int64_t layers) {
  std::map<std::string, std::string> keys;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (const std::size_t is = line.find(" = "); is != std::string::npos)
      keys[line.substr(0, is)] = line.substr(is + 3);
  Read read;
  spec::Layout& l = read.layout;
  l.degrees = {.tp = number(keys, "tensor_parallel_degree"),
               .cp = number(keys, "context_parallel_degree"),
               .pp = number(keys, "pipeline_parallel_degree"),
               .ep = number(keys, "expert_parallel_degree")};
  if (l.degrees.cp > 1) l.context = cost::CpMethod::kGather;
  l.sp = keys["enable_sequence_parallel"] == "true";
  const std::map<std::string, std::string> names = {
      {"\"GPipe\"", "gpipe"},
      {"\"1F1B\"", "1f1b"},
      {"\"Interleaved1F1B\"", "interleaved"},
      {"\"ZBVZeroBubble\"", "zbv"},
      {"\"DualPipeV\"", "dualpipe-v"},
      {"\"InterleavedZeroBubble\"", "interleaved-zb"}};
  if (const auto at = names.find(keys["pipeline_parallel_schedule"]); at != names.end())
    l.schedule = at->second;
  if (keys.contains("pipeline_parallel_layers_per_stage")) {
    const std::int64_t each = number(keys, "pipeline_parallel_layers_per_stage");
    const std::int64_t stages = (layers + each - 1) / each;
    l.chunks = int((stages + l.degrees.pp - 1) / l.degrees.pp);
  }
  const std::int64_t shard = number(keys, "data_parallel_shard_degree");
  l.zero = shard == 1 ? 0 : keys["fsdp_reshard_after_forward"] == "\"always\"" ? 3 : 2;
  l.recompute.block = keys["mode"] == "\"full\"";
  const std::int64_t seq = number(keys, "max_context_length");
  read.batch = {seq, number(keys, "num_tokens_per_train_step") / seq,
                number(keys, "num_tokens_per_microbatch_per_dp_rank") / seq};
  finish(read, ranks, true);
  EXPECT_EQ(number(keys, "data_parallel_replicate_degree") * shard, l.degrees.dp);
  if (shard > 1 && shard < l.degrees.dp) l.degrees.dp_shard = shard;
  return read;
}

Read read_deepspeed(const std::string& text, std::int64_t ranks, std::int64_t seq) {
  const auto json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << text;
  const auto inner = [&](const char* table, const char* key, std::int64_t otherwise) {
    const Json* found = json->find(table);
    if (found != nullptr) found = found->find(key);
    return found == nullptr ? otherwise : found->as_int();
  };
  Read read;
  spec::Layout& l = read.layout;
  const Json* context = json->find("sequence_parallel_size");
  l.degrees = {.tp = inner("tensor_parallel", "autotp_size", 1),
               .cp = context == nullptr ? 1 : context->as_int(),
               .pp = inner("pipeline", "stages", 1),
               .ep = inner("expert_parallel", "autoep_size", 1)};
  if (l.degrees.cp > 1) l.context = cost::CpMethod::kUlysses;
  l.sp = l.degrees.tp == 1;
  l.zero = int(inner("zero_optimization", "stage", 0));
  l.recompute.block = inner("activation_checkpointing", "number_checkpoints", 0) > 0;
  read.batch = {seq, json->find("train_batch_size")->as_int(),
                json->find("train_micro_batch_size_per_gpu")->as_int()};
  finish(read, ranks, true);
  EXPECT_EQ(json->find("gradient_accumulation_steps")->as_int(), *l.microbatches);
  if (const std::int64_t shard = inner("zero_optimization", "mics_shard_size", 0); shard > 0)
    l.degrees.dp_shard = shard;
  return read;
}

struct Drawn {
  spec::Layout layout;
  spec::Batch batch;
};

// A layout without contradictions, written in its canonical form.
Drawn draw(const model::ModelConfig& model, std::mt19937& random) {
  const auto pick = [&](std::initializer_list<int> from) {
    return from.begin()[random() % from.size()];
  };
  for (;;) {
    Drawn drawn;
    spec::Layout& l = drawn.layout;
    l.degrees = {.tp = pick({1, 2, 8}), .cp = pick({1, 1, 2}), .pp = pick({1, 2, 4, 16})};
    l.degrees.dp = pick({1, 2, 8, 64});
    if (l.degrees.cp > 1) l.context = cost::kCpMethods[random() % cost::kCpMethods.size()];
    if (model.moe.experts > 0) l.degrees.ep = pick({1, 2}), l.degrees.etp = pick({1, 1, 2});
    l.zero = pick({0, 1, 2, 3});
    if (l.degrees.dp > 2 && l.zero % 2 == 1 && random() % 3 == 0) l.degrees.dp_shard = 2;
    if (l.degrees.pp > 1) {
      l.schedule = spec::schedule_names()[random() % spec::schedule_names().size()];
      l.chunks = pick({1, 2, 4});
      if (l.degrees.dp > 1 && random() % 2 == 0) l.order = *mesh::Order::parse("tp,cp,dp,pp");
    }
    if (random() % 3 == 0) {  // all but a layer for each stage, anywhere
      l.layers.assign(std::size_t(l.degrees.pp * l.chunks), 1);
      for (std::int64_t left = model.layers - l.degrees.pp * l.chunks; left > 0; --left)
        ++l.layers[random() % l.layers.size()];
    }
    l.reduce = spec::default_reduce(l.zero);
    l.recompute = random() % 3 == 0 ? spec::kKeepAll
                  : random() % 2    ? spec::kCheap
                                    : spec::kWholeBlock;
    if (l.recompute.block && random() % 2 == 0)
      for (std::int64_t stage = 0; stage < l.degrees.pp * l.chunks; ++stage)
        l.recompute.blocks.push_back(int(pick({0, 1, 1, 2})));
    drawn.batch = {4096, l.degrees.dp * pick({1, 2, 16, 64}), pick({1, 2})};
    if (drawn.batch.global_batch % (l.degrees.dp * drawn.batch.microbatch) != 0) continue;
    l.microbatches = spec::num_microbatches(l, drawn.batch);
    if (l.degrees.dp == 1 && l.zero != 1) continue;  // sharding over nobody has no name elsewhere
    if (spec::contradictions(spec::request_of(model, l, drawn.batch)).empty()) return drawn;
  }
}

// What is written reads back as what is said to be written; that is the layout asked for, unless
// something is said to be missing.
TEST(Emit, ReadsBackAsTheSameLayout) {
  std::mt19937 random(3);
  int whole[3] = {};
  for (const char* name : {"llama3-405b", "llama3-8b", "mixtral-8x7b"}) {
    const model::ModelConfig model = model::find(name)->config;
    for (int round = 0; round < 400; ++round) {
      const Drawn drawn = draw(model, random);
      const mesh::Degrees& d = drawn.layout.degrees;
      const std::int64_t ranks = d.tp * d.cp * d.pp * d.dp;
      for (std::size_t i = 0; i < frameworks().size(); ++i) {
        const Emitted made = frameworks()[i].emit({model, drawn.layout, drawn.batch});
        const Read read = i == 0   ? read_megatron(made.text, ranks, model.layers)
                          : i == 1 ? read_torchtitan(made.text, ranks, model.layers)
                                   : read_deepspeed(made.text, ranks, drawn.batch.seq);
        spec::Layout said = made.layout;
        if (i == 1 && !made.notes.empty()) continue;  // stages that its key cannot describe
        EXPECT_EQ(to_text(read.layout), to_text(said)) << frameworks()[i].name << "\n"
                                                       << to_text(drawn.layout) << "\n"
                                                       << made.text;
        EXPECT_EQ(read.batch, drawn.batch);
        EXPECT_EQ(made.missing.empty(), said == drawn.layout)
            << frameworks()[i].name << ": " << to_text(drawn.layout) << " / " << to_text(said);
        whole[i] += made.missing.empty() ? 1 : 0;
      }
    }
  }
  for (const int some : whole) EXPECT_GT(some, 20);
}

TEST(Emit, NamesWhatMegatronCanNot) {
  const model::ModelConfig model = model::find("llama3-405b")->config;
  const spec::Layout layout = *spec::parse_layout("tp8 pp16 dp64 zbv vpp2 recompute=cheap");
  const Emitted made = emit_megatron({model, layout, {8192, 2048, 1}});
  ASSERT_EQ(made.missing.size(), 2U);
  EXPECT_NE(made.missing[0].find("zbv"), std::string::npos) << made.missing[0];
  EXPECT_NE(made.missing[1].find("recompute=cheap"), std::string::npos) << made.missing[1];
  EXPECT_NE(made.text.find("--account-for-embedding-in-pipeline-split"), std::string::npos);
}

// Llama 3 405B has 8 heads of keys: 8 ranks can be dealt one each, 16 cannot.
TEST(Emit, NamesWaysOfContextParallelism) {
  const model::ModelConfig model = model::find("llama3-405b")->config;
  const auto made = [&](Emitted (*emit)(const Job&), const char* layout) {
    return emit({model, *spec::parse_layout(layout), {8192, 2048, 1}});
  };
  const std::vector<std::string> none, gather = {
                                           "cp_comm_type=ulysses: ranks of a sequence meet by "
                                           "gather instead"};
  EXPECT_EQ(made(emit_megatron, "tp4 cp2 dp64 cp_comm_type=ulysses").missing, none);
  EXPECT_EQ(
      made(emit_megatron, "tp8 cp2 dp64 cp_comm_type=ulysses").missing,
      std::vector<std::string>{"cp_comm_type=ulysses of 8 key-value heads on 16 ranks: ranks of a "
                               "sequence meet by gather instead"});
  EXPECT_EQ(
      made(emit_torchtitan, "tp4 cp2 dp64 zero3 cp_comm_type=gather order=tp,cp,dp,pp").missing,
      none);
  EXPECT_EQ(made(emit_torchtitan, "tp4 cp2 dp64 zero3 cp_comm_type=ulysses").missing, gather);
  EXPECT_EQ(made(emit_deepspeed, "cp2 dp64 zero3 cp_comm_type=ulysses").missing, none);
  EXPECT_EQ(
      made(emit_deepspeed, "cp2 dp64 zero3 cp_comm_type=ring").missing,
      std::vector<std::string>{"cp_comm_type=ring: ranks of a sequence meet by ulysses instead"});
}

}  // namespace
}  // namespace lockstep::planner
