// lockstep checkpoint: what checkpoints there are, what is in them, whether they are whole, how two
// differ.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "cli/table.h"
#include "cli/verbs.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/units.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/identity.h"
#include "lockstep/files/safetensors.h"

namespace lockstep::cli {
namespace {

using checkpoint::Checkpoint;
using checkpoint::Manifest;
using checkpoint::TensorRecord;

Error no_checkpoint(const std::string& folder) {
  return {Code::kNoCheckpoint, "there is no checkpoint in `" + folder + "`",
          "checkpoints are folders step-N in it"};
}

// One that is there with all its files, which are not read.
Result<Checkpoint> open_whole(const std::string& path) {
  Checkpoint opened = LS_TRY(Checkpoint::open(path));
  LS_TRY(opened.check_files());
  return opened;
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string contents_of(const Manifest& manifest) {
  return manifest.config.empty() ? "weights" : "weights, moments";
}

Json head_json(const Checkpoint& of) {
  const Manifest& m = of.manifest();
  return Json::object({{"path", of.path()},
                       {"whole", true},
                       {"step", m.step},
                       {"samples", m.samples},
                       {"tokens", m.tokens},
                       {"checked", m.checked ? Json(*m.checked) : Json()},
                       {"bytes", of.file_bytes()},
                       {"files", std::ssize(m.files)},
                       {"contents", contents_of(m)},
                       {"layout", m.layout},
                       {"lockstep", m.lockstep},
                       {"torch", m.torch}});
}

Result<ExitCode> run_ls(const Args& args, Output& output) {
  const std::string folder = args.has("FOLDER") ? args.text("FOLDER") : ".";
  const auto paths = checkpoint::candidates(files::real_disk(), folder);
  if (paths.empty()) return no_checkpoint(folder);
  Json list = Json::array();
  Rows rows = {{"checkpoint", "step", "tokens", "size", "files", "contents", "layout"}};
  std::string troubles;
  for (const std::string& path : paths) {
    const Result<Checkpoint> opened = open_whole(path);
    if (!opened.ok()) {
      list.push(
          Json::object({{"path", path}, {"whole", false}, {"error", opened.error().message}}));
      rows.push_back({name_of(path), "-", "-", "-", "-", "not whole", "-"});
      troubles += "\nnot whole: " + opened.error().message + "\n";
      continue;
    }
    list.push(head_json(*opened));
    const Manifest& m = opened->manifest();
    rows.push_back({name_of(path), with_commas(m.step), with_commas(m.tokens),
                    to_text(Bytes{opened->file_bytes()}), with_commas(std::ssize(m.files)),
                    contents_of(m), m.layout.empty() ? "-" : m.layout});
  }
  if (output.json)
    return print_json(output, Json::object({{"schema", "lockstep.checkpoint.ls/1"},
                                            {"folder", folder},
                                            {"checkpoints", std::move(list)}}));
  print_table(output.out, rows, "lrrrrll");
  output.err << troubles;
  return ExitCode::kOk;
}

struct RoleSum {
  std::int64_t tensors = 0, elements = 0, bytes = 0;
  std::string type;
};

std::map<checkpoint::Role, RoleSum> sums_of(const Manifest& manifest) {
  std::map<checkpoint::Role, RoleSum> sums;
  for (const TensorRecord& tensor : manifest.tensors) {
    RoleSum& sum = sums[tensor.role];
    const std::int64_t elements = checkpoint::whole(tensor.shape).volume();
    ++sum.tensors;
    sum.elements += elements;
    sum.bytes += elements * files::bits_of(tensor.type) / 8;
    const std::string type(files::to_text(tensor.type));
    if (sum.type.find(type) == std::string::npos) sum.type += (sum.type.empty() ? "" : ", ") + type;
  }
  return sums;
}

Json show_json(const Checkpoint& of) {
  const Manifest& m = of.manifest();
  Json tensors = Json::array(), files_json = Json::array();
  for (const TensorRecord& tensor : m.tensors)
    tensors.push(Json::object({{"name", tensor.name},
                               {"role", checkpoint::to_text(tensor.role)},
                               {"dtype", files::to_text(tensor.type)},
                               {"shape", Json::list(tensor.shape)},
                               {"slices", std::ssize(tensor.slices)}}));
  for (const checkpoint::FileRecord& file : m.files)
    files_json.push(Json::object({{"name", file.name}, {"bytes", file.bytes}}));
  Json json = Json::object({{"schema", "lockstep.checkpoint.show/1"}});
  const Json head = head_json(of);
  for (const auto& [key, value] : head.members()) json.set(key, value);
  json.set("updates", m.updates)
      .set("data", m.data)
      .set("model", checkpoint::to_json(m.model))
      .set("model_digest", to_hex(checkpoint::digest_of(m.model)))
      .set("config", checkpoint::to_json(m.config))
      .set("config_digest", to_hex(checkpoint::digest_of(m.config)))
      .set("state", checkpoint::to_json(m.state))
      .set("file_list", std::move(files_json))
      .set("tensors", std::move(tensors));
  return json;
}

void print_facts(Output& output, const char* title, const checkpoint::Facts& facts) {
  if (facts.empty()) return;
  output.out << '\n' << title << "  (digest " << to_hex(checkpoint::digest_of(facts)) << ")\n";
  Rows rows;
  for (const auto& [key, value] : facts) rows.push_back({"  " + key, value});
  print_table(output.out, rows, "ll");
}

void print_card(Output& output, const Checkpoint& of) {
  const Manifest& m = of.manifest();
  output.out << of.path() << ": " << to_text(Bytes{of.file_bytes()}) << " in "
             << counted(std::ssize(m.files), "file") << "\n\n";
  Rows rows = {{"step", with_commas(m.step)},
               {"samples", with_commas(m.samples)},
               {"tokens", with_commas(m.tokens)},
               {"checked", m.checked ? join_parts("at step ", with_commas(*m.checked)) : "no"}};
  if (!m.layout.empty()) rows.push_back({"layout", m.layout});
  if (!m.data.empty()) rows.push_back({"data", m.data});
  rows.push_back(
      {"saved by", "lockstep " + m.lockstep + (m.torch.empty() ? "" : ", torch " + m.torch)});
  print_table(output.out, rows, "ll");
  output.out << '\n';
  Rows roles = {{"role", "tensors", "elements", "size", "type"}};
  for (const auto& [role, sum] : sums_of(m))
    roles.push_back({std::string(checkpoint::to_text(role)), with_commas(sum.tensors),
                     with_commas(sum.elements), to_text(Bytes{sum.bytes}), sum.type});
  print_table(output.out, roles, "lrrrl");
  print_facts(output, "model", m.model);
  print_facts(output, "training", m.config);
  print_facts(output, "running averages", m.state);
}

Result<ExitCode> run_checkpoint_show(const Args& args, Output& output) {
  const Checkpoint opened =
      LS_TRY(checkpoint::open_at(files::real_disk(), args.text("CHECKPOINT")));
  if (output.json) return print_json(output, show_json(opened));
  print_card(output, opened);
  if (!args.flag("tensors")) return ExitCode::kOk;
  Rows rows = {{"tensor", "role", "type", "shape", "slices"}};
  for (const TensorRecord& tensor : opened.manifest().tensors)
    rows.push_back({tensor.name, std::string(checkpoint::to_text(tensor.role)),
                    std::string(files::to_text(tensor.type)), files::shape_text(tensor.shape),
                    with_commas(std::ssize(tensor.slices))});
  output.out << '\n';
  print_table(output.out, rows, "llllr");
  return ExitCode::kOk;
}

struct Verified {
  std::int64_t bytes = 0;
  Seconds time;
  Result<void> result;
};

Verified verify_one(const std::string& path, Output& output) {
  const RealClock clock;
  Result<Checkpoint> opened = Checkpoint::open(path);
  if (!opened.ok()) return {0, {}, opened.error()};
  constexpr std::int64_t kBetweenLines = std::int64_t{64} << 20;
  const std::string all = to_text(Bytes{opened->file_bytes()});
  std::int64_t done = 0, told = 0;
  Result<void> result = opened->verify([&](std::int64_t bytes) {
    done += bytes;
    if (!output.live || done - told < kBetweenLines) return;
    output.status(join_parts(to_text(Bytes{told = done}), " of ", all));
  });
  if (told > 0) output.status("");
  if (result.ok()) result = checkpoint::check_holds_model(opened->manifest(), path);
  return {opened->file_bytes(), clock.now().since_start, result};
}

Result<ExitCode> run_checkpoint_verify(const Args& args, Output& output) {
  const std::string path = args.text("PATH");
  std::vector<std::string> paths = {path};
  if (!checkpoint::is_checkpoint(path)) paths = checkpoint::candidates(files::real_disk(), path);
  if (paths.empty()) return no_checkpoint(path);
  Json list = Json::array();
  bool all_whole = true;
  for (const std::string& each : paths) {
    const Verified one = verify_one(each, output);
    all_whole = all_whole && one.result.ok();
    if (output.json) {
      list.push(
          Json::object({{"path", each},
                        {"whole", one.result.ok()},
                        {"bytes", one.bytes},
                        {"seconds", one.time.value},
                        {"error", one.result.ok() ? Json() : Json(one.result.error().message)}}));
    } else if (one.result.ok()) {
      output.out << each << ": whole, " << to_text(Bytes{one.bytes}) << " in " << to_text(one.time)
                 << '\n';
    } else {
      output.out << each << ": NOT WHOLE\n";
      fail(output, one.result.error());
    }
  }
  if (output.json)
    print_json(output, Json::object({{"schema", "lockstep.checkpoint.verify/1"},
                                     {"whole", all_whole},
                                     {"checkpoints", std::move(list)}}));
  return all_whole ? ExitCode::kOk : ExitCode::kCheckFailed;
}

// How one tensor differs.
struct TensorDifference {
  std::string tensor;
  std::string role;
  std::string what;  // of shapes or presence; empty: values
  std::int64_t elements = 0;
  std::int64_t different = 0;
  double largest = 0;  // of a difference
  bool is_equal() const { return what.empty() && different == 0; }
};

constexpr std::int64_t kElementsAtOnce = std::int64_t{1} << 20;

Result<void> compare_values(Checkpoint& a, Checkpoint& b, const TensorRecord& tensor,
                            TensorDifference& found) {
  std::vector<double> left(kElementsAtOnce), right = left;
  for (std::int64_t begin = 0; begin < found.elements; begin += kElementsAtOnce) {
    const std::int64_t end = std::min(begin + kElementsAtOnce, found.elements);
    const checkpoint::Slice part = {
        tensor.name, tensor.role, tensor.shape, checkpoint::whole(tensor.shape), begin, end};
    const auto count = static_cast<std::size_t>(end - begin);
    for (auto* side : {&a, &b}) {
      const std::span values = std::span(side == &a ? left : right).first(count);
      LS_TRY(side->read(part, DType::kF64, std::as_writable_bytes(values)));
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (std::bit_cast<std::uint64_t>(left[i]) == std::bit_cast<std::uint64_t>(right[i])) continue;
      ++found.different;
      const double difference = std::abs(left[i] - right[i]);
      found.largest = std::isnan(difference) || std::isnan(found.largest)
                          ? std::numeric_limits<double>::quiet_NaN()
                          : std::max(found.largest, difference);
    }
  }
  return {};
}

Result<std::vector<TensorDifference>> compare_tensors(Checkpoint& a, Checkpoint& b) {
  std::vector<TensorDifference> all;
  for (const TensorRecord& tensor : a.manifest().tensors) {
    TensorDifference found = {tensor.name, std::string(checkpoint::to_text(tensor.role)), "",
                              checkpoint::whole(tensor.shape).volume()};
    const TensorRecord* const other = b.manifest().find(tensor.name, tensor.role);
    if (other == nullptr)
      found.what = "only in A";
    else if (other->shape != tensor.shape)
      found.what =
          files::shape_text(tensor.shape) + " in A, " + files::shape_text(other->shape) + " in B";
    else
      LS_TRY(compare_values(a, b, tensor, found));
    all.push_back(std::move(found));
  }
  for (const TensorRecord& tensor : b.manifest().tensors)
    if (a.manifest().find(tensor.name, tensor.role) == nullptr)
      all.push_back({tensor.name, std::string(checkpoint::to_text(tensor.role)), "only in B",
                     checkpoint::whole(tensor.shape).volume()});
  return all;
}

// "layers" of the model, "lr" of the training: name, value in A, value in B.
using FactRow = std::vector<std::string>;

std::vector<FactRow> compare_facts(const Manifest& a, const Manifest& b) {
  std::vector<FactRow> rows;
  const auto add = [&](const std::string& name, const std::string& left, const std::string& right) {
    if (left != right) rows.push_back({name, left, right});
  };
  add("step", std::to_string(a.step), std::to_string(b.step));
  add("samples", std::to_string(a.samples), std::to_string(b.samples));
  add("tokens", std::to_string(a.tokens), std::to_string(b.tokens));
  add("data", a.data, b.data);
  const auto value = [](const checkpoint::Facts& facts, const std::string& key) {
    for (const auto& [name, text] : facts)
      if (name == key) return text;
    return std::string("-");
  };
  for (const auto& [title, left, right] :
       {std::tuple("model.", &a.model, &b.model), std::tuple("train.", &a.config, &b.config)}) {
    std::set<std::string> keys;
    for (const auto* facts : {left, right})
      for (const auto& [key, text] : *facts)
        if (keys.insert(key).second) add(title + key, value(*left, key), value(*right, key));
  }
  return rows;
}

void print_diff(Output& output, const std::vector<FactRow>& facts,
                const std::vector<TensorDifference>& tensors) {
  if (!facts.empty()) {
    Rows rows = {{"", "A", "B"}};
    rows.insert(rows.end(), facts.begin(), facts.end());
    print_table(output.out, rows, "lll");
  }
  Rows rows = {{"tensor", "role", "elements", "different", "largest"}};
  std::int64_t equal = 0, elements = 0;
  for (const TensorDifference& one : tensors) {
    if (one.is_equal()) {
      ++equal;
      elements += one.elements;
      continue;
    }
    if (one.what.empty())
      rows.push_back({one.tensor, one.role, with_commas(one.elements), with_commas(one.different),
                      strf("%.3g", one.largest)});
    else
      rows.push_back({one.tensor, one.role, with_commas(one.elements), one.what, "-"});
  }
  if (rows.size() > 1) {
    if (!facts.empty()) output.out << '\n';
    print_table(output.out, rows, "llrrr");
  }
  if (!facts.empty() || rows.size() > 1) output.out << '\n';
  output.out << counted(equal, "tensor") << " of " << tensors.size() << " with "
             << counted(elements, "element") << (equal == 1 ? " is" : " are")
             << " equal bit for bit\n";
}

Json diff_json(const std::vector<FactRow>& facts, const std::vector<TensorDifference>& tensors,
               bool same) {
  Json facts_json = Json::array(), list = Json::array();
  for (const FactRow& row : facts)
    facts_json.push(Json::object({{"name", row[0]}, {"a", row[1]}, {"b", row[2]}}));
  for (const TensorDifference& one : tensors)
    if (!one.is_equal())
      list.push(Json::object({{"tensor", one.tensor},
                              {"role", one.role},
                              {"elements", one.elements},
                              {"different", one.different},
                              {"largest", one.largest},
                              {"what", one.what.empty() ? "values" : one.what}}));
  return Json::object({{"schema", "lockstep.checkpoint.diff/1"},
                       {"same", same},
                       {"facts", std::move(facts_json)},
                       {"compared", std::ssize(tensors)},
                       {"tensors", std::move(list)}});
}

Result<ExitCode> run_checkpoint_diff(const Args& args, Output& output) {
  Checkpoint a = LS_TRY(Checkpoint::open(args.text("A")));
  Checkpoint b = LS_TRY(Checkpoint::open(args.text("B")));
  const auto tensors = LS_TRY(compare_tensors(a, b));
  const auto facts = compare_facts(a.manifest(), b.manifest());
  const bool same = facts.empty() && std::ranges::all_of(tensors, &TensorDifference::is_equal);
  if (output.json)
    print_json(output, diff_json(facts, tensors, same));
  else
    print_diff(output, facts, tensors);
  return same ? ExitCode::kOk : ExitCode::kCheckFailed;
}

}  // namespace

Verb checkpoint_verb() {
  Verb ls = {.name = "ls",
             .summary = "List the checkpoints of a folder, newest first",
             .description = "Manifests and sizes of files are looked at, not the bytes of tensors.",
             .examples = {{"lockstep checkpoint ls runs/a", "what `train --save runs/a` has kept"}},
             .positionals = {{.name = "FOLDER",
                              .help = "Where checkpoints are [default: this one]",
                              .required = false}},
             .run = run_ls};
  Verb show = {.name = "show",
               .summary = "Show what is in a checkpoint",
               .examples = {{"lockstep checkpoint show runs/a", "the newest of a run"},
                            {"lockstep checkpoint show runs/a/step-00001000 --tensors",
                             "with one line per tensor"}},
               .options = {flag("tensors", "List every tensor")},
               .positionals = {{.name = "CHECKPOINT",
                                .help = "A checkpoint, or a folder of them: the newest is shown"}},
               .run = run_checkpoint_show};
  Verb verify = {.name = "verify",
                 .summary = "Compare every byte with the digests taken before it was written",
                 .description = "Exit code 1 when something is missing or damaged.",
                 .examples = {{"lockstep checkpoint verify runs/a", "all checkpoints of a folder"}},
                 .positionals = {{.name = "PATH", .help = "A checkpoint, or a folder of them"}},
                 .run = run_checkpoint_verify};
  Verb diff = {
      .name = "diff",
      .summary = "Show how two checkpoints differ",
      .description =
          "Whatever layouts they were saved under: tensors are compared as wholes, bit for bit. "
          "Exit code 1 when they differ.",
      .examples = {{"lockstep checkpoint diff a/step-00001000 b/step-00001000",
                    "the same step of two runs"}},
      .positionals = {{.name = "A", .help = "A checkpoint"}, {.name = "B", .help = "Another"}},
      .run = run_checkpoint_diff};
  return {.name = "checkpoint",
          .summary = "List, show, verify and compare checkpoints",
          .examples = {{"lockstep checkpoint ls runs/a", "what there is"},
                       {"lockstep checkpoint verify runs/a", "whether it is whole"}},
          .verbs = {std::move(ls), std::move(show), std::move(verify), std::move(diff)}};
}

}  // namespace lockstep::cli
