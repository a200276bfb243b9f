#include "lockstep/spec/spec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "lockstep/base/check.h"
#include "lockstep/config/suggest.h"
#include "tests/support/fields_markdown.h"
#include "tests/support/golden.h"

namespace lockstep::spec {
namespace {

std::optional<Spec> read(const std::string& text, config::Report& report) {
  const auto document = config::parse_document(text, "run.toml", config::Format::kToml, report);
  return document ? read_spec(*document, report) : std::nullopt;
}

const std::string kGood =
    "[model]\nname = \"llama3-8b\"\n[cluster]\nname = \"h100:64\"\n[layout]\ntp = 4\npp = 2\n"
    "[batch]\nseq = 8192\nglobal_batch = 128\n";

TEST(Spec, FillsTheClusterWhenDpIsLeftOut) {
  config::Report report;
  const auto spec = read(kGood, report);
  ASSERT_TRUE(spec) << report.text("run.toml", false);
  EXPECT_EQ(spec->layout.degrees.dp, 8);
  EXPECT_EQ(spec->world(), 64);
  EXPECT_EQ(spec->num_microbatches(), 16);
  EXPECT_EQ(spec->train.dtype, DType::kBF16);
  EXPECT_EQ(spec->model.layers, 32);
}

TEST(Spec, WithoutAClusterTheDegreesMakeTheWorld) {
  config::Report report;
  const auto spec = read(
      "[model]\nname = \"llama3-8b\"\nlayers = 6\n[layout]\ntp = 2\ndp = 3\n[batch]\nseq = "
      "16\nglobal_batch = 3\n",
      report);
  ASSERT_TRUE(spec) << report.text("run.toml", false);
  EXPECT_EQ(spec->world(), 6);
  EXPECT_EQ(spec->model.layers, 6);
  EXPECT_EQ(spec->model.heads, 32);
}

TEST(Spec, ReadsAdamHeadChunkAndThreads) {
  config::Report report;
  const auto plain = read(kGood, report);
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->train, (Train{.steps = 1000,
                                 .lr = plain->train.lr,
                                 .weight_decay = 0.1,
                                 .clip = 1,
                                 .seed = 1234,
                                 .eval_samples = 128}));
  const auto set = read(kGood +
                            "[train]\nbeta1 = 0.8\nbeta2 = 0.999\neps = 1e-6\nhead_chunk = "
                            "512\nthreads = 4\n",
                        report);
  ASSERT_TRUE(set) << report.text("run.toml", false);
  EXPECT_EQ(set->train.beta1, 0.8);
  EXPECT_EQ(set->train.beta2, 0.999);
  EXPECT_EQ(set->train.eps, 1e-6);
  EXPECT_EQ(set->train.head_chunk, 512);
  EXPECT_EQ(set->train.threads, 4);
  for (const char* wrong : {"beta1 = 1.0", "beta1 = -0.1", "beta2 = 1.0", "eps = 0.0",
                            "head_chunk = -1", "threads = 0", "threads = 1025"}) {
    config::Report refused;
    EXPECT_FALSE(read(kGood + "[train]\n" + wrong + "\n", refused)) << wrong;
    ASSERT_EQ(refused.diagnostics().size(), 1u) << wrong;
    EXPECT_EQ(refused.diagnostics()[0].code, Code::kOutOfRange) << wrong;
  }
}

TEST(Spec, ReadsHowAStepIsDividedInTime) {
  config::Report report;
  const auto plain = read(kGood, report);
  ASSERT_TRUE(plain) << report.text("run.toml", false);
  EXPECT_EQ(plain->layout, (Layout{.degrees = {.tp = 4, .pp = 2, .dp = 8}}));
  const std::string text =
      "[model]\nname = \"llama3-8b\"\n[layout]\npp = 2\ndp = 4\ndp_shard = 2\nzero = 3\n"
      "schedule = \"gpipe\"\nrecompute = \"mlp_norm.output+mlp.product\"\nresident = 2\n"
      "prefetch = 0\n";
  const std::string batch = "[batch]\nseq = 64\nglobal_batch = 8\n";
  const auto full = read(text + batch, report);
  ASSERT_TRUE(full) << report.text("run.toml", false);
  EXPECT_EQ(full->layout, *parse_layout("pp2 dp2x2 zero3 gpipe mb resident=2 prefetch=0 "
                                        "recompute=mlp_norm.output+mlp.product"));
  const auto late = read(text + "reduce = \"step\"\n" + batch, report);
  ASSERT_TRUE(late) << report.text("run.toml", false);
  EXPECT_EQ(late->layout.reduce, Period::kStep);
}

struct Rule {
  const char* name;
  std::string changes;  // TOML lines, as overrides of kGood
  Code code;
  std::string message;
  std::string help;
  std::vector<std::string> keys;  // that the labels cover, the primary one first
};

class BrokenRule : public testing::TestWithParam<Rule> {};

TEST_P(BrokenRule, NamesBothKeysAndTheNearestLegalValues) {
  config::Report report;
  auto document = config::parse_document(kGood, "run.toml", config::Format::kToml, report);
  auto changes =
      config::parse_document(GetParam().changes, "more.toml", config::Format::kToml, report);
  ASSERT_TRUE(document && changes) << report.text("", false);
  document->merge(*changes);
  EXPECT_FALSE(read_spec(*document, report));
  ASSERT_EQ(report.diagnostics().size(), 1u) << report.text("run.toml", false);
  const config::Diagnostic& d = report.diagnostics()[0];
  EXPECT_EQ(d.code, GetParam().code);
  EXPECT_EQ(d.message, GetParam().message);
  EXPECT_EQ(d.help, GetParam().help);
  std::vector<config::Span> spans = {d.primary.span};
  for (const config::Label& label : d.secondary) spans.push_back(label.span);
  const config::Settings settings(document->root(), run_fields());
  std::vector<config::Span> expected;
  for (const std::string& key : GetParam().keys) expected.push_back(settings.span(key));
  EXPECT_EQ(spans, expected) << report.text("run.toml", false);
}

INSTANTIATE_TEST_SUITE_P(
    Each, BrokenRule,
    testing::Values(
        Rule{"World",
             "layout.dp = 4",
             Code::kDegreesDoNotMatchWorld,
             "tp x cp x pp x dp = 4 x 1 x 2 x 4 = 32, but the world has 64 ranks",
             "with the other degrees as they are, tp = 8 or cp = 2 or pp = 4 or dp = 8 fits",
             {"layout.dp", "cluster.name"}},
        Rule{"ModelRanks",
             "layout.pp = 3",
             Code::kDegreesDoNotMatchWorld,
             "tp x cp x pp = 4 x 1 x 3 = 12 does not divide the 64 devices of h100:64",
             "the nearest pp: 2 or 4",
             {"layout.tp", "cluster.name"}},
        Rule{"Shard",
             "layout.dp_shard = 3\nlayout.dp = 8",
             Code::kDoesNotDivide,
             "dp_shard = 3 does not divide dp = 8",
             "the nearest values that do: 2 or 4",
             {"layout.dp_shard", "layout.dp"}},
        Rule{"Experts",
             "layout.ep = 2",
             Code::kConflict,
             "ep = 2, but llama3-8b has no experts",
             "remove it, or choose a mixture-of-experts model",
             {"layout.ep", "model.name"}},
        Rule{"ExpertAxes",
             "model.name = \"mixtral-8x7b\"\nlayout.etp = 7\nmodel.moe.expert_ffn = 14",
             Code::kDoesNotDivide,
             "ep x etp = 1 x 7 does not divide tp x cp x dp = 32",
             "the nearest values of etp that divide 32: 4 or 8",
             {"layout.etp", "layout.tp"}},
        Rule{"ExpertCount",
             "model.name = \"mixtral-8x7b\"\nlayout.ep = 16",
             Code::kDoesNotDivide,
             "ep = 16 does not divide the 8 experts of mixtral-8x7b",
             "the nearest ep that does: 8",
             {"layout.ep", "model.name"}},
        Rule{"Batch",
             "batch.global_batch = 130",
             Code::kDoesNotDivide,
             "global_batch = 130 is not a multiple of dp x microbatch = 8 x 1 = 8",
             "the nearest global_batch: 128 or 136",
             {"batch.global_batch", "cluster.name"}},
        Rule{"Microbatch",
             "batch.microbatch = 32",
             Code::kDoesNotDivide,
             "global_batch = 128 is not a multiple of dp x microbatch = 8 x 32 = 256",
             "the nearest global_batch: 256",
             {"batch.global_batch", "batch.microbatch"}},
        Rule{"Layers",
             "model.layers = 1",
             Code::kBadDegree,
             "pp = 2 needs 2 layers, but llama3-8b has 1",
             "a stage needs at least one layer: pp = 1 or less",
             {"layout.pp", "model.layers"}},
        Rule{"Heads",
             "layout.tp = 64\nlayout.pp = 1",
             Code::kDoesNotDivide,
             "tp = 64 does not divide the 32 heads of llama3-8b",
             "the nearest tp that does: 32",
             {"layout.tp", "model.name"}},
        Rule{"KvHeads",
             "model.heads = 48\nmodel.kv_heads = 16\nmodel.head_dim = 64\nmodel.ffn = 14400\n"
             "layout.tp = 24\nlayout.sp = false\ncluster.name = \"h100:96\"\nbatch.global_batch = "
             "128",
             Code::kDoesNotDivide,
             "tp = 24 neither divides the 16 key-value heads of llama3-8b nor is a multiple of "
             "them",
             "the nearest tp: 16 or 48",
             {"layout.tp", "model.kv_heads"}},
        Rule{"Columns",
             "model.ffn = 14338",
             Code::kDoesNotDivide,
             "tp = 4 does not divide the 14338 MLP columns of llama3-8b",
             "the nearest tp that does: 2 or 67",
             {"layout.tp", "model.ffn"}},
        Rule{"Sequence",
             "batch.seq = 8190",
             Code::kDoesNotDivide,
             "seq = 8190 is not a multiple of tp = 4",
             "the nearest seq: 8188 or 8192, or sp = false",
             {"batch.seq", "layout.tp"}},
        Rule{"Zigzag",
             "batch.seq = 4100\nlayout.cp = 2",
             Code::kDoesNotDivide,
             "seq = 4100 is not a multiple of 2 x cp = 4 times tp = 4",
             "the nearest seq: 4096 or 4112, or sp = false",
             {"batch.seq", "layout.cp"}},
        Rule{
            "Ulysses",
            "model.heads = 4\nmodel.kv_heads = 4\nlayout.cp = 2\nlayout.cp_comm_type = \"ulysses\"",
            Code::kDoesNotDivide,
            "tp x cp = 4 x 2 = 8 does not divide the 4 heads of llama3-8b, which cp_comm_type = "
            "ulysses deals to ranks",
            "the nearest cp that does: 1; or cp_comm_type = ring or gather",
            {"layout.cp", "layout.cp_comm_type", "model.heads"}},
        Rule{"UlyssesKeys",
             "model.heads = 48\nmodel.kv_heads = 16\nmodel.head_dim = 64\nlayout.cp = 6\n"
             "layout.cp_comm_type = \"ulysses\"\nbatch.seq = 8160\ncluster.name = \"h100:48\"",
             Code::kDoesNotDivide,
             "cp = 6 neither divides the 4 key-value heads of a tensor rank of llama3-8b nor is a "
             "multiple of them, as cp_comm_type = ulysses needs",
             "the nearest cp that does: 4; or cp_comm_type = ring or gather",
             {"layout.cp", "layout.cp_comm_type", "model.kv_heads"}},
        Rule{"ContextOfNone",
             "layout.cp_comm_type = \"gather\"",
             Code::kConflict,
             "cp_comm_type = gather is how ranks of a sequence meet, but cp = 1 divides none",
             "the nearest: cp = 2, or leave cp_comm_type out",
             {"layout.cp_comm_type"}},
        Rule{"Positions",
             "model.name = \"gpt2\"\nbatch.seq = 2048",
             Code::kConflict,
             "seq = 2048 is longer than the 1024 positions of gpt2-small",
             "this family learns its positions: seq = 1024 or less, or a model with more "
             "max_positions",
             {"batch.seq", "model.name"}},
        Rule{"Unsharded",
             "layout.dp_shard = 4\nlayout.zero = 0",
             Code::kConflict,
             "dp_shard = 4 of dp = 8 cuts the data axis into shards, but zero = 0 shards nothing",
             "the nearest: zero = 1, or dp_shard = 8",
             {"layout.dp_shard", "layout.zero"}},
        Rule{"Prefetch",
             "layout.prefetch = 1\nlayout.zero = 2",
             Code::kConflict,
             "prefetch = 1 is about gathered parameters, but zero = 2 gathers none while it "
             "computes",
             "the nearest: zero = 3, or leave prefetch out",
             {"layout.prefetch", "layout.zero"}},
        Rule{"Chunks",
             "layout.vpp = 2\nlayout.schedule = \"gpipe\"",
             Code::kOutOfRange,
             "schedule `gpipe` runs one stage per pipeline rank, vpp = 2 asks for more",
             "set vpp = 1, or choose an interleaved schedule",
             {"layout.vpp", "layout.schedule"}},
        Rule{"Length",
             "batch.global_batch = 8000000",
             Code::kOutOfRange,
             "global_batch = 8000000 makes 1000000 microbatches through 34 units, more than "
             "16777216 computations in a step",
             "the nearest: 493447 microbatches, from a larger microbatch or dp",
             {"batch.global_batch"}},
        Rule{"Recompute",
             "layout.recompute = \"mlp.produkt\"",
             Code::kUnknownChoice,
             "recompute = \"mlp.produkt\" names no row `mlp.produkt`",
             "did you mean `mlp.product`?",
             {"layout.recompute"}},
        Rule{"Order",
             "layout.order = \"tp,pp\"",
             Code::kUnknownChoice,
             "order = \"tp,pp\" does not name cp",
             "an order is a permutation of tp,cp,pp,dp with the fastest axis first; the default is "
             "tp,cp,pp,dp",
             {"layout.order"}}),
    [](const auto& tested) { return tested.param.name; });

// Writes the rules once more as plain arithmetic and compares over random requests.
TEST(Spec, AcceptsExactlyWhatTheRulesAllow) {
  std::mt19937 random(17);
  const auto pick = [&](std::initializer_list<int> values) {
    return values.begin()[random() % values.size()];
  };
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    const int tp = pick({1, 2, 3, 4}), cp = pick({1, 2, 3}), pp = pick({1, 2, 5}),
              dp = pick({1, 2, 4, 6}), shard = pick({1, 2, 3, 4}), ep = pick({1, 2, 4}),
              layers = pick({1, 2, 4, 5}), experts = pick({0, 4, 6}), seq = pick({8, 12, 24, 48}),
              batch = pick({4, 8, 12, 24}), micro = pick({1, 2, 3}), devices = pick({0, 4, 8, 16});
    const bool sp = random() % 2 == 0;
    std::string text = join_parts(
        "[model]\nfamily = \"", experts > 0 ? "moe" : "llama",
        "\"\nhidden = 48\nheads = 12\nkv_heads = 12\nffn = 48\nvocab = 96\nmax_positions = 64\n",
        "layers = ", layers, "\n");
    if (experts > 0)
      text += join_parts("moe = { experts = ", experts, ", top_k = 2, expert_ffn = 48 }\n");
    text += join_parts("[layout]\ntp = ", tp, "\ncp = ", cp, "\npp = ", pp, "\ndp = ", dp,
                       "\ndp_shard = ", shard, "\nep = ", ep, "\nsp = ", sp ? "true" : "false",
                       "\n[batch]\nseq = ", seq, "\nglobal_batch = ", batch,
                       "\nmicrobatch = ", micro, "\n");
    if (devices > 0) text += join_parts("[cluster]\nname = \"h100:", devices, "\"\n");

    const bool legal = (devices == 0 || tp * cp * pp * dp == devices) && dp % shard == 0 &&
                       (tp * cp * dp) % ep == 0 && (ep == 1 || experts > 0) &&
                       (experts == 0 || experts % ep == 0) && pp <= layers && 12 % tp == 0 &&
                       batch % (dp * micro) == 0 &&
                       seq % ((cp > 1 ? 2 * cp : 1) * (sp ? tp : 1)) == 0;
    config::Report report;
    const auto spec = read(text, report);
    ASSERT_EQ(spec.has_value(), legal) << text << report.text("run.toml", false);
    ASSERT_EQ(report.ok(), legal);
    if (spec) {
      ++accepted;
      EXPECT_TRUE(mesh::Mesh::create(spec->layout.degrees, spec->layout.order).ok());
    }
  }
  EXPECT_GT(accepted, 20);
}

TEST(Spec, ReportsFieldAndRuleMistakesTogether) {
  config::Report report;
  EXPECT_FALSE(read(kGood + "microbatch = 3\n[train]\ndtype = \"fp16\"\nstep = 3\n", report));
  std::vector<Code> codes;
  for (const config::Diagnostic& d : report.diagnostics()) codes.push_back(d.code);
  EXPECT_EQ(codes,
            (std::vector<Code>{Code::kUnknownChoice, Code::kUnknownKey, Code::kDoesNotDivide}))
      << report.text("run.toml", false);
}

TEST(Spec, ABadClusterDoesNotRaiseFurtherErrors) {
  config::Report report;
  EXPECT_FALSE(
      read("[model]\nname = \"llama3-8b\"\n[cluster]\nname = \"h1000:64\"\n[layout]\ndp_shard = 4\n"
           "[batch]\nseq = 8\nglobal_batch = 3\n",
           report));
  ASSERT_EQ(report.num_errors(), 1) << report.text("run.toml", false);
  EXPECT_EQ(report.first_error().code, Code::kUnknownDevice);
}

TEST(Spec, HugeDegreesAreRefusedNotMultiplied) {
  config::Report report;
  EXPECT_FALSE(read(kGood + "[train]\nseed = 1\n", report) == std::nullopt);
  const std::string huge = "2147483647";
  config::Report second;
  EXPECT_FALSE(read("[model]\nname = \"llama3-8b\"\n[layout]\ntp = " + huge + "\ncp = " + huge +
                        "\npp = " + huge + "\n[batch]\nseq = 8\nglobal_batch = 3\n",
                    second));
  EXPECT_EQ(second.first_error().code, Code::kBadDegree);
}

std::vector<std::pair<Code, std::string>> mistakes(const std::string& model) {
  config::Report report;
  EXPECT_FALSE(read("[model]\n" + model + "[batch]\nseq = 8\nglobal_batch = 1\n", report));
  std::vector<std::pair<Code, std::string>> found;
  for (const config::Diagnostic& d : report.diagnostics()) {
    found.emplace_back(d.code, d.message);
    EXPECT_TRUE(d.primary.span.known()) << d.message;
    if (d.code == Code::kMissingKey) {
      EXPECT_NE(d.help.find(" to [model"), std::string::npos) << d.help;
    }
  }
  return found;
}

TEST(Spec, AModelIsLookedUpWhateverElseIsWrongInItsTable) {
  using Found = std::vector<std::pair<Code, std::string>>;
  const std::pair layers = {Code::kWrongType,
                            std::string("`model.layers` must be a whole number, not text")};
  EXPECT_EQ(mistakes("name = \"lama3-8b\"\nlayers = \"6\"\n"),
            (Found{layers, {Code::kUnknownModel, "no model is called `lama3-8b`"}}));
  EXPECT_EQ(mistakes("name = \"mine\"\nlike = \"lama3-8b\"\nlayers = \"6\"\n"),
            (Found{layers, {Code::kUnknownModel, "no model is called `lama3-8b`"}}));
  EXPECT_EQ(mistakes("name = \"llama3-8b\"\nlayers = \"6\"\n"), Found{layers});
  EXPECT_EQ(mistakes("name = 3\n"),
            (Found{{Code::kWrongType, "`model.name` must be text, not a whole number"}}));
}

TEST(Spec, EveryMissingSizeIsNamedAndNoDerivedOne) {
  using Found = std::vector<std::pair<Code, std::string>>;
  const std::string most = "hidden = 64\nheads = 4\nffn = 64\nvocab = 64\n";
  EXPECT_EQ(mistakes(most), (Found{{Code::kMissingKey, "`model.layers` is missing"},
                                   {Code::kMissingKey, "`model.max_positions` is missing"}}));
  EXPECT_EQ(mistakes(most + "name = \"mine\"\nmax_positions = 64\nlayer = 2\n"),
            (Found{{Code::kUnknownKey, "no key `layer` in [model]"}}));
  EXPECT_EQ(mistakes(most + "layers = 2\nmax_positions = 64\nfamily = \"moe\"\nmoe.top_k = 1\n"),
            (Found{{Code::kMissingKey, "`model.moe.experts` is missing"},
                   {Code::kMissingKey, "`model.moe.expert_ffn` is missing"}}));
}

TEST(Spec, DoubtfulLengthsAreWarnings) {
  config::Report report;
  const auto spec = read(kGood + "[train]\nsteps = 10\nwarmup = 11\n", report);
  ASSERT_TRUE(spec) << report.text("run.toml", false);
  ASSERT_EQ(report.diagnostics().size(), 1u);
  EXPECT_EQ(report.diagnostics()[0].severity, config::Severity::kWarning);
  EXPECT_EQ(report.diagnostics()[0].message,
            "warmup = 11 is longer than the run of 10 steps: the learning rate never reaches its "
            "peak");
  config::Report longer;
  EXPECT_TRUE(
      read("[model]\nname = \"llama3-8b\"\nmax_positions = 64\n[batch]\nseq = 128\n"
           "global_batch = 1\n",
           longer));
  ASSERT_EQ(longer.diagnostics().size(), 1u);
  EXPECT_EQ(longer.diagnostics()[0].severity, config::Severity::kWarning);
  EXPECT_EQ(longer.diagnostics()[0].message,
            "seq = 128 is longer than the 64 positions of llama3-8b");
}

TEST(Spec, LearningRatesThatContradictThemselvesAreRefused) {
  const auto refusal = [](const std::string& train) -> std::string {
    config::Report report;
    const auto spec = read(kGood + "[train]\nsteps = 10\nlr = 0.5\n" + train, report);
    if (spec) return "";
    EXPECT_EQ(report.num_errors(), 1) << report.text("run.toml", false);
    EXPECT_EQ(report.first_error().code, Code::kConflict);
    return report.diagnostics()[0].message;
  };
  EXPECT_EQ(refusal("lr_decay = \"cosine\"\nmin_lr = 0.25\n"), "");
  EXPECT_EQ(refusal("lr_decay = \"wsd\"\ndecay_steps = 8\nwarmup = 2\n"), "");
  EXPECT_EQ(refusal("lr_decay = \"linear\"\nmin_lr = 1.0\n"), "min_lr = 1 is above lr = 0.5");
  EXPECT_EQ(refusal("min_lr = 0.25\n"),
            "min_lr = 0.25 is never reached with lr_decay = \"constant\"");
  EXPECT_EQ(refusal("lr_decay = \"cosine\"\ndecay_steps = 2\n"),
            "decay_steps = 2 has no meaning with lr_decay = \"cosine\"");
  EXPECT_EQ(refusal("lr_decay = \"wsd\"\ndecay_steps = 9\nwarmup = 2\n"),
            "lr_decay = \"wsd\" falls over the last decay_steps = 9 of 10 steps, 2 of them warmup");
}

TEST(Spec, IsSummedUpInWords) {
  config::Report report;
  const auto spec = read(
      "[model]\nlayers = 2\nhidden = 64\nheads = 4\nffn = 64\nvocab = 64\nmax_positions = 64\n"
      "[batch]\nseq = 8\nglobal_batch = 1\n",
      report);
  ASSERT_TRUE(spec) << report.text("run.toml", false);
  EXPECT_EQ(to_text(*spec),
            "a model of its own on 1 rank: tp 1 x cp 1 x pp 1 x dp 1, zero 1; 1 sequence of 8 "
            "tokens a step, 1 microbatch per data-parallel rank");
}

TEST(Spec, AMissingModelIsOneMistake) {
  config::Report empty;
  EXPECT_FALSE(read("[batch]\nseq = 8\nglobal_batch = 3\n", empty));
  ASSERT_EQ(empty.num_errors(), 1);
  EXPECT_EQ(empty.first_error().message, "`model.name` is missing");
  config::Report misspelt;
  EXPECT_FALSE(read("[modle]\nname = \"x\"\n[batch]\nseq = 8\nglobal_batch = 3\n", misspelt));
  ASSERT_EQ(misspelt.num_errors(), 1) << misspelt.text("", false);
  EXPECT_EQ(misspelt.first_error().code, Code::kUnknownKey);
}

// docs/config.md is this table; LOCKSTEP_UPDATE_GOLDEN=1 rewrites it.
TEST(RunFields, AreTheDocumentedOnes) {
  const std::string page =
      "# Run files\n\n"
      "A run file is TOML, or JSON with the same keys. `lockstep config check FILE` reports every\n"
      "mistake in it; `lockstep config show FILE --origin` shows each value and who set it.\n\n"
      "A value comes from `--set layout.tp=8`, else from the environment "
      "(`LOCKSTEP_LAYOUT_TP=8`),\n"
      "else from the file, else from the file that its first line `extends = \"base.toml\"` "
      "names,\n"
      "else from the default. Unknown keys are refused. Files named in a run file lie beside "
      "it.\n\n"
      "This page is written from the table the program checks against.\n\n" +
      config::fields_markdown(run_fields());
  EXPECT_TRUE(support::matches_golden("../../docs/config.md", page));
}

}  // namespace
}  // namespace lockstep::spec
