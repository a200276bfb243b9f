#include "cli/verify/request.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "cli/engine.h"
#include "cli/run_file.h"
#include "cli/verbs.h"
#include "lockstep/base/text.h"
#include "lockstep/model/arch.h"
#include "lockstep/model/user_model.h"
#include "lockstep/spec/layout_space.h"
#include "lockstep/spec/legal.h"
#include "lockstep/spec/shrink.h"
#include "lockstep/spec/step.h"

namespace lockstep::cli {
namespace {

constexpr std::int64_t kMaxRanks = 64;
constexpr std::int64_t kMaxParameters = 50'000'000;  // several whole copies are kept
constexpr std::int64_t kShortSeq = 32;

// Awkward on purpose: layers that no even number of stages divides, but enough for two stages on
// every rank; queries that share a key-value head; a vocabulary that is no round number. Four
// tensor ranks divide it and the key-value heads; eight pad the one and copy the others.
std::string built_in_run(std::int64_t ranks) {
  return join_parts(R"(
[model]
name = "small-llama"
layers = )",
                    2 * std::max<std::int64_t>(ranks, 2) + 1, R"(
hidden = 64
heads = 8
kv_heads = 4
ffn = 96
vocab = 100
max_positions = 64
[batch]
seq = 16
global_batch = 16
[train]
lr = 1e-2
)");
}

class Reader {
 public:
  Reader(const Args& args, config::Report& report, std::optional<DeviceKind> device,
         const std::function<void(const std::string&)>& tell)
      : args_(args), report_(report), device_(device), tell_(tell) {}

  std::optional<VerifyRequest> read() {
    const auto document = load_run(args_, report_, built_in_run(most_ranks()));
    if (!document) return std::nullopt;
    auto spec = spec::read_spec(*document, report_);
    if (!spec) return std::nullopt;
    request_.spec = *std::move(spec);
    request_.spec.cluster.reset();
    request_.spec.device = device_.value_or(request_.spec.device);
    request_.spec.train.dtype = *parse_dtype(args_.text("dtype"));
    request_.spec.train.steps = args_.integer("steps");
    request_.labels = *data::parse_label_mask(args_.text("labels"));
    request_.routing = *model::kRoutings.find(args_.text("routing"));
    if (!read_model()) return std::nullopt;
    if (request_.routing != model::Routing::kScores && !request_.spec.model.moe.router_bias)
      refuse(Code::kConflict,
             join_parts("--routing ", args_.text("routing"), " steers by selection biases, and ",
                        request_.spec.model.name, " has none"),
             "a mixture of experts gets some by --set model.moe.router_bias=true");
    choose_layouts();
    if (report_.ok() && args_.has("part")) take_part();
    if (report_.ok()) count_ranks();
    if (!report_.ok()) return std::nullopt;
    return std::move(request_);
  }

 private:
  void refuse(Code code, std::string message, std::string help) {
    report_.add(Error{code, std::move(message), std::move(help)});
  }

  bool is_own() const { return args_.has("FILE") && !args_.has("layouts"); }

  bool read_model() {
    model::ModelConfig& model = request_.spec.model;
    if (args_.has("model")) {
      auto found = model::find_model(args_.text("model"), report_);
      if (!found) return false;
      model = *std::move(found);
    }
    if (args_.flag("shrink")) shrink();
    const Result<model::Model> described = model::describe(model);
    if (!described.ok()) return report_.add(described.error()), false;
    if (const std::int64_t size = count(*described).total; size > kMaxParameters) {
      refuse(Code::kBadOptionValue,
             join_parts(model.name, " has ", with_commas(size), " parameters; at most ",
                        with_commas(kMaxParameters), " can be verified"),
             "--shrink verifies a small model of the same structure");
      return false;
    }
    return true;
  }

  // Few layers, but no fewer than the stages of the layout asked for, and heads for its tensor
  // ranks; few and short sequences, but as many as keep its pipeline full.
  void shrink() {
    spec::Spec& spec = request_.spec;
    const std::int64_t layers = spec.model.layers;
    const mesh::Degrees& degrees = spec.layout.degrees;
    // Ulysses deals the heads of tensor ranks to context ranks.
    const bool deals = degrees.cp > 1 && spec.layout.context == model::CpMethod::kUlysses;
    spec.model = spec::shrink(spec.model, is_own() ? degrees.tp * (deals ? degrees.cp : 1) : 1);
    const std::int64_t cut =
        !is_own() ? 1 : (degrees.cp > 1 ? 2 * degrees.cp : 1) * (spec.layout.sp ? degrees.tp : 1);
    spec.batch.seq = std::min(spec.batch.seq, (kShortSeq + cut - 1) / cut * cut);
    if (!is_own()) return;
    const std::int64_t stages = spec.layout.degrees.pp * spec.layout.chunks;
    // Two on each where some of them are recomputed, so that some may be.
    const bool has_counts = !spec.layout.recompute.blocks.empty();
    spec.model.layers =
        std::max(spec.model.layers, std::min(layers, has_counts ? 2 * stages : stages));
    if (spec.model.layers != layers) {
      spec.layout.layers.clear();
      if (has_counts) shrink_blocks(spec);
    }
    spec.batch.microbatch = 1;
    spec.batch.global_batch =
        spec.layout.degrees.dp * std::min(spec::num_microbatches(spec.layout, spec.batch),
                                          std::max<std::int64_t>(2, 2 * stages));
  }

  // As many blocks of each stage, or all that it has left.
  static void shrink_blocks(spec::Spec& spec) {
    const std::vector<int> layers = spec::stage_layers(spec.layout, spec.model.layers);
    std::vector<int> blocks = spec.layout.recompute.blocks;
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = std::min(blocks[i], layers[i]);
    spec.layout.recompute =
        spec::with_blocks(spec.layout.recompute.drop.rest(), layers, std::move(blocks));
  }

  void choose_layouts() {
    const std::string choice = is_own()               ? ""
                               : args_.has("layouts") ? args_.text("layouts")
                                                      : "pairs";
    const int strength = choice == "pairs" ? 2 : choice == "triples" ? 3 : 0;
    if (is_own())
      add(request_.spec.layout);
    else if (choice == "all" || strength > 0)
      add_space(strength);
    else
      add_named(choice);
  }

  std::int64_t most_ranks() const { return args_.has("ranks") ? args_.integer("ranks") : 4; }

  // 1, 2, 4 and so on up to --ranks; with --processes only that many.
  std::vector<std::int64_t> rank_counts() const {
    const std::int64_t most = most_ranks();
    std::vector<std::int64_t> counts;
    for (std::int64_t ranks = 1; ranks < most; ranks *= 2)
      if (!args_.flag("processes")) counts.push_back(ranks);
    counts.push_back(most);
    return counts;
  }

  void add_space(int strength) {
    const spec::Spec& spec = request_.spec;
    if (const auto errors = spec::legal(spec.model, spec::Layout(), spec.batch, spec.train.dtype);
        !errors.empty()) {
      for (const Error& error : errors) report_.add(error);
      return;
    }
    spec::CoveringArray sum;
    std::int64_t total = 0;
    const char* what = strength == 2 ? "pair" : "triple";
    for (const std::int64_t ranks : rank_counts()) {
      const std::string choosing = join_parts("choosing layouts of ", counted(ranks, "rank"));
      if (tell_) tell_(choosing);
      spec::CoveringArray some = {spec::layouts(spec.model, ranks, spec.batch, spec.train.dtype)};
      total += std::ssize(some.layouts);
      const auto tell = [&](std::int64_t covered, std::int64_t combinations) {
        tell_(
            join_parts(choosing, ": ", with_commas(covered), " of ", counted(combinations, what)));
      };
      if (strength > 0)
        some = spec::covering_array(some.layouts, strength,
                                    tell_ ? spec::CoveringProgress(tell) : nullptr);
      request_.layouts.insert(request_.layouts.end(), some.layouts.begin(), some.layouts.end());
      sum.combinations += some.combinations;
      sum.infeasible += some.infeasible;
    }
    request_.selection =
        strength == 0 ? "every layout"
                      : join_parts("every ", what, " of settings, out of ",
                                   counted(total, "layout"), ": ", counted(sum.combinations, what),
                                   "; ", with_commas(sum.infeasible), " more that no layout has");
    if (request_.layouts.empty())
      refuse(Code::kNotRunYet,
             join_parts("no layout of ", most_ranks(), " ranks cuts ", spec.batch.global_batch,
                        " sequences evenly"),
             "set batch.global_batch to a multiple of the ranks");
  }

  void add_named(const std::string& text) {
    std::vector<std::string_view> names = split(text, ';');
    const bool ends_with_separator = names.back().find_first_not_of(' ') == std::string::npos;
    if (ends_with_separator && names.size() > 1) names.pop_back();
    for (const std::string_view name : names) {
      const Result<spec::Layout> layout = spec::parse_layout(name);
      if (layout.ok())
        add(*layout);
      else
        report_.add(layout.error());
    }
  }

  void add(const spec::Layout& layout) {
    const spec::Spec& spec = request_.spec;
    const spec::Batch& batch = spec.batch;
    const bool cuts =
        batch.global_batch % (layout.degrees.dp * layout.microbatches.value_or(1)) == 0;
    const auto errors =
        spec::legal(spec.model, layout, cuts ? cut(batch, layout) : batch, spec.train.dtype);
    for (const Error& error : errors) report_.add(error);
    request_.layouts.push_back(layout);
  }

  // Neighbours have much in common, so they go to different parts.
  void take_part() {
    const std::vector<std::string_view> numbers = split(args_.text("part"), '/');
    const auto part = number_in<std::int64_t>(numbers.front());
    const auto parts = number_in<std::int64_t>(numbers.back());
    if (numbers.size() != 2 || !part || !parts || *part < 1 || *part > *parts)
      return refuse(Code::kBadOptionValue,
                    join_parts("--part ", args_.text("part"), " is no part of a whole"),
                    "--part 1/4 is the first of four parts");
    const std::int64_t all = std::ssize(request_.layouts);
    if (*parts > all)
      return refuse(Code::kBadOptionValue,
                    join_parts(counted(all, "layout"), " in ", counted(*parts, "part")),
                    join_parts("at most --part 1/", all));
    std::vector<spec::Layout> own;
    for (std::int64_t i = *part - 1; i < all; i += *parts)
      own.push_back(std::move(request_.layouts[static_cast<std::size_t>(i)]));
    request_.layouts = std::move(own);
    if (request_.selection.empty()) request_.selection = counted(all, "layout");
    request_.selection += join_parts("; part ", *part, " of ", *parts);
  }

  void count_ranks() {
    std::set<std::int64_t> counts;
    for (const spec::Layout& layout : request_.layouts)
      counts.insert(layout.degrees.tp * layout.degrees.cp * layout.degrees.pp * layout.degrees.dp);
    if (*counts.rbegin() > kMaxRanks)
      refuse(Code::kBadOptionValue,
             join_parts("a layout of ", *counts.rbegin(), " ranks; at most ", kMaxRanks,
                        " can be verified"),
             "verify a smaller one of the same kind with --set layout.dp=2");
    if (args_.flag("processes") && counts.size() > 1)
      refuse(Code::kBadOptionValue, "--processes runs layouts of one number of ranks only",
             "name layouts of equal numbers of ranks, or leave out --processes");
    for (const std::int64_t count : counts) request_.ranks.push_back(std::to_string(count));
  }

  const Args& args_;
  config::Report& report_;
  const std::optional<DeviceKind> device_;
  const std::function<void(const std::string&)>& tell_;
  VerifyRequest request_;
};

std::vector<Option> verify_options() {
  return grouped(
      {{"What",
        {text(
             "layouts", "WHICH",
             "Layouts to verify: `all`; `pairs` or `triples`, a selection that meets every pair or "
             "triple of settings; or names separated by semicolons, as \"pp2 dp2 zero3; dp4\". "
             "Without it the layout of FILE, without that `pairs`"),
         integer("ranks", "N",
                 "For `all`, `pairs` and `triples`: on 1, 2, 4 and so on up to N ranks; 4 when not "
                 "given")
             .between(1, static_cast<double>(kMaxRanks)),
         text("part", "I/N",
              "Verify the I-th of N parts, every N-th layout: what takes hours in pieces"),
         text("model", "MODEL", "A known model or a model file, in place of that of FILE"),
         flag("shrink", "Verify a small model of the same structure"),
         integer("steps", "N", "Steps of training").initially("3").between(1, 100),
         choice("labels", "WHICH", data::kLabelMaskNames.names(),
                "Labels that count: a different share in every sequence; one of a step; the first "
                "eighth of every second sequence in half of a step; the last of every eighth of a "
                "sequence; all but its last")
             .initially("some"),
         choice("routing", "WHICH", model::kRoutings.names(),
                "Experts that tokens of a mixture are sent to: by their scores; as if all scores "
                "were equal; all to the last; all to the first half; to others in every block")
             .initially("scores"),
         choice("dtype", "TYPE", {"f64", "f32", "bf16"},
                "Type to compute in: f64 shows the smallest mistake, f32 and bf16 are what trains")
             .initially("f64")}},
       {"How",
        {flag("processes", "One process per rank, over gloo; layouts of exactly --ranks ranks"),
         real("op-deadline", "SECONDS",
              "After so long an operation of ranks fails its layout: on a busy machine give more")
             .initially("60")
             .between(1, 1e6),
         flag("verbose", "Print a line for every layout"),
         flag("markdown", "Print a table of verdicts"), set_option()}}});
}

}  // namespace

std::optional<VerifyRequest> read_verify_request(
    const Args& args, config::Report& report, std::optional<DeviceKind> device,
    const std::function<void(const std::string&)>& tell) {
  return Reader(args, report, device, tell).read();
}

Verb verify_verb() {
  return {
      .name = "verify",
      .summary = "Prove that layouts train what one device would",
      .description =
          "Trains a few steps on one rank and again under every layout, and compares loss, "
          "gradient norm, every gradient, moment and parameter. Layouts of equal tensor and data "
          "degree, microbatch size and reduction must agree to the bit; bytes sent and tensor "
          "memory must be what was predicted. Exit code 1 when a layout fails; its first differing "
          "tensor is named. Needs no arguments; without FILE and --model it verifies on a built-in "
          "small llama.",
      .examples = {{"lockstep verify", "a built-in model, on up to four threads"},
                   {"lockstep verify --layouts all --ranks 8", "every layout of up to eight ranks"},
                   {"lockstep verify run.toml --shrink",
                    "the layout of a run file, on a small model of its kind"},
                   {"lockstep verify --layouts \"pp2 dp2 zero3\" --processes",
                    "one layout, over processes"}},
      .options = verify_options(),
      .positionals = {{.name = "FILE",
                       .help = "Run file, in TOML or JSON: gives model, batch and optimizer",
                       .required = false}},
      .engine = &Engine::verify};
}

}  // namespace lockstep::cli
