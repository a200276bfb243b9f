#include "cli/plan/request.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "cli/plan/framework.h"
#include "cli/run_file.h"
#include "cli/table.h"
#include "cli/text_file.h"
#include "lockstep/base/check.h"
#include "lockstep/base/enum_names.h"
#include "lockstep/base/text.h"
#include "lockstep/cluster/catalog.h"
#include "lockstep/cluster/cluster_file.h"
#include "lockstep/cluster/rates.h"
#include "lockstep/config/suggest.h"
#include "lockstep/hf/config_json.h"
#include "lockstep/observe/memory_risk.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/planner/layout_of.h"
#include "lockstep/planner/seek.h"
#include "lockstep/spec/contradictions.h"
#include "lockstep/spec/spec.h"

namespace lockstep::cli {
namespace {

constexpr EnumNames<planner::Resource, 5> kResources = {
    {"memory", "network", "scale-up", "flops", "batch"}};

class PlanReader {
 public:
  PlanReader(const Args& args, PlanRequest& request, config::Report& report)
      : args_(args), request_(request), report_(report) {}

  bool read() {
    if (args_.has("FILE")) {
      if (args_.has("model"))
        refuse(Code::kBadOptionValue, "--model and a run file both name a model",
               "leave one out, or set it over the file: --set model.name=NAME");
      if (!read_file()) return false;
    } else {
      read_model_option();
      batch_ = {.seq = 0, .global_batch = 0};
    }
    read_calibrations();
    if (args_.has("cluster")) read_cluster_named(args_.text("cluster"));
    if (!names_cluster_ && !known_.empty())
      read_cluster_named(join_parts("cpu-gloo:", known_.front().calibration.ranks));
    if (!names_cluster_ && !args_.has("calibration")) missing("--cluster", "h100:64");
    if (args_.has("devices") && names_cluster_ && report_.ok()) take_devices();
    if (args_.has("seq")) batch_.seq = args_.integer("seq");
    if (args_.has("global-batch")) batch_.global_batch = args_.integer("global-batch");
    if (batch_.seq == 0) missing("--seq", "8192");
    if (batch_.global_batch == 0) missing("--global-batch", "512");
    check_company();
    if (!report_.ok()) return false;
    check_positions();
    check_dtype();
    check_cluster_written();
    ask();
    read_schedules();
    check_framework(args_, request_.question, report_);
    if (!known_.empty() && report_.ok()) calibrate();
    read_layout();
    read_changes();
    read_observed();
    return report_.ok();
  }

 private:
  void refuse(Code code, std::string message, std::string help) {
    report_.add(Error{code, std::move(message), std::move(help)});
  }

  void missing(const char* option, const char* example) {
    refuse(Code::kBadOptionValue,
           join_parts(option, " is missing, and ",
                      args_.has("FILE") ? args_.text("FILE") + " does not say it"
                                        : "there is no run file that says it"),
           join_parts("for example `", option, " ", example, "`",
                      args_.has("FILE") ? "" : ", or name a run file: `lockstep plan run.toml`"));
  }

  // Options that would do nothing beside others, or without them.
  void check_company() {
    const auto idle = [&](const char* option, bool is_idle, const std::string& why) {
      if (args_.has(option) && is_idle)
        refuse(Code::kConflict, join_parts("--", option, " would do nothing: ", why),
               "add what is missing, or leave one of them out");
    };
    idle("svg", !args_.flag("memory"), "it draws what devices hold, but there is no --memory");
    idle("price", !args_.has("tokens"), "it is of device-hours, but there is no --tokens");
    for (const char* option : {"target-days", "max-cost"}) {
      idle(option, !args_.has("tokens"), "it is of a whole run, but there is no --tokens");
      idle(option, args_.has("layout"), "--layout says how many devices there are");
      idle(option, args_.text("objective") != "time", "--objective chooses devices, too");
      idle(option, args_.has("calibration"), "--calibration knows one number of devices");
    }
    idle("max-cost", !args_.has("price"), "it is of money, but there is no --price");
    idle("runnable", args_.has("layout"), "--layout says what is priced");
    idle("top", args_.has("layout") && args_.text("top") != "8", "--layout says what is priced");
    for (const char* option : {"memory", "explain", "what-if", "tokens", "critical-batch", "emit",
                               "out", "csv", "report"})
      idle(option, args_.flag("fits"), "--fits says yes or no alone");
    for (const char* option : {"memory", "explain", "what-if", "emit"})
      idle(option, args_.flag("csv"), "--csv prints rows alone");
    for (const char* option :
         {"memory", "explain", "what-if", "svg", "emit", "out", "fits", "report"})
      idle(option, args_.has("compare"), "--compare prints one table");
    idle("top", args_.has("compare") && args_.text("top") != "8", "--compare shows the best alone");
    idle("learned", !args_.has("observed"), "it is of --observed, which is not given");
    idle("set", !args_.has("FILE"), "it sets a key of a run file, but none is given");
    for (const char* option : {"memory", "explain", "what-if", "tokens", "critical-batch"})
      idle(option, args_.has("emit"), "--emit prints a script alone");
    for (const char* option : {"out", "svg"})
      if (args_.has("report") && args_.has(option) && args_.text("report") == args_.text(option))
        refuse(Code::kConflict,
               join_parts("--report and --", option, " both write `", args_.text(option), "`"),
               "name two files");
    idle("objective", args_.has("layout") && args_.text("objective") != "time",
         "--layout says what is priced");
    if (is_fp8()) idle("dtype", args_.has("calibration"), "--calibration has measured times");
  }

  bool is_fp8() const { return args_.text("dtype") == "fp8"; }

  void check_positions() {
    const spec::Request asked = {
        .model = &request_.model, .degrees = mesh::Degrees{}, .sp = true, .seq = batch_.seq};
    for (const spec::Contradiction& found : spec::contradictions(asked))
      if (found.is_warning)
        request_.notes.push_back(join_parts(found.error.message, ": ", found.error.help));
      else
        report_.add(found.error);
  }

  void check_dtype() {
    if (args_.has("FILE") && request_.dtype != DType::kBF16 && known_.empty())
      request_.notes.push_back(join_parts(args_.text("FILE"), " trains in ",
                                          to_text(request_.dtype), ", but ", args_.text("dtype"),
                                          " is priced"));
    if (!is_fp8()) return;
    std::vector<std::string> able;
    for (const cluster::CatalogRow& row : cluster::catalog())
      if (row.device.peak_fp8.known()) able.push_back(row.device.name);
    const std::string& device = request_.cluster.device.name;
    if (!request_.cluster.device.peak_fp8.known())
      refuse(Code::kConflict, join_parts("--dtype fp8, but ", device, " has no fp8 products"),
             join_parts("devices that have are ", config::listed(able)));
  }

  void read_model_option() {
    if (!args_.has("model")) return missing("--model", "llama3-8b");
    auto found = hf::find_model(args_.text("model"), report_);
    if (!found) return;
    request_.model = std::move(found->model);
    request_.model_text = args_.text("model");
    for (std::string& note : found->notes) request_.notes.push_back(std::move(note));
  }

  bool read_file() {
    auto document = load_run(args_, report_);
    if (!document) return false;
    request_.run = *document;
    const config::Entry* layout = document->find("layout");
    const bool has_own = layout != nullptr && !layout->value.entries.empty();
    // A layout is sought, and a cluster would count ranks.
    const auto spec =
        spec::read_spec(has_own ? *document : without(*document, {"layout", "cluster"}), report_);
    if (!spec) return false;
    request_.model = spec->model;
    batch_ = spec->batch;
    request_.dtype = spec->train.dtype;
    if (has_own) request_.own = {spec->layout, spec->batch.microbatch};
    if (const config::Entry* name = document->find("cluster.name");
        name != nullptr && name->value.kind == config::ValueKind::kString)
      read_cluster_named(beside_file(name->value.text));
    return report_.ok();
  }

  // A cluster file that a run file names lies beside it.
  std::string beside_file(const std::string& name) const {
    if (!name.ends_with(".toml") && !name.ends_with(".json")) return name;
    return (std::filesystem::path(args_.text("FILE")).parent_path() / name).string();
  }

  void read_cluster_named(const std::string& name) {
    names_cluster_ = true;
    auto found = cluster::find_cluster(name, report_);
    if (!found) return;
    request_.cluster = *std::move(found);
    request_.cluster_text = name;
  }

  // A run file can name a cluster file, but not some of its devices.
  void check_cluster_written() {
    const bool is_named = cluster::cluster_from_name(request_.cluster.name).ok();
    for (const char* option : {"devices", "target-days", "max-cost"})
      if (args_.has(option) && args_.has("out") && !is_named)
        refuse(Code::kConflict,
               join_parts("--out names a cluster, but --", option, " takes a part of one file's"),
               "write a cluster file of that many devices");
  }

  void take_devices() {
    auto sized = cluster::resized(request_.cluster, args_.integer("devices"));
    if (!sized.ok()) return report_.add(sized.error());
    request_.cluster = *std::move(sized);
    request_.cluster_text = request_.cluster.name;
  }

  void ask() {
    planner::Question& q = request_.question;
    request_.shape = cost::shape_of(request_.model);
    q.shape = &request_.shape;
    q.cluster = &request_.cluster;
    q.rates = &cluster::rates_of(request_.cluster.device);
    q.devices = request_.cluster.count;
    q.seq = batch_.seq;
    q.global_batch = batch_.global_batch;
    if (is_fp8()) q.precision = cost::Precision::kFp8;
    q.runnable = args_.flag("runnable");
    if (args_.has("headroom")) q.headroom = args_.real("headroom");
    if (args_.has("risk"))
      q.headroom = observe::headroom_at(observe::published_need(), args_.real("risk"));
    if (args_.has("risk") && args_.has("headroom"))
      refuse(Code::kConflict, "--risk and --headroom both say what a layout has to leave free",
             strf("leave one of them out; --risk %g is --headroom %.3g", args_.real("risk"),
                  q.headroom));
    if (args_.has("risk") && args_.has("calibration"))
      refuse(Code::kConflict, "--risk is of predictions, but --calibration walks every byte",
             "leave one of them out, or say --headroom");
    q.framework = framework_of(args_);
  }

  void read_calibrations() {
    const std::vector<std::string> names = args_.texts("calibration");
    if (names.empty()) return;
    if (!args_.has("FILE"))
      return refuse(Code::kConflict,
                    join_parts("--calibration ", names.front(),
                               " prices the ops of a run, but no run file is given"),
                    "name the run file that it was made for");
    for (const char* option : {"explain", "what-if", "report"})
      if (args_.has(option))
        refuse(Code::kConflict,
               join_parts("--", option, " prices other machines and layouts in closed form, but ",
                          "--calibration times those of one machine"),
               join_parts("leave one of them out; --top 64 shows more of what was timed"));
    if (args_.text("objective") != "time")
      refuse(Code::kConflict,
             join_parts("--objective ", args_.text("objective"),
                        " tries fewer devices, but --calibration knows one number of them"),
             "leave one of them out");
    for (const std::string& name : names) {
      const auto files = files_at(name, ".json");
      if (!files.ok())
        return refuse(files.error().code, files.error().message,
                      join_parts("`lockstep calibrate ", args_.text("FILE"), " --all --out ", name,
                                 "` fills it"));
      for (const std::string& file : *files)
        if (!read_calibration(file)) return;
    }
  }

  bool read_calibration(const std::string& file) {
    const Result<std::string> text = read_text(file);
    if (!text.ok()) return report_.add(text.error()), false;
    Result<cost::Calibration> read = cost::read_calibration(*text, file);
    if (!read.ok()) return report_.add(read.error()), false;
    known_.push_back({file, *std::move(read)});
    return true;
  }

  void calibrate() {
    const cost::Calibration& first = known_.front().calibration;
    request_.calibrated_on = join_parts(first.ranks, " ", first.ranks_are, ", ", first.date, ": ",
                                        listed(args_.texts("calibration")));
    request_.question = planner::calibrated_question(std::move(request_.question), request_.dtype);
    auto made = planner::CalibratedSearch::create(request_.question, request_.model, request_.dtype,
                                                  std::move(known_));
    if (!made.ok()) return report_.add(made.error());
    request_.calibrated.emplace(*std::move(made));
  }

  void read_schedules() {
    if (!args_.has("schedules")) return;
    const std::string names = args_.text("schedules");
    for (const std::string_view name : split(names, ',')) {
      if (name.empty()) continue;
      const auto row = planner::find_planned(name);
      if (row.ok())
        request_.question.schedules.push_back(*row);
      else
        report_.add(row.error());
    }
  }

  void read_layout() {
    if (!args_.has("layout")) {
      if (!args_.flag("fits") || !request_.own) return;
      request_.only_own = true;  // a gate is asked about the run that follows it
      return check_own(*request_.own, request_.model, request_.question, report_);
    }
    auto read = parse_own(args_.text("layout"), "--layout");
    if (!read.ok()) return report_.add(read.error());
    OwnLayout& own = read->own;
    const bool has_dp = read->has_dp;
    const planner::Framework* framework = request_.question.framework;
    if (framework != nullptr && own.layout.degrees.tp > 1) own.layout.sp = framework->sp;
    if (!has_dp && !fill_data(own.layout.degrees)) return;
    // A whole name, as `plan` prints it, leaves nothing open.
    const bool is_whole = has_dp && read->says("zero") && own.layout.microbatches &&
                          (own.layout.degrees.pp == 1 || read->says(own.layout.schedule + " "));
    const bool is_open = !request_.calibrated && !is_whole;
    if (args_.has("schedules") && (is_whole || read->says(own.layout.schedule + " ")))
      return refuse(Code::kConflict,
                    join_parts("--schedules would do nothing: --layout says ", own.layout.schedule),
                    "leave one of them out");
    const bool has_stages = own.layout.degrees.pp == 1 || !own.layout.layers.empty() ||
                            !own.layout.recompute.blocks.empty();
    const int needed = pipeline::find(own.layout.schedule)->chunks;
    if (is_open && !has_stages && !read->says("vpp")) own.layout.chunks = needed > 0 ? needed : 2;
    request_.own = own;
    request_.only_own = true;
    check_own(*request_.own, request_.model, request_.question, report_);
    if (report_.ok() && is_open) fill(*read, has_stages);
    if (!report_.ok()) return;
    const auto& [made, microbatch] = *request_.own;
    if (const auto runs = check_layout(request_.question, made, microbatch); !runs.ok())
      report_.add(runs.error());
  }

  // Seeks what the words leave open.
  void fill(const LayoutWords& read, bool has_stages) {
    auto& [layout, microbatch] = *request_.own;
    const auto has = [&](const std::string& begin) { return read.says(begin); };
    const cost::PriceRequest r = *planner::request_of(request_.question, layout, microbatch);
    planner::Question asked = request_.question;
    planner::Given& given = asked.given;
    asked.pp = r.pp, given.core = {r.tp, r.cp, r.ep, r.etp}, given.sp = r.sp;
    given.layers = layout.layers, given.blocks = layout.recompute.blocks;
    if (layout.layers.empty() && !given.blocks.empty())
      given.layers = planner::default_layer_split(r);
    std::vector<std::string> open;
    const auto take = [&](const char* setting, bool is_said, auto& into, auto value) {
      if (is_said)
        into = value;
      else
        open.emplace_back(setting);
    };
    take("vpp", has_stages || has("vpp"), given.chunks, r.chunks);
    take("cp_comm_type", r.cp == 1 || has("cp_comm_type"), given.context, r.context);
    take("microbatch", layout.microbatches || read.names_microbatch, given.microbatch,
         r.microbatch);
    take("order", r.pp == 1 || has("order"), given.placement, r.placement);
    given.recomputed = r.recomputed;
    take("recompute", has("recompute"), given.drop, r.drop);
    take("schedule", r.pp == 1 || has(layout.schedule + " "), asked.schedules,
         std::vector{r.schedule});
    take("zero", has("zero") || layout.degrees.dp_shard, given.sharding,
         planner::Sharding{r.zero, r.shard_group()});
    if (open.empty()) return;
    const auto found = planner::seek_one(asked);
    const auto runs = check_layout(request_.question, layout, microbatch);
    if (!found && !runs.ok()) return report_.add(runs.error());
    if (!found)
      return refuse(Code::kNothingDivides,
                    join_parts("no number of virtual stages or microbatches suits ",
                               layout.schedule, " with pp = ", layout.degrees.pp),
                    "say another schedule, or leave it out");
    layout = planner::layout_of(*found);
    microbatch = found->priced.request.microbatch;
    request_.filled = listed(open);
  }

  // dp is what the other degrees leave.
  bool fill_data(mesh::Degrees& degrees) {
    const auto left = spec::data_degree(degrees, request_.cluster);
    if (!left.ok()) return report_.add(left.error()), false;
    degrees.dp = *left;
    return true;
  }

  void read_observed() {
    if (!args_.has("observed") || !report_.ok()) return;
    for (const char* option : {"explain", "what-if", "calibration", "report", "compare",
                               "target-days", "max-cost", "for", "emit"})
      if (args_.has(option))
        refuse(Code::kConflict,
               join_parts("--", option, " has times of its own, which --observed does not correct"),
               "leave one of them out");
    request_.keeps_learned = args_.has("learned");
    if (request_.keeps_learned && args_.text("learned") == args_.text("observed"))
      refuse(Code::kConflict, "--learned would replace the runs of --observed",
             "name another file");
    if (report_.ok()) request_.observed = Observed::read(args_.text("observed"), request_, report_);
  }

  // "network=2x", "memory=0.5x".
  void read_changes() {
    for (const std::string& text : args_.texts("what-if")) {
      const std::size_t is = std::min(text.find('='), text.size());
      const std::string key = text.substr(0, is);
      const std::optional<planner::Resource> resource = kResources.find(key);
      if (!resource) {
        const std::vector<std::string> names = kResources.names();
        refuse(Code::kBadOptionValue, join_parts("--what-if knows no `", key, "`"),
               config::did_you_mean(key, names, config::there_are(names)));
        continue;
      }
      std::string value = is < text.size() ? text.substr(is + 1) : "";
      if (value.ends_with('x')) value.pop_back();
      const double factor = number_in<double>(value).value_or(0);
      if (!(factor > 0) || factor > 1e6)
        refuse(Code::kBadOptionValue, join_parts("--what-if ", text, " says no factor"),
               join_parts("for example `--what-if ", key, "=2x`"));
      else
        request_.changes.push_back({*resource, factor});
    }
  }

  const Args& args_;
  PlanRequest& request_;
  config::Report& report_;
  spec::Batch batch_;
  bool names_cluster_ = false;
  std::vector<cost::CalibrationFile> known_;
};

}  // namespace

void check_own(OwnLayout& own, const model::ModelConfig& model, const planner::Question& question,
               config::Report& report) {
  const std::int64_t global = question.global_batch, dp = own.layout.degrees.dp;
  if (own.layout.microbatches && global % (dp * *own.layout.microbatches) == 0)
    own.microbatch = global / (dp * *own.layout.microbatches);
  spec::Request asked = spec::request_of(model, own.layout, {question.seq, global, own.microbatch});
  asked.cluster = question.cluster;
  bool contradicts = false;
  for (const spec::Contradiction& found : spec::contradictions(asked))
    if (!found.is_warning) report.add(found.error), contradicts = true;
  if (contradicts) return;
  const auto priced = planner::request_of(question, own.layout, own.microbatch);
  if (!priced.ok()) report.add(priced.error());
}

bool read_plan_request(const Args& args, PlanRequest& request, config::Report& report) {
  return PlanReader(args, request, report).read();
}

}  // namespace lockstep::cli
