#include "cli/run_file.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/comm/rendezvous.h"
#include "lockstep/config/fields.h"

namespace lockstep::cli {
namespace {

std::vector<std::string> variable_names() {
  std::vector<std::string> names;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view text = *at;
    names.emplace_back(text.substr(0, text.find('=')));
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::optional<std::string> variable(const std::string& name) {
  return comm::process_environment(name.c_str());
}

Option set_option() {
  return text("set", "KEY=VALUE", "Set one key over the file and the environment").repeats();
}

std::vector<Option> run_file_options() {
  std::vector<Option> options = {set_option()};
  for (const char* path :
       {"layout.tp", "layout.cp", "layout.pp", "layout.dp", "layout.ep", "layout.zero",
        "layout.schedule", "batch.seq", "batch.global_batch", "batch.microbatch", "train.steps",
        "train.lr", "train.dtype", "train.seed"}) {
    const config::Field& field = *spec::run_fields().find(path);
    std::string name = field.path.substr(field.path.find('.') + 1);
    std::ranges::replace(name, '_', '-');
    options.push_back(text(name, field.type == config::FieldType::kChoice ? "WORD" : "N",
                           join_parts(config::brief(field), " [", path, "]"))
                          .sets(path));
  }
  return options;
}

std::optional<config::Document> load_run(const Args& args, config::Report& report,
                                         const std::string& built_in) {
  auto loaded = args.has("FILE") ? config::load_document(args.text("FILE"), report)
                                 : config::parse_document(built_in, "the built-in run",
                                                          config::Format::kToml, report);
  if (!loaded) return std::nullopt;
  config::Document document = *std::move(loaded);
  config::apply_environment(spec::run_fields(), variable, document, report);
  config::check_variables(spec::run_fields(), variable_names(), report);
  for (const std::string& assignment : args.texts("set"))
    config::apply_override(assignment, document, report);
  return document;
}

std::optional<spec::Spec> load_spec(const Args& args, config::Report& report) {
  const auto document = load_run(args, report);
  auto spec = document ? spec::read_spec(*document, report) : std::nullopt;
  return report.ok() ? spec : std::nullopt;
}

config::Document without(const config::Document& document,
                         std::initializer_list<std::string_view> keys) {
  config::Value root = document.root();
  std::erase_if(root.entries, [&](const config::Entry& entry) {
    return std::ranges::find(keys, entry.key) != keys.end();
  });
  return config::Document(std::move(root));
}

Json layout_json(const spec::Layout& layout, bool all) {
  const mesh::Degrees& d = layout.degrees;
  Json json = Json::object({{"tp", d.tp}, {"cp", d.cp}, {"pp", d.pp}, {"dp", d.dp}});
  if (all || d.dp_shard) json.set("dp_shard", d.dp_shard.value_or(d.dp));
  json.set("ep", d.ep).set("etp", d.etp);
  if (all || d.cp > 1) json.set("cp_comm_type", to_text(layout.context));
  json.set("sp", layout.sp).set("zero", layout.zero).set("order", to_text(layout.order));
  json.set("schedule", layout.schedule).set("vpp", layout.chunks);
  if (!layout.layers.empty()) json.set("layers", spec::layers_text(layout.layers));
  return json.set("reduce", spec::name_of(layout.reduce))
      .set("recompute", to_text(layout.recompute));
}

std::string subject_of(const Args& args) {
  return args.has("FILE") ? args.text("FILE") : "the command line";
}

}  // namespace lockstep::cli
