#include "lockstep/spec/contradictions.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/check.h"
#include "lockstep/config/suggest.h"
#include "lockstep/mesh/divisors.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/pipeline/layer_split.h"
#include "lockstep/spec/step.h"

namespace lockstep::spec {

std::string nearest_multiples(std::int64_t wanted, std::int64_t unit) {
  const std::int64_t below = wanted / unit * unit;
  return below > 0 ? join_parts(below, " or ", below + unit) : std::to_string(below + unit);
}

namespace {

constexpr std::int64_t kLongestProgram = std::int64_t{1} << 24;  // what program::lower takes

class Rules {
 public:
  explicit Rules(const Request& request) : asked_(request) {}

  std::vector<Contradiction> take() {
    if (counts() && (!asked_.degrees || countable())) run();
    return std::move(found_);
  }

 private:
  void run() {
    if (asked_.degrees) {
      world();
      shard();
      unsharded();
      experts();
      batch();
      ramp();
    }
    stage_three("resident", asked_.resident);
    stage_three("prefetch", asked_.prefetch);
    timetable();
    if (asked_.degrees && asked_.model != nullptr) {
      pipeline();
      stage_layers();
      recomputed_blocks();
      tensor();
      expert_sizes();
    }
    if (asked_.degrees && asked_.context) cp_method();
    if (asked_.degrees) sequence();
  }

  const mesh::Degrees& degrees() const { return *asked_.degrees; }
  const model::ModelConfig& model() const { return *asked_.model; }
  std::string title() const { return model().name.empty() ? "the model" : model().name; }

  void refuse(Code code, std::string message, std::vector<Side> sides, std::string help,
              bool is_warning = false) {
    found_.push_back({{code, std::move(message), std::move(help)}, std::move(sides), is_warning});
  }

  void refuse(const Error& error, std::vector<Side> sides) {
    refuse(error.code, error.message, std::move(sides), error.help);
  }

  // Of what was found last: legal values of `key`, "4 or 8".
  void add_nearest(const std::string& key, const std::string& values) {
    const std::string name = key.substr(key.find('.') + 1);
    found_.back().nearest.emplace_back(key, join_parts("the nearest ", name, ": ", values));
  }
  // Divisors of size / by, where that is whole.
  void add_nearest(const std::string& key, std::int64_t size, std::int64_t by,
                   std::int64_t degree) {
    if (size % by == 0) add_nearest(key, to_text(mesh::nearest_divisors(size / by, degree)));
  }

  // A size of the model is written under its own key, or came with the name.
  Side model_side(const std::string& size, std::int64_t value, std::string_view what) const {
    return {{"model." + size, "model.name", "model.like"},
            join_parts(value, " ", what.substr(0, what.size() - (value == 1 ? 1 : 0))),
            title() + " has "};
  }

  // Numbers that a run file's own ranges have refused already.
  bool counts() {
    const auto within = [&](const char* key, std::optional<std::int64_t> value, std::int64_t min,
                            std::int64_t max) {
      if (!value || (*value >= min && *value <= max)) return true;
      const std::string name(std::string_view(key).substr(std::string_view(key).find('.') + 1));
      refuse(Code::kOutOfRange,
             join_parts(name, " = ", *value, " is not between ", min, " and ", max),
             {{{key}, "out of range"}},
             join_parts("the nearest: ", name, " = ", *value < min ? min : max));
      return false;
    };
    constexpr std::int64_t kSize = 2147483647, kCount = 1'000'000'000'000'000;
    const bool all[] = {within("layout.zero", asked_.zero, 0, 3),
                        within("layout.vpp", asked_.chunks, 1, kSize),
                        within("layout.resident", asked_.resident, 1, kSize),
                        within("layout.prefetch", asked_.prefetch, 0, kSize),
                        within("layout.m", asked_.microbatches, 1, kSize),
                        within("batch.seq", asked_.seq, 1, kSize),
                        within("batch.global_batch", asked_.global_batch, 1, kCount),
                        within("batch.microbatch", asked_.microbatch, 1, kCount),
                        within("batch.ramp_start", asked_.ramp.start, 0, kCount),
                        within("batch.ramp_increment", asked_.ramp.increment, 0, kCount),
                        within("batch.ramp_samples", asked_.ramp.samples, 0, kCount)};
    return std::ranges::find(all, false) == std::end(all);
  }

  // Whether the ranks can be counted at all; the rules below multiply degrees freely.
  bool countable() {
    mesh::Degrees dense = degrees();
    dense.dp_shard.reset();
    dense.ep = dense.etp = 1;
    const auto made = mesh::Mesh::create(dense);
    if (made.ok()) return true;
    refuse(made.error(), {{{"layout.dp", "layout.tp", "layout.pp", "layout.cp"}, "the degrees"}});
    return false;
  }

  void world() {
    if (!asked_.dp_is_known || asked_.cluster == nullptr) return;
    const mesh::Degrees& d = degrees();
    const Result<void> fits = mesh::check_world(d, asked_.cluster->count);
    if (fits.ok()) return;
    refuse(fits.error(), {{{"layout.dp", "layout.tp", "layout.pp", "layout.cp"},
                           counted(d.tp * d.cp * d.pp * d.dp, "rank") + " in all"},
                          {{"cluster.name"}, counted(asked_.cluster->count, "device")}});
  }

  void shard() {
    const mesh::Degrees& d = degrees();
    if (!asked_.dp_is_known || !d.dp_shard) return;
    const auto made = mesh::Mesh::create({.dp = d.dp, .dp_shard = d.dp_shard});
    if (made.ok()) return;
    refuse(made.error(), {{{"layout.dp_shard"}, join_parts("shards of ", *d.dp_shard)},
                          {{"layout.dp", "cluster.name"}, join_parts("dp is ", d.dp)}});
  }

  void unsharded() {
    const mesh::Degrees& d = degrees();
    if (!asked_.dp_is_known || !asked_.zero || *asked_.zero > 0) return;
    if (!d.dp_shard || *d.dp_shard == d.dp) return;
    refuse(Code::kConflict,
           join_parts("dp_shard = ", *d.dp_shard, " of dp = ", d.dp,
                      " cuts the data axis into shards, but zero = 0 shards nothing"),
           {{{"layout.dp_shard"}, join_parts("shards of ", *d.dp_shard)},
            {{"layout.zero"}, "nothing is sharded"}},
           join_parts("the nearest: zero = 1, or dp_shard = ", d.dp));
  }

  // A setting that does nothing hides a mistake.
  void stage_three(const char* name, const std::optional<int>& value) {
    if (!value || !asked_.zero || *asked_.zero == 3) return;
    refuse(Code::kConflict,
           join_parts(name, " = ", *value, " is about gathered parameters, but zero = ",
                      *asked_.zero, " gathers none while it computes"),
           {{{join_parts("layout.", name)}, "needs zero = 3"},
            {{"layout.zero"}, join_parts("zero is ", *asked_.zero)}},
           join_parts("the nearest: zero = 3, or leave ", name, " out"));
  }

  void experts() {
    const mesh::Degrees& d = degrees();
    const std::string name = d.ep > 1 ? "ep" : "etp";
    if (d.ep == 1 && d.etp == 1) return;
    if (asked_.model != nullptr && model().moe.experts == 0) {
      refuse(Code::kConflict,
             join_parts(name, " = ", name == "ep" ? d.ep : d.etp, ", but ", title(),
                        " has no experts"),
             {{{"layout." + name}, "needs experts"},
              {{"model.family", "model.name", "model.like"}, "a dense model"}},
             "remove it, or choose a mixture-of-experts model");
      return;
    }
    if (!asked_.dp_is_known) return;
    mesh::Degrees one_stage = d;
    one_stage.pp = 1;
    one_stage.dp_shard.reset();
    const auto made = mesh::Mesh::create(one_stage);
    if (made.ok()) return;
    refuse(made.error(),
           {{{"layout." + name}, "expert axes"}, {{"layout.dp", "layout.tp"}, "dense axes"}});
  }

  void batch() {
    if (!asked_.dp_is_known || !asked_.global_batch || !asked_.microbatch) return;
    const std::int64_t global = *asked_.global_batch, dp = degrees().dp;
    const auto share = mesh::checked_product(dp, *asked_.microbatch);
    if (share && global % *share == 0) return microbatches(global / *share);
    const std::int64_t unit = share.value_or(dp);
    refuse(Code::kDoesNotDivide,
           join_parts("global_batch = ", global, " is not a multiple of dp x microbatch = ", dp,
                      " x ", *asked_.microbatch, " = ", unit),
           {{{"batch.global_batch"}, counted(global, "sequence")},
            {{"layout.dp", "batch.microbatch", "cluster.name"},
             join_parts("a step takes multiples of ", unit)}},
           "the nearest global_batch: " + nearest_multiples(global, unit));
    add_nearest("layout.dp", global, *asked_.microbatch, dp);
    add_nearest("batch.microbatch", global, dp, *asked_.microbatch);
  }

  // Every size that a growing batch has must be one that the layout can cut.
  void ramp() {
    const BatchRamp& asked = asked_.ramp;
    if (asked.is_none() || !num_microbatches_) return;
    const Side start = {{"batch.ramp_start"}, counted(asked.start, "sequence") + " at first"};
    const Side step = {{"batch.ramp_increment"}, join_parts(asked.increment, " more at a time")};
    const Side samples = {{"batch.ramp_samples"}, join_parts("over ", asked.samples, " samples")};
    if (asked.start == 0 || asked.increment == 0 || asked.samples == 0)
      return refuse(Code::kConflict,
                    join_parts("ramp_start = ", asked.start, ", ramp_increment = ", asked.increment,
                               ", ramp_samples = ", asked.samples, " make no ramp"),
                    {start, step, samples}, "give all three above 0, or none of them");
    const std::int64_t global = *asked_.global_batch, rise = global - asked.start;
    const std::int64_t unit = global / *num_microbatches_;
    const mesh::NearestDivisors nearest = mesh::nearest_divisors(
        std::max<std::int64_t>(1, rise / unit), std::max<std::int64_t>(1, asked.increment / unit));
    const Side whole = {{"batch.global_batch"}, counted(global, "sequence") + " at the end"};
    if (rise <= 0)
      return refuse(
          Code::kConflict,
          join_parts("ramp_start = ", asked.start, " is not below global_batch = ", global),
          {start, whole},
          "leave the ramp out, or begin at a smaller multiple of " + join_parts(unit));
    if (asked.start % unit != 0)
      refuse(Code::kDoesNotDivide,
             join_parts("ramp_start = ", asked.start,
                        " is not a multiple of dp x microbatch = ", unit),
             {start}, "the nearest ramp_start: " + nearest_multiples(asked.start, unit));
    else if (rise % asked.increment != 0 || asked.increment % unit != 0)
      refuse(Code::kDoesNotDivide,
             join_parts("ramp_increment = ", asked.increment,
                        " does not lead from ramp_start = ", asked.start,
                        " to global_batch = ", global, " in multiples of dp x microbatch = ", unit),
             {step, whole},
             join_parts("the nearest ramp_increment: ", unit * nearest.below,
                        nearest.above ? join_parts(" or ", unit * *nearest.above) : std::string()));
  }

  void microbatches(std::int64_t made) {
    num_microbatches_ = made;
    if (!asked_.microbatches || *asked_.microbatches == made) return;
    refuse(Code::kConflict,
           join_parts("m = ", *asked_.microbatches, ", but global_batch = ", *asked_.global_batch,
                      " in microbatches of ", *asked_.microbatch, " over dp = ", degrees().dp,
                      " makes ", made),
           {}, join_parts("the nearest: m = ", made));
  }

  // A program is a list, so it ends somewhere.
  bool is_too_long() {
    if (asked_.model == nullptr || !num_microbatches_) return false;
    const std::int64_t units = model().layers + model().mtp_layers + 2;
    const std::int64_t most = kLongestProgram / units;
    if (*num_microbatches_ <= most) return false;
    refuse(Code::kOutOfRange,
           join_parts("global_batch = ", *asked_.global_batch, " makes ", *num_microbatches_,
                      " microbatches through ", units, " units, more than ", kLongestProgram,
                      " computations in a step"),
           {{{"batch.global_batch"}, counted(*num_microbatches_, "microbatch")},
            {{"batch.microbatch"}, counted(*asked_.microbatch, "sequence") + " at once"}},
           join_parts("the nearest: ", most, " microbatches, from a larger microbatch or dp"));
    return true;
  }

  void timetable() {
    if (!asked_.schedule) return;
    const auto row = pipeline::find(*asked_.schedule);
    if (!row.ok()) {
      const std::string near = config::did_you_mean(*asked_.schedule, schedule_names());
      return refuse(row.error().code, row.error().message, {{{"layout.schedule"}, "unknown"}},
                    near.empty() ? row.error().help : near);
    }
    if (is_too_long() || !asked_.chunks || !asked_.degrees) return;
    const std::int64_t pp = degrees().pp, m = num_microbatches_.value_or(pp);
    const auto stages = mesh::checked_product(pp, *asked_.chunks);
    const auto passes = stages ? mesh::checked_product(*stages, m) : std::nullopt;
    if (!passes || *passes > kLongestProgram) return;  // refused above, or has too many stages
    const auto made = row->build({.coords = static_cast<int>(pp),
                                  .chunks = *asked_.chunks,
                                  .microbatches = static_cast<int>(m)});
    if (made.ok()) return;
    refuse(made.error(), {{{"layout.vpp", "layout.pp", "batch.global_batch"},
                           join_parts("pp ", pp, ", virtual stages ", *asked_.chunks, ", ",
                                      counted(m, "microbatch"))},
                          {{"layout.schedule"}, join_parts("takes ", row->accepts)}});
  }

  void pipeline() {
    const std::int64_t layers = model().layers, pp = degrees().pp;
    const std::int64_t chunks = asked_.chunks.value_or(1);
    if (pp <= layers / chunks) return;
    const bool plain = chunks == 1;
    refuse(Code::kBadDegree,
           join_parts(plain ? "pp = " : "pp x vpp = ", pp,
                      plain ? "" : join_parts(" x ", chunks, " = ", pp * chunks), " needs ",
                      pp * chunks, " layers, but ", title(), " has ", layers),
           {{{"layout.pp"}, counted(pp * chunks, "stage")}, model_side("layers", layers, "layers")},
           join_parts("a stage needs at least one layer: ",
                      chunks <= layers ? "pp = " : "vpp = 1 and pp = ",
                      chunks <= layers ? layers / chunks : layers, " or less"));
  }

  // Layers of each stage that do not make up the model, or leave a stage between the ends without
  // any.
  void stage_layers() {
    const std::vector<int>& given = asked_.layers;
    const std::int64_t stages = degrees().pp * asked_.chunks.value_or(1);
    if (given.empty() || stages > model().layers + 2) return;
    const auto count = std::ssize(given);
    const std::int64_t sum = std::accumulate(given.begin(), given.end(), std::int64_t{0});
    const bool hollow = count > 2 && std::count(given.begin() + 1, given.end() - 1, 0) > 0;
    if (count == stages && sum == model().layers && !hollow) return;
    refuse(
        Code::kConflict,
        join_parts("layers = ", layers_text(given),
                   hollow ? " leaves a stage between the first and the last without any"
                          : join_parts(" are ", sum, " layers on ", count, " stages, but ", title(),
                                       " has ", model().layers, " and pp x vpp is ", stages)),
        {{{"layout.layers"}, join_parts(counted(sum, "layer"), " on ", counted(count, "stage"))},
         {{"layout.pp"}, counted(stages, "stage")},
         model_side("layers", model().layers, "layers")},
        "leave layers out, and they are split evenly");
  }

  // Blocks of each stage that keep their input alone: some of those it has, for none and all have
  // names of their own.
  void recomputed_blocks() {
    const std::vector<int>& given = asked_.recompute.blocks;
    const std::int64_t stages = degrees().pp * asked_.chunks.value_or(1);
    if (given.empty() || stages > model().layers + 2) return;
    const std::vector<int> blocks =
        asked_.layers.empty() ? pipeline::default_layer_split(static_cast<int>(model().layers),
                                                              static_cast<int>(stages))
                              : asked_.layers;
    const bool is_all = given == blocks && asked_.recompute.drop.rest() == model::kKeepAll;
    if (given.size() == blocks.size() && !is_all &&
        std::ranges::equal(given, blocks, std::ranges::less_equal()) &&
        std::ranges::count(given, 0) < std::ssize(given))
      return;
    refuse(Code::kConflict,
           join_parts("recompute = full:", layers_text(given), " is not some of the blocks of ",
                      stages, " stages, ", layers_text(blocks)),
           {{{"layout.recompute"}, layers_text(given) + " recomputed"},
            {{"layout.layers", "layout.pp"}, join_parts(layers_text(blocks), " blocks")}},
           "count some of each stage's blocks; `full` is all of them, `none` none");
  }

  // Refuses when `degree` at layout.<axis> does not divide `size` at model.<key>.
  void divides(const char* axis, std::int64_t degree, const char* key, std::int64_t size,
               const char* what) {
    if (size < 1 || size % degree == 0) return;
    refuse(
        Code::kDoesNotDivide,
        join_parts(axis, " = ", degree, " does not divide the ", size, " ", what, " of ", title()),
        {{{join_parts("layout.", axis)}, join_parts("divided by ", degree)},
         model_side(key, size, what)},
        join_parts("the nearest ", axis,
                   " that does: ", to_text(mesh::nearest_divisors(size, degree))));
    add_nearest(join_parts("model.", key), nearest_multiples(size, degree));
  }

  void tensor() {
    const std::int64_t tp = degrees().tp;
    divides("tp", tp, "heads", model().heads, "heads");
    if (model().heads % tp == 0) key_value_heads(tp);
    if (model().moe.experts == 0 || model().moe.dense_layers > 0)
      divides("tp", tp, "ffn", model().ffn, "MLP columns");
    divides("tp", tp, "moe.shared_ffn", model().moe.shared_ffn, "shared-expert columns");
  }

  // A rank has several, or one that it shares with as many ranks as any other.
  void key_value_heads(std::int64_t tp) {
    const std::int64_t heads = model().heads, own = model().kv_heads;
    const auto cuts = [&](std::int64_t ranks) {
      return heads % ranks == 0 && (own % ranks == 0 || ranks % own == 0);
    };
    if (own < 1 || heads % own != 0 || cuts(tp)) return;
    std::int64_t below = tp, above = tp;
    while (!cuts(below)) --below;
    while (!cuts(above)) ++above;
    refuse(Code::kDoesNotDivide,
           join_parts("tp = ", tp, " neither divides the ", own, " key-value heads of ", title(),
                      " nor is a multiple of them"),
           {{{"layout.tp"}, join_parts("divided by ", tp)},
            model_side("kv_heads", own, "key-value heads")},
           join_parts("the nearest tp: ", below, " or ", above));
    add_nearest("model.kv_heads", nearest_multiples(own, tp));
  }

  void expert_sizes() {
    if (model().moe.experts == 0) return;
    divides("ep", degrees().ep, "moe.experts", model().moe.experts, "experts");
    divides("etp", degrees().etp, "moe.expert_ffn", model().moe.expert_ffn, "expert columns");
  }

  // Ulysses deals whole heads of queries to all ranks of a sequence (arXiv 2309.14509, section
  // 3.1); keys are copied where ranks outnumber their heads.
  void cp_method() {
    const mesh::Degrees& d = degrees();
    const Side way = {{"layout.cp_comm_type"},
                      join_parts("cp_comm_type is ", to_text(*asked_.context))};
    if (d.cp == 1 && *asked_.context != Layout().context)
      return refuse(Code::kConflict,
                    join_parts("cp_comm_type = ", to_text(*asked_.context),
                               " is how ranks of a sequence meet, but cp = 1 divides none"),
                    {way, {{"layout.cp"}, "cp is 1"}},
                    "the nearest: cp = 2, or leave cp_comm_type out");
    if (*asked_.context != model::CpMethod::kUlysses || asked_.model == nullptr) return;
    const std::int64_t heads = model().heads, keys = model().kv_heads;
    if (heads % d.tp != 0 || model::deals_heads(heads, keys, d.tp, d.cp)) return;
    const Side degree = {{"layout.cp"}, join_parts("cp is ", d.cp)};
    const std::int64_t own = heads / d.tp;  // of a tensor rank
    const auto nearest = [&](std::int64_t of) {
      return join_parts("the nearest cp that does: ", to_text(mesh::nearest_divisors(of, d.cp)),
                        "; or cp_comm_type = ring or gather");
    };
    if (own % d.cp != 0)
      return refuse(
          Code::kDoesNotDivide,
          join_parts("tp x cp = ", d.tp, " x ", d.cp, " = ", d.tp * d.cp, " does not divide the ",
                     heads, " heads of ", title(), ", which cp_comm_type = ulysses deals to ranks"),
          {degree, way, model_side("heads", heads, "heads")}, nearest(own));
    const std::int64_t own_keys = std::max<std::int64_t>(1, keys / d.tp);
    refuse(Code::kDoesNotDivide,
           join_parts("cp = ", d.cp, " neither divides the ", own_keys,
                      " key-value heads of a tensor rank of ", title(),
                      " nor is a multiple of them, as cp_comm_type = ulysses needs"),
           {degree, way, model_side("kv_heads", keys, "key-value heads")},
           nearest(std::gcd(own, own_keys)));
  }

  void sequence() {
    if (!asked_.seq || !asked_.sp) return;
    const std::int64_t seq = *asked_.seq;
    const mesh::Degrees& d = degrees();
    // Zigzag gives each context rank one early and one late piece, so cp cuts 2 cp pieces.
    const std::int64_t pieces = (d.cp > 1 ? 2 * d.cp : 1) * (*asked_.sp ? d.tp : 1);
    if (seq % pieces != 0) {
      const std::string context = d.cp > 1 ? join_parts("2 x cp = ", 2 * d.cp) : "";
      const std::string tensor = *asked_.sp && d.tp > 1 ? join_parts("tp = ", d.tp) : "";
      const char* times = context.empty() || tensor.empty() ? "" : " times ";
      refuse(Code::kDoesNotDivide,
             join_parts("seq = ", seq, " is not a multiple of ", context, times, tensor),
             {{{"batch.seq"}, join_parts(seq, " tokens")},
              {{d.cp > 1 ? "layout.cp" : "layout.tp"}, join_parts("cut into ", pieces, " pieces")}},
             join_parts("the nearest seq: ", nearest_multiples(seq, pieces),
                        tensor.empty() || seq % (pieces / d.tp) != 0 ? "" : ", or sp = false"));
      if (!tensor.empty()) add_nearest("layout.tp", seq, pieces / d.tp, d.tp);
      if (d.cp > 1) add_nearest("layout.cp", seq, pieces / d.cp, d.cp);
    }
    if (asked_.model != nullptr && seq > model().max_positions) positions(seq);
  }

  // Learned positions end; rotary ones go on, untrained.
  void positions(std::int64_t seq) {
    const std::int64_t limit = model().max_positions;
    const bool learned = model().family == model::Family::kGpt2;
    refuse(Code::kConflict,
           join_parts("seq = ", seq, " is longer than the ", limit, " positions of ", title()),
           {{{"batch.seq"}, join_parts(seq, " tokens")},
            model_side("max_positions", limit, "positions")},
           join_parts(learned ? "this family learns its positions: seq = "
                              : "the model was made for seq = ",
                      limit, " or less", learned ? ", or a model with more max_positions" : ""),
           !learned);
  }

  const Request& asked_;
  std::optional<std::int64_t> num_microbatches_;  // when the batch divides
  std::vector<Contradiction> found_;
};

}  // namespace

Request request_of(const model::ModelConfig& model, const Layout& layout, const Batch& batch) {
  return {.model = &model,
          .degrees = layout.degrees,
          .context = layout.context,
          .sp = layout.sp,
          .zero = layout.zero,
          .schedule = layout.schedule,
          .chunks = layout.chunks,
          .resident = layout.resident,
          .prefetch = layout.prefetch,
          .layers = layout.layers,
          .recompute = layout.recompute,
          .microbatches = layout.microbatches,
          .seq = batch.seq,
          .global_batch = batch.global_batch,
          .microbatch = batch.microbatch,
          .ramp = batch.ramp};
}

Result<std::int64_t> data_degree(const mesh::Degrees& d, const cluster::Cluster& cluster) {
  LS_TRY(mesh::Mesh::create({.tp = d.tp, .cp = d.cp, .pp = d.pp}));
  const std::int64_t product = d.tp * d.cp * d.pp, devices = cluster.count;
  if (devices % product == 0) return devices / product;
  std::string help;
  for (const auto& [name, degree] : {std::pair{"tp", d.tp}, {"cp", d.cp}, {"pp", d.pp}})
    if (const std::int64_t others = product / degree; degree > 1 && devices % others == 0)
      help += join_parts(help.empty() ? "" : "; ", "the nearest ", name, ": ",
                         to_text(mesh::nearest_divisors(devices / others, degree)));
  if (help.empty())
    help = join_parts("tp x cp x pp must divide ", devices, "; the nearest products that do: ",
                      to_text(mesh::nearest_divisors(devices, product)));
  return Error{Code::kDegreesDoNotMatchWorld,
               join_parts("tp x cp x pp = ", d.tp, " x ", d.cp, " x ", d.pp, " = ", product,
                          " does not divide the ", devices, " devices of ", cluster.name),
               std::move(help)};
}

std::vector<Contradiction> contradictions(const Request& request) { return Rules(request).take(); }

}  // namespace lockstep::spec
