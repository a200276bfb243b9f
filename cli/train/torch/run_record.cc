#include "cli/train/torch/run_record.h"

#include <gnu/libc-version.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "cli/config/effective.h"
#include "cli/help.h"
#include "cli/text_file.h"
#include "lockstep/base/json.h"
#include "lockstep/tensor/torch_version.h"

namespace lockstep::cli {
namespace {

// Of this process, word by word.
Json command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string word;
  Json words = Json::array();
  while (std::getline(file, word, '\0')) words.push(word);
  return words;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// A run file of what was set; what follows or is so by default stands below it as comments, since
// a key that decides nothing in a run may not be set there.
std::string config_text(const config::Document& document) {
  std::vector<Shown> set;
  std::string rest;
  for (Shown& one : effective(document)) {
    const config::Origin origin = one.value ? one.value->origin : config::Origin::kDefault;
    if (origin != config::Origin::kDefault && origin != config::Origin::kDerived)
      set.push_back(std::move(one));
    else if (one.value)
      rest += join_parts("# ", one.field->path, " = ", to_text(*one.value), "\n");
  }
  return toml_text(set, [](const Shown&) { return std::string(); }) + "\n# What was not set:\n" +
         rest;
}

// What is in the process, with its version: a run's bits are those of these.
Json packages() {
  Json json = Json::object({{"torch", tensor::torch_version()}});
  for (const auto& [name, told] : tensor::torch_packages()) json.set(name, told);
  return json.set("libc", gnu_get_libc_version()).set("compiler", "gcc " __VERSION__);
}

std::string environment_text(int ranks) {
  return Json::object({{"schema", "lockstep.environment/1"},
                       {"time", static_cast<std::int64_t>(std::time(nullptr))},
                       {"lockstep", version()},
                       {"torch", tensor::torch_version()},
                       {"host", host_name()},
                       {"cores", static_cast<int>(std::thread::hardware_concurrency())},
                       {"ranks", ranks},
                       {"packages", packages()},
                       {"command", command_line()}})
             .dump(2) +
         "\n";
}

}  // namespace

RunRecord::RunRecord(std::string folder, const config::Document& document, int ranks,
                     std::function<void(const Error& error)> on_trouble)
    : folder_(std::move(folder)),
      config_(config_text(document)),
      environment_(environment_text(ranks)),
      on_trouble_(std::move(on_trouble)) {}

void RunRecord::begins(const train::Progress& /*done*/, bool /*continues*/) {
  for (const auto& [name, text] :
       {std::pair("config.toml", &config_), {"environment.json", &environment_}})
    if (const auto written = write_text((std::filesystem::path(folder_) / name).string(), *text);
        !written.ok())
      on_trouble_(written.error());
}

}  // namespace lockstep::cli
