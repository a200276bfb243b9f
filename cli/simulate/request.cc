#include "cli/simulate/request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cli/run_file.h"
#include "cli/text_file.h"
#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/config/suggest.h"
#include "lockstep/pipeline/csv.h"
#include "lockstep/spec/step.h"

namespace lockstep::cli {
namespace {

using Kind = ScheduleCandidate::Kind;

constexpr int kUsualCoords = 4;
constexpr int kUsualChunks = 2;  // of a schedule that takes any number of them

class SimulateReader {
 public:
  SimulateReader(const Args& args, config::Report& report) : args_(args), report_(report) {}

  std::optional<SimulateRequest> read() {
    if (args_.has("FILE")) read_file();
    read_candidates();
    if (!args_.has("FILE")) read_shape();
    check_orders();
    read_costs();
    read_step();
    read_group();
    read_memory();
    if (args_.has("calibration")) read_calibration();
    if (args_.has("against")) read_against();
    read_files();
    if (!report_.ok()) return std::nullopt;
    return std::move(request_);
  }

 private:
  void refuse(std::string message, std::string help, Code code = Code::kBadOptionValue) {
    report_.add(Error{code, std::move(message), std::move(help)});
  }

  // An option beside one that it contradicts or does not go with.
  void conflict(std::string message, std::string help) {
    refuse(std::move(message), std::move(help), Code::kConflict);
  }

  int number(const char* name, int otherwise) const {
    return args_.has(name) ? static_cast<int>(args_.integer(name)) : otherwise;
  }

  void read_file() {
    for (const auto& [option, key] : {std::pair{"pp", "layout.pp"},
                                      {"microbatches", "batch.global_batch"},
                                      {"zero", "layout.zero"},
                                      {"layers", "model.layers"}})
      if (args_.has(option))
        conflict(join_parts("--", option, " ", args_.text(option), " is said by ",
                            args_.text("FILE"), " already"),
                 join_parts("change the run with --set ", key, "=VALUE"));
    if (args_.flag("recompute"))
      conflict(join_parts("--recompute is said by ", args_.text("FILE"), " already"),
               "change the run with --set 'layout.recompute=\"full\"'");
    const std::string name = args_.text("FILE");
    if (pipeline::find(name).ok() || name == "auto" || name.ends_with(".csv"))
      return refuse(join_parts("`", name, "` is a schedule, where a run file is expected"),
                    join_parts("write --schedule ", name));
    const auto document = load_run(args_, report_);
    if (!document) return;
    request_.spec = spec::read_spec(*document, report_);
    if (!request_.spec) return;
    request_.coords = static_cast<int>(request_.spec->layout.degrees.pp);
    request_.microbatches = static_cast<int>(request_.spec->num_microbatches());
  }

  // What is not given follows from a file with a schedule.
  void read_shape() {
    const auto file = std::ranges::find_if(
        request_.candidates,
        [](const ScheduleCandidate& candidate) { return candidate.order.has_value(); });
    const bool has_file = file != request_.candidates.end();
    request_.coords = number("pp", has_file ? file->order->shape().coords : kUsualCoords);
    request_.microbatches =
        number("microbatches", has_file ? file->order->shape().microbatches : 2 * request_.coords);
    if (!args_.texts("set").empty())
      conflict("--set changes keys of a run file, but none is given",
               "name a run file, or use --pp, --microbatches, --zero and --recompute");
  }

  void check_orders() {
    if (args_.has("FILE") && !request_.spec) return;
    for (const ScheduleCandidate& candidate : request_.candidates) {
      if (!candidate.order) continue;
      const pipeline::Shape& shape = candidate.order->shape();
      if (shape.coords == request_.coords && shape.microbatches == request_.microbatches) continue;
      conflict(join_parts(candidate.name, " is for ", counted(shape.coords, "pipeline rank"),
                          " and ", counted(shape.microbatches, "microbatch"), ", asked for are ",
                          request_.coords, " and ", request_.microbatches),
               args_.has("FILE")
                   ? join_parts("choose a run of that shape, with --set layout.pp=", shape.coords)
                   : "leave --pp and --microbatches out, or compare files of one shape");
    }
  }

  void read_costs() {
    StepCosts& costs = request_.costs;
    if (args_.has("costs")) read_compute();
    for (const auto& [option, target] :
         {std::pair{"p2p", &costs.hop}, {"gather", &costs.gather}, {"reduce", &costs.reduce}})
      if (args_.has(option)) *target = args_.real(option);
  }

  void read_compute() {
    StepCosts& costs = request_.costs;
    request_.has_costs = true;
    const std::string text = args_.text("costs");
    const std::vector<std::string_view> items = split(text, ',');
    const char* help = "write the times of F, I and W, for example --costs 1,1,1";
    if (items.size() != 3)
      return refuse(join_parts("--costs takes three numbers, F,I,W, not `", text, "`"), help);
    const std::array<double*, 3> targets = {&costs.forward, &costs.input_grad, &costs.weight_grad};
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto value = number_in<double>(items[i]);
      if (!value) return refuse(join_parts("--costs: `", items[i], "` is no number"), help);
      if (!(*value >= 0 && *value <= kMostTime))
        return refuse(join_parts("--costs: ", "FIW"[i], " must be at least 0 and at most 1e9, not ",
                                 items[i]),
                      help);
      *targets[i] = *value;
    }
    if (costs.forward + costs.input_grad + costs.weight_grad == 0)
      refuse("--costs: F, I and W cannot all be 0", help);
  }

  void read_step() {
    if (!args_.has("FILE") && !args_.has("zero") && !args_.flag("recompute")) {
      for (const char* option : {"gather", "reduce", "layers"})
        if (args_.has(option))
          conflict(join_parts("--", option, " ", args_.text(option),
                              " is about the whole step, but without --zero, --recompute and FILE "
                              "only stages are timed"),
                   option == std::string("layers") ? "add --zero or --recompute"
                                                   : "add --zero, or a run file");
      return;
    }
    if (!args_.has("FILE"))
      request_.step = {number("layers", 1), number("zero", 0), args_.flag("recompute")};
    if (request_.is_lowered() && args_.has("gather") && request_.zero() == 0)
      conflict(join_parts("--gather ", args_.text("gather"),
                          " is the time to gather parameters, but zero = 0 shards none"),
               "--zero 3 gathers while it computes, 1 and 2 once per step; or leave --gather out");
  }

  void read_candidates() {
    if (args_.has("schedule") && args_.has("compare"))
      conflict(join_parts("--schedule ", args_.text("schedule"), " and --compare ",
                          args_.text("compare"), " are both given"),
               join_parts("write --compare ", args_.text("schedule"), ",",
                          args_.text("compare") == "all" ? "1f1b" : args_.text("compare")));
    request_.compares = args_.has("compare");
    if (!request_.compares) {
      const std::string usual = request_.spec ? request_.spec->layout.schedule : "1f1b";
      add_candidate("schedule", args_.has("schedule") ? args_.text("schedule") : usual);
    } else if (args_.text("compare") == "all") {
      request_.is_all = true;
      for (const pipeline::CatalogRow& row : pipeline::catalog())
        request_.candidates.push_back(
            {.name = std::string(row.name), .row = row, .chunks = chunks_of(row)});
    } else {
      const std::string names = args_.text("compare");
      for (const std::string_view name : split(names, ','))
        add_candidate("compare", std::string(name));
    }
  }

  void add_candidate(const char* option, const std::string& text) {
    if (text.empty())
      return refuse(join_parts("--", option, " `", args_.text(option), "` lacks a schedule"),
                    request_.compares ? "write names separated by commas, such as 1f1b,zbv"
                                      : "write a name, such as 1f1b");
    for (const ScheduleCandidate& other : request_.candidates)
      if (other.name == text)
        return refuse(join_parts("--", option, " names `", text, "` twice"), "name each once");
    ScheduleCandidate candidate{.name = text};
    if (text.ends_with(".csv")) {
      candidate.kind = Kind::kFile;
      if (!read_order(text, candidate)) return;
    } else if (text == "auto") {
      candidate.kind = Kind::kAuto;
      if (args_.has("vpp")) candidate.chunks = number("vpp", 1);
    } else if (!find_row(text, candidate)) {
      return;
    }
    request_.candidates.push_back(std::move(candidate));
  }

  bool read_order(const std::string& name, ScheduleCandidate& candidate) {
    if (args_.has("vpp") && !request_.compares)
      conflict(join_parts("--vpp ", args_.text("vpp"), " is said by ", name, " already"),
               "leave --vpp out");
    const Result<std::string> text = read_text(name);
    if (!text.ok()) return report_.add(text.error()), false;
    Result<pipeline::Schedule> order = pipeline::from_csv(*text);
    if (!order.ok()) {
      Error error = order.error();
      error.message = name + ": " + error.message;
      return report_.add(error), false;
    }
    candidate.order = *std::move(order);
    return true;
  }

  bool find_row(const std::string& text, ScheduleCandidate& candidate) {
    const std::size_t colon = text.find(':');
    const std::string name = text.substr(0, colon);
    const auto row = pipeline::find(name);
    if (!row.ok()) {
      std::vector<std::string> names = {"auto"};
      for (const pipeline::CatalogRow& known : pipeline::catalog()) names.emplace_back(known.name);
      refuse(row.error().message,
             config::did_you_mean(name, names,
                                  row.error().help + ", `auto`, or a file ending in .csv"),
             row.error().code);
      return false;
    }
    candidate.row = *row;
    candidate.chunks = chunks_of(*row);
    if (colon == std::string::npos) return true;
    const auto chunks = number_in<int>(text.substr(colon + 1));
    if (!chunks || *chunks < 1 || *chunks > kMostCount) {
      refuse(join_parts("`", text, "` has no number of virtual stages behind the colon"),
             join_parts("write ", name, ":", kUsualChunks));
      return false;
    }
    candidate.chunks = chunks;
    return true;
  }

  // What was asked for, else what the run or the schedule itself says.
  int chunks_of(const pipeline::CatalogRow& row) const {
    if (args_.has("vpp")) return number("vpp", 1);
    if (request_.spec && request_.spec->layout.schedule == row.name)
      return request_.spec->layout.chunks;
    return row.chunks > 0 ? row.chunks : kUsualChunks;
  }

  void read_group() {
    if (!args_.has("group")) return;
    request_.group = number("group", 1);
    const auto takes_groups = [](const ScheduleCandidate& candidate) {
      return candidate.kind == Kind::kNamed && candidate.row.build_grouped != nullptr;
    };
    if (request_.candidates.empty() || std::ranges::any_of(request_.candidates, takes_groups))
      return;
    std::vector<std::string> names;
    for (const pipeline::CatalogRow& row : pipeline::catalog())
      if (row.build_grouped != nullptr) names.emplace_back(row.name);
    conflict(
        join_parts("--group ", *request_.group,
                   " is the number of microbatches that go through a virtual stage together, but `",
                   request_.candidates.front().name, "` has no groups"),
        "schedules with groups are " + config::listed(names));
  }

  void read_memory() {
    request_.refill = args_.flag("refill");
    if (request_.refill && !request_.compares && !request_.candidates.empty() &&
        request_.candidates.front().kind == Kind::kAuto)
      conflict("--refill moves weight gradients of a given schedule, but `auto` does so by itself",
               "leave --refill out");
    if (args_.has("memory-cap")) request_.memory_cap = args_.real("memory-cap");
    if (request_.memory_cap && request_.recomputes())
      conflict(join_parts("--memory-cap ", args_.text("memory-cap"),
                          " counts activations that are kept, but recompute keeps only the inputs "
                          "of blocks"),
               request_.spec ? "add --set 'layout.recompute=\"none\"', or leave --memory-cap out"
                             : "leave one of --memory-cap and --recompute out");
  }

  void read_calibration() {
    const std::string name = args_.text("calibration");
    if (!args_.has("FILE"))
      return conflict(join_parts("--calibration ", name,
                                 " prices the ops of a run, but no run file ", "is given"),
                      "name the run file that it was made for");
    for (const char* option : {"costs", "p2p", "gather", "reduce"})
      if (args_.has(option))
        conflict(join_parts("--", option, " ", args_.text(option), " and --calibration ", name,
                            " both say how long it takes"),
                 "leave one of them out");
    if (!request_.spec) return;
    Result<cost::CalibrationFile> read = read_calibration_for(name, *request_.spec);
    if (!read.ok()) return report_.add(read.error());
    request_.calibration = *std::move(read);
    request_.calibrate = join_parts("lockstep calibrate ", args_.text("FILE"));
    for (const std::string& set : args_.texts("set"))
      request_.calibrate += join_parts(" --set '", set, "'");
    const bool processes = request_.calibration->calibration.ranks_are == "processes";
    request_.calibrate += join_parts(processes ? " --processes" : "", " --out ", name);
  }

  void read_against() {
    const std::string name = args_.text("against");
    if (!args_.has("calibration"))
      return conflict(
          join_parts("--against ", name, " compares seconds, but without --calibration ",
                     "times have no unit"),
          "make one with lockstep calibrate, and add --calibration FILE");
    if (request_.compares)
      return conflict(
          join_parts("--against ", name, " is of one schedule, but --compare times several"),
          "leave --compare out");
    const Result<std::string> text = read_text(name);
    if (!text.ok()) return report_.add(text.error());
    Result<cost::RunTimeline> read = cost::read_timeline(*text, name);
    if (!read.ok()) return report_.add(read.error());
    request_.against = TimelineFile{name, *std::move(read)};
  }

  void read_files() {
    std::vector<std::pair<std::string, const char*>> seen;
    for (const auto& [option, target] :
         {std::pair{"svg", &request_.svg}, {"trace", &request_.trace}, {"csv", &request_.csv}}) {
      if (!args_.has(option)) continue;
      *target = args_.text(option);
      if (target->empty())
        refuse(join_parts("--", option, " needs the name of a file"),
               join_parts("write --", option, " OUT"));
      else if (request_.compares)
        conflict(join_parts("--", option, " ", *target, " writes one schedule, but --compare ",
                            "times several"),
                 join_parts("name the one to write with --schedule"));
      for (const auto& [name, other] : seen)
        if (name == *target)
          conflict(join_parts("--", other, " and --", option, " both write ", name),
                   "give them different names");
      seen.emplace_back(*target, option);
    }
  }

  const Args& args_;
  config::Report& report_;
  SimulateRequest request_;
};

}  // namespace

Result<cost::CalibrationFile> read_calibration_for(const std::string& name,
                                                   const spec::Spec& spec) {
  const std::string text = LS_TRY(read_text(name));
  cost::Calibration read = LS_TRY(cost::read_calibration(text, name));
  LS_TRY(check_same(read.print, cost::fingerprint(spec.model, spec::step_sizes(spec).unit), name,
                    "make one for this run with lockstep calibrate"));
  return cost::CalibrationFile{name, std::move(read)};
}

SimulateRequest request_of(const spec::Spec& spec) {
  SimulateRequest request;
  request.spec = spec;
  request.coords = static_cast<int>(spec.layout.degrees.pp);
  request.microbatches = static_cast<int>(spec.num_microbatches());
  request.candidates = {{.name = spec.layout.schedule,
                         .row = pipeline::find(spec.layout.schedule).value(),
                         .chunks = spec.layout.chunks}};
  return request;
}

std::optional<SimulateRequest> read_simulate_request(const Args& args, config::Report& report) {
  return SimulateReader(args, report).read();
}

}  // namespace lockstep::cli
