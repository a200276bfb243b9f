// The run file as every verb that takes one reads it.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verb.h"
#include "lockstep/config/document.h"
#include "lockstep/spec/spec.h"

namespace lockstep::cli {

// Of the environment.
std::optional<std::string> variable(const std::string& name);

// --set KEY=VALUE, repeated.
Option set_option();
// The same, and an option for each of the keys that are changed most: --tp 2 is --set layout.tp=2.
std::vector<Option> run_file_options();

// The file (positional FILE; when not given, `built_in`, in TOML), then the environment, then
// --set, each over the one before. Nothing when the file cannot be read at all; mistakes are in
// `report`.
std::optional<config::Document> load_run(const Args& args, config::Report& report,
                                         const std::string& built_in = "");

// The same, read and checked. Nothing when there is any mistake.
std::optional<spec::Spec> load_spec(const Args& args, config::Report& report);

// A copy without these keys of its first level.
config::Document without(const config::Document& document,
                         std::initializer_list<std::string_view> keys);

// The [layout] of a run file. Not `all`: without what it would be anyway.
Json layout_json(const spec::Layout& layout, bool all = false);

// What a report is about: the file, or the command line.
std::string subject_of(const Args& args);

}  // namespace lockstep::cli
