#include "lockstep/plan/rules.h"

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/mesh/divisors.h"

namespace lockstep::plan {
namespace {

using config::Report;
using config::Settings;

// One side of a contradiction: a key, and what to write under it.
struct Side {
  std::string path;
  std::string text;
};

class Rules {
 public:
  Rules(Draft& draft, Report& report) : draft_(draft), settings_(draft.settings), report_(report) {}

  void run() {
    warmup();
    if (!draft_.degrees || !countable()) return;
    fill_dp();
    world();
    shard();
    experts();
    batch();
    if (draft_.model) {
      pipeline();
      tensor();
      expert_sizes();
    }
    sequence();
  }

 private:
  mesh::Degrees& degrees() { return *draft_.degrees; }

  // Sides that were written down become labels, the first of them the primary one; a side that is
  // a default or follows from others becomes a note.
  void refuse(Code code, std::string message, std::initializer_list<Side> sides, std::string help,
              config::Severity severity = config::Severity::kError) {
    config::Diagnostic d{.severity = severity,
                         .code = code,
                         .message = std::move(message),
                         .primary = {},
                         .secondary = {},
                         .notes = {},
                         .help = std::move(help)};
    for (const Side& side : sides) {
      const config::Span span = settings_.span(side.path);
      if (!span.known())
        d.notes.push_back(join_parts("`", side.path, "` is not set: ", side.text));
      else if (!d.primary.span.known())
        d.primary = {span, side.text};
      else
        d.secondary.push_back({span, side.text});
    }
    report_.add(std::move(d));
  }

  // Where a size of the model was written: its own key, or the name it came with.
  std::string model_key(const std::string& size) const {
    std::string path = "model." + size;
    if (settings_.is_set(path)) return path;
    return settings_.is_set("model.name") ? "model.name" : "model.like";
  }
  std::string title() const {
    return draft_.model->name.empty() ? "the model" : draft_.model->name;
  }
  Side model_side(const std::string& size, std::int64_t value, const char* what) const {
    const std::string key = model_key(size);
    const std::string owner = key == "model." + size ? "" : title() + " has ";
    return {key, owner + std::to_string(value) + " " + what};
  }

  // Whether the ranks can be counted at all; the rules below multiply degrees freely.
  bool countable() {
    mesh::Degrees dense = degrees();
    dense.dp_shard.reset();
    dense.ep = dense.etp = 1;
    const auto made = mesh::Mesh::create(dense);
    if (made.ok()) return true;
    refuse(made.error().code, made.error().message,
           {{first_set({"layout.dp", "layout.tp", "layout.pp", "layout.cp"}), "the degrees"}},
           made.error().help);
    return false;
  }

  void fill_dp() {
    if (settings_.is_set("layout.dp")) return;
    dp_is_known_ = draft_.cluster || !settings_.is_set("cluster.name");
    if (!draft_.cluster) return;
    mesh::Degrees& d = degrees();
    const std::int64_t model_ranks = d.tp * d.cp * d.pp;
    const std::int64_t devices = draft_.cluster->count;
    if (devices % model_ranks == 0) {
      d.dp = devices / model_ranks;
      return;
    }
    std::string help = join_parts("with cp = ", d.cp, " and pp = ", d.pp, ", tp = ");
    if (devices % (d.cp * d.pp) == 0)
      help += to_text(mesh::nearest_divisors(devices / (d.cp * d.pp), d.tp)) + " fits";
    else
      help = join_parts("tp x cp x pp must divide ", devices, "; the nearest products that do: ",
                        to_text(mesh::nearest_divisors(devices, model_ranks)));
    refuse(Code::kDegreesDoNotMatchWorld,
           join_parts("tp x cp x pp = ", d.tp, " x ", d.cp, " x ", d.pp, " = ", model_ranks,
                      " does not divide the ", devices, " devices of ", draft_.cluster->name),
           {{first_set({"layout.tp", "layout.pp", "layout.cp"}), join_parts(model_ranks, " ranks")},
            {"cluster.name", join_parts(devices, " devices")}},
           help);
    dp_is_known_ = false;
  }

  std::string first_set(std::initializer_list<const char*> paths) const {
    for (const char* path : paths)
      if (settings_.is_set(path)) return path;
    return *paths.begin();
  }

  void world() {
    if (!dp_is_known_ || !draft_.cluster) return;
    const mesh::Degrees& d = degrees();
    const Result<void> fits = mesh::check_world(d, draft_.cluster->count);
    if (fits.ok()) return;
    refuse(fits.error().code, fits.error().message,
           {{first_set({"layout.dp", "layout.tp", "layout.pp", "layout.cp"}),
             join_parts(d.tp * d.cp * d.pp * d.dp, " ranks in all")},
            {"cluster.name", join_parts(draft_.cluster->count, " devices")}},
           fits.error().help);
  }

  void shard() {
    const mesh::Degrees& d = degrees();
    if (!dp_is_known_ || !d.dp_shard) return;
    const auto made = mesh::Mesh::create({.dp = d.dp, .dp_shard = d.dp_shard});
    if (made.ok()) return;
    refuse(made.error().code, made.error().message,
           {{"layout.dp_shard", join_parts("shards of ", *d.dp_shard)},
            {first_set({"layout.dp", "cluster.name"}), join_parts("dp is ", d.dp)}},
           made.error().help);
  }

  void experts() {
    const mesh::Degrees& d = degrees();
    const std::string key = d.ep > 1 ? "layout.ep" : "layout.etp";
    if (d.ep == 1 && d.etp == 1) return;
    if (draft_.model && draft_.model->moe.experts == 0) {
      refuse(Code::kConflict,
             join_parts(key == "layout.ep" ? "ep = " : "etp = ", key == "layout.ep" ? d.ep : d.etp,
                        ", but ", title(), " has no experts"),
             {{key, "needs experts"}, {model_key("family"), "a dense model"}},
             "remove it, or choose a mixture-of-experts model");
      return;
    }
    if (!dp_is_known_) return;
    mesh::Degrees one_stage = d;
    one_stage.pp = 1;
    one_stage.dp_shard.reset();
    const auto made = mesh::Mesh::create(one_stage);
    if (made.ok()) return;
    refuse(made.error().code, made.error().message,
           {{key, "expert axes"}, {first_set({"layout.dp", "layout.tp"}), "dense axes"}},
           made.error().help);
  }

  void batch() {
    const auto global = settings_.integer("batch.global_batch");
    const auto microbatch = settings_.integer("batch.microbatch");
    if (!dp_is_known_ || !global || !microbatch) return;
    const auto share = mesh::checked_product(degrees().dp, *microbatch);
    if (share && *global % *share == 0) return;
    const std::int64_t unit = share.value_or(degrees().dp);
    const std::int64_t below = *global / unit * unit;
    std::string help = join_parts("the nearest global_batch: ");
    if (below > 0) help += join_parts(below, " or ");
    help += std::to_string(below + unit);
    refuse(Code::kDoesNotDivide,
           join_parts("global_batch = ", *global, " is not a multiple of dp x microbatch = ",
                      degrees().dp, " x ", *microbatch, " = ", unit),
           {{"batch.global_batch", join_parts(*global, " sequences")},
            {first_set({"layout.dp", "batch.microbatch", "cluster.name"}),
             join_parts("a step takes multiples of ", unit)}},
           help);
  }

  void pipeline() {
    const std::int64_t layers = draft_.model->layers;
    if (degrees().pp <= layers) return;
    refuse(Code::kBadDegree,
           join_parts("pp = ", degrees().pp, " needs ", degrees().pp, " layers, but ", title(),
                      " has ", layers),
           {{"layout.pp", join_parts(degrees().pp, " stages")},
            model_side("layers", layers, "layers")},
           join_parts("a stage needs at least one layer: pp = ", layers, " or less"));
  }

  // Refuses when `degree` at layout.<axis> does not divide `size` at model.<key>.
  void divides(const char* axis, std::int64_t degree, const char* key, std::int64_t size,
               const char* what) {
    if (size < 1 || size % degree == 0) return;
    refuse(
        Code::kDoesNotDivide,
        join_parts(axis, " = ", degree, " does not divide the ", size, " ", what, " of ", title()),
        {{join_parts("layout.", axis), join_parts("divided by ", degree)},
         model_side(key, size, what)},
        join_parts("the nearest ", axis,
                   " that does: ", to_text(mesh::nearest_divisors(size, degree))));
  }

  void tensor() {
    const arch::ModelConfig& model = *draft_.model;
    const std::int64_t tp = degrees().tp;
    divides("tp", tp, "heads", model.heads, "heads");
    if (model.heads % tp == 0) divides("tp", tp, "kv_heads", model.kv_heads, "key-value heads");
    if (model.moe.experts == 0 || model.moe.dense_layers > 0)
      divides("tp", tp, "ffn", model.ffn, "MLP columns");
    divides("tp", tp, "name", model.moe.shared_ffn, "shared-expert columns");
  }

  void expert_sizes() {
    const arch::ModelConfig& model = *draft_.model;
    if (model.moe.experts == 0) return;
    divides("ep", degrees().ep, "name", model.moe.experts, "experts");
    divides("etp", degrees().etp, "name", model.moe.expert_ffn, "expert columns");
  }

  void sequence() {
    const auto seq = settings_.integer("batch.seq");
    const auto sp = settings_.boolean("layout.sp");
    if (!seq || !sp) return;
    const mesh::Degrees& d = degrees();
    // Zigzag gives each context rank one early and one late piece, so cp cuts 2 cp pieces.
    const std::int64_t pieces = (d.cp > 1 ? 2 * d.cp : 1) * (*sp ? d.tp : 1);
    if (*seq % pieces != 0) {
      const std::int64_t below = *seq / pieces * pieces;
      const std::string context = d.cp > 1 ? join_parts("2 x cp = ", 2 * d.cp) : "";
      const std::string tensor = *sp && d.tp > 1 ? join_parts("tp = ", d.tp) : "";
      const char* times = context.empty() || tensor.empty() ? "" : " times ";
      std::string help = "the nearest seq: ";
      if (below > 0) help += join_parts(below, " or ");
      refuse(Code::kDoesNotDivide,
             join_parts("seq = ", *seq, " is not a multiple of ", context, times, tensor),
             {{"batch.seq", join_parts(*seq, " tokens")},
              {d.cp > 1 ? "layout.cp" : "layout.tp", join_parts("cut into ", pieces, " pieces")}},
             help + std::to_string(below + pieces));
    }
    if (draft_.model && *seq > draft_.model->max_positions) positions(*seq);
  }

  // Learned positions end; rotary ones go on, untrained.
  void positions(std::int64_t seq) {
    const std::int64_t limit = draft_.model->max_positions;
    const bool learned = draft_.model->family == arch::Family::kGpt2;
    refuse(Code::kConflict,
           join_parts("seq = ", seq, " is longer than the ", limit, " positions of ", title()),
           {{"batch.seq", join_parts(seq, " tokens")},
            model_side("max_positions", limit, "positions")},
           join_parts(learned ? "this family learns its positions: seq = "
                              : "the model was made for seq = ",
                      limit, " or less"),
           learned ? config::Severity::kError : config::Severity::kWarning);
  }

  void warmup() {
    const auto rise = settings_.integer("train.warmup");
    const auto steps = settings_.integer("train.steps");
    if (!rise || !steps || *rise <= *steps) return;
    refuse(Code::kConflict,
           join_parts("warmup = ", *rise, " is longer than the run of ", *steps,
                      " steps: the learning rate never reaches its peak"),
           {{"train.warmup", join_parts(*rise, " steps of warmup")},
            {"train.steps", join_parts(*steps, " steps in all")}},
           "make the warmup shorter or the run longer", config::Severity::kWarning);
  }

  Draft& draft_;
  const Settings& settings_;
  Report& report_;
  bool dp_is_known_ = true;
};

}  // namespace

void apply_rules(Draft& draft, Report& report) { Rules(draft, report).run(); }

}  // namespace lockstep::plan
