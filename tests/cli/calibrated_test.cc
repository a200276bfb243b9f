// What `simulate` and `plan` make of measured times, without measuring any.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cli/simulate/timing.h"
#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "lockstep/cost/measured/calibrated_prices.h"
#include "lockstep/program/text.h"
#include "lockstep/spec/step.h"
#include "tests/cli/answer.h"
#include "tests/cost/measured/calibrations.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

constexpr const char* kLayouts[] = {
    "dp2 zero0", "dp2 zero1",     "dp2 zero2",        "dp2 zero3",
    "pp2 dp1",   "pp2 dp1 zb-h1", "pp2 dp1 zbv vpp2", "dp2 zero3 recompute=full"};

class Calibrated : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(testing::TempDir()) /
           testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(dir_);
    spec_.model.name = "tiny";
    spec_.model.layers = 4;
    spec_.model.hidden = 64;
    spec_.model.heads = 4;
    spec_.model.kv_heads = 2;
    spec_.model.head_dim = 16;
    spec_.model.ffn = 192;
    spec_.model.vocab = 256;
    spec_.model.max_positions = 128;
    spec_.batch = {64, 32, 4};
    spec_.train.dtype = DType::kF32;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string file(const std::string& name) const { return (dir_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
    return file(name);
  }

  // Of the example, which spec_ is.
  std::string calibration_file(const std::string& name = "cal.json") const {
    cost::Calibration made = cost::some_calibration(2);
    made.print = cost::fingerprint(spec_.model, spec::step_sizes(spec_).unit);
    return write(name, write_calibration(made));
  }

  static std::vector<std::string> words(const spec::Layout& layout) {
    std::vector<std::string> all = {"simulate", support::source_dir() + "/examples/tiny.toml"};
    const auto set = [&](const std::string& key, const std::string& value) {
      all.insert(all.end(), {"--set", "layout." + key + "=" + value});
    };
    set("pp", std::to_string(layout.degrees.pp));
    set("dp", std::to_string(layout.degrees.dp));
    set("zero", std::to_string(layout.zero));
    set("vpp", std::to_string(layout.chunks));
    set("schedule", "\"" + layout.schedule + "\"");
    set("recompute", "\"" + to_text(layout.recompute) + "\"");
    return all;
  }

  static Answer run(std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return answer(simulate_verb(), words);
  }

  std::filesystem::path dir_;
  spec::Spec spec_;
};

// The timeline that the simulator itself would have measured, on every rank of a coordinate.
cost::RunTimeline simulated_run(const spec::Spec& spec, const cost::Calibration& known,
                                Seconds extra) {
  const model::Model model = model::describe(spec.model).value();
  const program::Program program = spec::program_for(model, spec.layout, spec.batch).value();
  const mesh::Mesh mesh = mesh::Mesh::create(spec.layout.degrees).value();
  const cost::StepSizes sizes = spec::step_sizes(spec);
  const auto prices =
      cost::CalibratedPrices::create(known, program, model, sizes, mesh, "").value();
  sim::Conditions conditions;
  conditions.host = [&](Coord c, const program::Op& op) { return prices.host(c, op); };
  const auto time = [&](Coord c, const program::Op& op) {
    const bool is_slow = op.kind == program::OpKind::kForward && op.unit == 1;
    return prices.time(c, op) + (is_slow ? extra : Seconds{});
  };
  const sim::Simulation simulation = sim::simulate(program, time, conditions).value();
  cost::RunTimeline run;
  run.print = cost::fingerprint(spec.model, sizes.unit);
  run.layout = to_text(spec.layout);
  run.program = to_hex(program_hash(program));
  run.steps.push_back({0, {}});
  for (int r = 0; r < mesh.world(); ++r) {
    const Coord coord = mesh.coord({r}, mesh::Axis::kPipeline);
    const auto c = static_cast<std::size_t>(coord.value);
    run.steps[0].ranks.push_back({{r}, coord, simulation.coords[c], simulation.lanes[c]});
  }
  return run;
}

TEST_F(Calibrated, AgainstItsOwnTimelineNothingIsOff) {
  const std::string calibration = calibration_file();
  for (const char* name : kLayouts) {
    spec_.layout = spec::parse_layout(name).value();
    const auto compare = [&](Seconds extra) {
      const std::string timeline = write(
          "run.timeline", write_timeline(simulated_run(spec_, cost::some_calibration(2), extra)));
      const Answer ran =
          run(words(spec_.layout), {"--calibration", calibration, "--against", timeline, "--json"});
      EXPECT_EQ(ran.code, ExitCode::kOk) << name << ran.err;
      const Json json = Json::parse(ran.out).value();
      EXPECT_EQ(json.find("time_unit")->as_text(), "s");
      return *json.find("schedules")->items()[0].find("against");
    };
    const Json same = compare({});
    EXPECT_EQ(same.find("error")->as_real(), 0) << name;
    EXPECT_EQ(same.find("predicted")->as_real(), same.find("measured")->as_real());
    for (const Json& row : same.find("rows")->items())
      EXPECT_EQ(row.find("predicted")->as_real(), row.find("measured")->as_real())
          << name << row.dump();
    // A planted fault: F of one unit is slower than it was priced.
    const Json other = compare({0.5});
    EXPECT_LT(other.find("error")->as_real(), 0) << name;
    for (const Json& row : other.find("rows")->items())
      if (row.find("what")->as_text() == "F") {
        EXPECT_LT(row.find("predicted")->as_real(), row.find("measured")->as_real()) << name;
      }
  }
}

TEST_F(Calibrated, TheTableEndsWithTheStep) {
  const std::string calibration = calibration_file();
  spec_.layout = spec::parse_layout("pp2 dp1").value();
  const std::string timeline = write(
      "run.timeline", write_timeline(simulated_run(spec_, cost::some_calibration(2), {0.25})));
  const Answer ran =
      run(words(spec_.layout), {"--calibration", calibration, "--against", timeline});
  ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
  for (const char* says : {"times     measured on 2 threads, 2026-01-31:", "\ncompute ", "\n  F ",
                           "\np2p ", "\nwait ", "\nstep ", "\nthe prediction is off by -"})
    EXPECT_NE(ran.out.find(says), std::string::npos) << says << "\n" << ran.out;
}

TEST_F(Calibrated, RefusesWhatCanNotBeMeant) {
  const std::string calibration = calibration_file();
  spec_.layout = spec::parse_layout("dp2 zero1").value();
  const std::string timeline =
      write("run.timeline", write_timeline(simulated_run(spec_, cost::some_calibration(2), {})));
  const auto refused = [&](std::vector<std::string> asked, const std::string& says) {
    const Answer ran = answer(simulate_verb(), asked);
    EXPECT_EQ(ran.code, ExitCode::kUsage) << says << ran.out;
    EXPECT_NE(ran.err.find(says), std::string::npos) << says << "\n" << ran.err;
  };
  const auto with = [&](std::vector<std::string> asked, std::vector<std::string> more) {
    asked.insert(asked.end(), more.begin(), more.end());
    return asked;
  };
  const std::vector<std::string> own = words(spec_.layout);
  refused({"simulate", "--calibration", calibration}, "prices the ops of a run, but no run file");
  refused(with(own, {"--calibration", calibration, "--costs", "1,1,1"}),
          "both say how long it takes");
  refused(with(own, {"--against", timeline}), "without --calibration times have no unit");
  refused(with(own, {"--calibration", calibration, "--set", "batch.microbatch=2"}),
          "was measured with batch.microbatch = 4, asked for is 2");
  refused(with(own, {"--calibration", calibration, "--set", "train.dtype=\"f64\""}),
          "was measured with train.dtype = f32, asked for is f64");
  refused(with(own, {"--calibration", calibration, "--set", "model.hidden=128"}),
          "was measured with model.hidden = 64, asked for is 128");
  refused(with(own, {"--calibration", calibration, "--set", "layout.dp=4"}),
          "does not know all_reduce of 4 ranks");
  // The command that measures what is missing, to be copied.
  refused({"simulate", own[1], "--calibration", calibration, "--set", "layout.dp=4"},
          "lockstep calibrate " + own[1] + " --set 'layout.dp=4' --out ");
  refused(with(own, {"--calibration", timeline}), "is of schema lockstep.timeline/1");
  refused(with(own, {"--calibration", calibration, "--against", calibration}),
          "is of schema lockstep.calibration/2");
  refused(
      with(own, {"--calibration", calibration, "--against", timeline, "--set", "layout.zero=2"}),
      "was measured with another program: layout dp2 zero1");
  refused(
      with(own, {"--calibration", calibration, "--against", timeline, "--compare", "1f1b,gpipe"}),
      "--compare times several");
}

// `simulate` is asked for each layout by itself; `plan` found it among all.
TEST_F(Calibrated, PlansWithTheTimesThatAreSimulated) {
  const std::string calibration = calibration_file();
  const std::string example = support::source_dir() + "/examples/tiny.toml";
  const Answer ran = answer(plan_verb(), {"plan", example, "--calibration", calibration, "--json",
                                          "--top", "64", "--memory"});
  ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
  const Json json = Json::parse(ran.out).value();
  const auto& rows = json.find("plans")->items();
  ASSERT_GT(rows.size(), 10U);
  for (std::size_t i = 0; i < rows.size(); i += 5) {
    const std::string name = rows[i].find("name")->as_text();
    const Answer alone =
        run(words(spec::parse_layout(name).value()), {"--calibration", calibration, "--json"});
    ASSERT_EQ(alone.code, ExitCode::kOk) << name << alone.err;
    const Json timed = Json::parse(alone.out).value().find("schedules")->items()[0];
    EXPECT_EQ(rows[i].find("step_s")->find("total")->as_real(), timed.find("step_time")->as_real())
        << name;
    EXPECT_EQ(rows[i].find("memory")->find("allocated_bytes")->as_real(),
              timed.find("peak_bytes")->as_real())
        << name;
    EXPECT_EQ(rows[i].find("stages")->items().size(),
              timed.find("peak_bytes_per_rank")->items().size());
  }
  EXPECT_NE(ran.out.find("are not timed, for want of a calibration"), std::string::npos);
}

TEST_F(Calibrated, PlansOnlyWhatWasMeasured) {
  const std::string calibration = calibration_file();
  const std::string example = support::source_dir() + "/examples/tiny.toml";
  const auto refused = [&](std::vector<std::string> more, const std::string& says) {
    std::vector<std::string> asked = {"plan", "--calibration", calibration};
    asked.insert(asked.end(), more.begin(), more.end());
    const Answer ran = answer(plan_verb(), asked);
    EXPECT_EQ(ran.code, ExitCode::kUsage) << says << ran.out;
    EXPECT_NE(ran.err.find(says), std::string::npos) << says << "\n" << ran.err;
  };
  refused({"--model", "llama3-8b"}, "prices the ops of a run, but no run file");
  refused({example, "--explain"}, "--explain prices other machines");
  refused({example, "--objective", "cost"}, "tries fewer devices");
  refused({example, "--dtype", "fp8"},
          "--dtype would do nothing: --calibration has measured times");
  refused({example, "--set", "model.hidden=128"}, "was measured with model.hidden = 64");
  refused({example, "--layout", "dp2 zero1", "--cluster", "cpu-gloo:4"}, "dp");
  refused({example, "--layout", "dp=2,microbatch=2"}, "microbatch 2 with tp 1");
  refused({example, "--set", "batch.global_batch=7", "--set", "batch.microbatch=1", "--cluster",
           "cpu-gloo:1"},
          "know none of the layouts");
}

TEST_F(Calibrated, ADirectoryIsAllOfItsFiles) {
  std::filesystem::create_directories(dir_ / "cals");
  write("cals/notes.txt", "no calibration");
  std::vector<std::string> files;
  for (const std::int64_t microbatch : {1, 4, 2}) {
    spec_.batch.microbatch = microbatch;
    files.push_back(calibration_file(join_parts("cals/mb", microbatch, ".json")));
  }
  const auto plans = [&](const std::vector<std::string>& calibrations) {
    std::vector<std::string> asked = {"plan", support::source_dir() + "/examples/tiny.toml",
                                      "--json", "--top", "64"};
    for (const std::string& name : calibrations) asked.insert(asked.end(), {"--calibration", name});
    const Answer ran = answer(plan_verb(), asked);
    EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
    return Json::parse(ran.out).value().find("plans")->dump();
  };
  const std::string all = plans(files);
  EXPECT_EQ(plans({file("cals")}), all);
  EXPECT_EQ(plans({file("cals/")}), all);
  EXPECT_EQ(plans({files[2], file("cals")}), all);
  EXPECT_NE(plans({files[0], files[1]}), all);
}

TEST_F(Calibrated, EveryFileOfADirectoryMustBeACalibrationOfTheRun) {
  std::filesystem::create_directories(dir_ / "cals");
  const auto refused = [&](ExitCode code, const std::string& says) {
    const Answer ran = answer(plan_verb(), {"plan", support::source_dir() + "/examples/tiny.toml",
                                            "--calibration", file("cals")});
    EXPECT_EQ(ran.code, code) << says << ran.out;
    EXPECT_EQ(ran.err.find("2 errors"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find(says), std::string::npos) << says << "\n" << ran.err;
  };
  refused(ExitCode::kEnvironment, "cals`: it is a directory without any *.json file");
  calibration_file("cals/a.json");
  write("cals/b.json", "{");
  refused(ExitCode::kUsage, "cals/b.json");
  write("cals/b.json", R"({"schema": "lockstep.plan/2"})");
  refused(ExitCode::kUsage, "cals/b.json` is of schema lockstep.plan/2");
  spec_.model.hidden = 128;
  calibration_file("cals/b.json");
  refused(ExitCode::kUsage, "cals/b.json` was measured with model.hidden = 128");
  std::filesystem::remove_all(dir_ / "cals");
  refused(ExitCode::kEnvironment, "cals`: no such file or directory");
}

}  // namespace
}  // namespace lockstep::cli
