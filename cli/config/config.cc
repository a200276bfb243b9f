#include <algorithm>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/config/effective.h"
#include "cli/run_file.h"
#include "cli/verbs.h"
#include "lockstep/base/check.h"
#include "lockstep/config/document.h"
#include "lockstep/config/fields.h"
#include "lockstep/config/suggest.h"
#include "lockstep/spec/spec.h"

namespace lockstep::cli {
namespace {

Json to_json(const spec::Spec& spec) {
  return Json::object({{"model", spec.model.name},
                       {"cluster", spec.cluster ? Json(spec.cluster->name) : Json()},
                       {"world", spec.world()},
                       {"layout", layout_json(spec.layout, true)},
                       {"microbatches", spec.num_microbatches()}});
}

Result<ExitCode> run_check(const Args& args, Output& output) {
  config::Report report;
  const auto spec = load_spec(args, report);
  if (!spec) return fail(output, report, subject_of(args));
  if (output.json)
    return print_json(output, Json::object({{"schema", "lockstep.config.check/2"},
                                            {"file", args.text("FILE")},
                                            {"ok", true},
                                            {"warnings", *report.json("").find("diagnostics")},
                                            {"spec", to_json(*spec)}}));
  output.err << report.text(subject_of(args), output.err_colour);
  output.out << args.text("FILE") << " is valid\n" << to_text(*spec) << '\n';
  return ExitCode::kOk;
}

// "file run.toml:3:1", "flag --set", "default".
std::string origin_text(const Shown& shown, const config::Sources& sources) {
  std::string text(to_text(shown.value->origin));
  if (!shown.span.known()) return text;
  if (!sources.is_file(shown.span.file))
    return shown.value->origin == config::Origin::kEnvironment
               ? text + " " + variable_of(*shown.field)
               : text + " " + shown.span.file;
  return text + strf(" %s:%d:%d", shown.span.file.c_str(), shown.span.line, shown.span.column);
}

Result<ExitCode> run_show(const Args& args, Output& output) {
  config::Report report;
  const auto document = load_run(args, report);
  if (document && args.has("FILE")) config::check(*document, spec::run_fields(), report);
  if (!document || !report.ok()) return fail(output, report, subject_of(args));
  const std::vector<Shown> shown = effective(*document);
  if (!output.json) {
    output.out << toml_text(shown, [&](const Shown& one) {
      return args.flag("origin") && one.value ? origin_text(one, report.sources) : std::string();
    });
    return ExitCode::kOk;
  }
  Json values = Json::array();
  for (const Shown& s : shown)
    values.push(Json::object({{"path", s.field->path},
                              {"value", s.value ? config::to_json(*s.value) : Json()},
                              {"origin", s.value ? Json(to_text(s.value->origin)) : Json()},
                              {"source", s.span.known() ? Json(s.span.file) : Json()},
                              {"line", s.span.known() ? Json(s.span.line) : Json()}}));
  return print_json(
      output, Json::object({{"schema", "lockstep.config.show/1"}, {"values", std::move(values)}}));
}

Result<ExitCode> print_run_fields(const Args& args, Output& output) {
  const config::FieldTable& table = spec::run_fields();
  std::vector<config::Field> chosen;
  const std::string key = args.has("KEY") ? args.text("KEY") : "";
  std::vector<std::string> names;
  for (const config::Field& field : table.fields()) {
    for (std::size_t dot = field.path.find('.'); dot != std::string::npos;
         dot = field.path.find('.', dot + 1))
      if (const std::string section = field.path.substr(0, dot);
          std::ranges::find(names, section) == names.end())
        names.push_back(section);
    names.push_back(field.path);
    if (key.empty() || field.path == key || field.path.starts_with(key + "."))
      chosen.push_back(field);
  }
  if (chosen.empty())
    return Error{Code::kUnknownKey, join_parts("no key or table `", key, "`"),
                 config::did_you_mean(key, names, "`lockstep config fields` lists all")};
  const config::FieldTable shown(table.what(), std::move(chosen));
  if (output.json)
    return print_json(output, Json::object({{"schema", "lockstep.config.fields/1"},
                                            {"fields", config::fields_json(shown)}}));
  output.out << config::fields_text(shown, output.width);
  return ExitCode::kOk;
}

}  // namespace

Verb config_verb() {
  Verb check = {.name = "check",
                .summary = "Check a run file and report every mistake in it",
                .description =
                    "Exit code 2 when there is a mistake; a warning is none. Of a file that is not "
                    "TOML or JSON at all, only the first fault is known.",
                .examples = {{"lockstep config check run.toml", "check a file"},
                             {"lockstep config check run.toml --set layout.tp=8",
                              "the same with one key replaced"}},
                .options = grouped({{"Over the run file", run_file_options()}}),
                .positionals = {{.name = "FILE", .help = "Run file, in TOML or JSON"}},
                .run = run_check};
  Verb show = {
      .name = "show",
      .summary = "Show every value a run would use, and where it comes from",
      .examples = {{"lockstep config show run.toml --origin", "values and their origins"},
                   {"lockstep config show", "the defaults"}},
      .options = grouped({{"Options", {flag("origin", "Say who set each value")}},
                          {"Over the run file", run_file_options()}}),
      .positionals = {{.name = "FILE", .help = "Run file, in TOML or JSON", .required = false}},
      .run = run_show};
  Verb fields = {.name = "fields",
                 .summary = "List the keys of a run file, what they take and their defaults",
                 .examples = {{"lockstep config fields layout", "the keys of one table"}},
                 .positionals = {{.name = "KEY",
                                  .help = "A key or a table; without it, all",
                                  .required = false}},
                 .run = print_run_fields};
  return {.name = "config",
          .summary = "Check, show and describe run files",
          .description =
              "A run file is TOML (or JSON). A value comes from --set, else from the environment "
              "(LOCKSTEP_LAYOUT_TP for layout.tp), else from the file, else from the file it "
              "extends, else from the default.",
          .examples = {{"lockstep config check run.toml", "report every mistake in a file"},
                       {"lockstep config show run.toml --origin", "values and their origins"},
                       {"lockstep config fields layout", "the keys of one table"}},
          .verbs = {std::move(check), std::move(show), std::move(fields)}};
}

}  // namespace lockstep::cli
