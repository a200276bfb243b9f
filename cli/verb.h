// A command of `lockstep` as data: what it is called, what it takes, how to use it, and the
// function that does it. Parsing, help and tests all read this. A verb is one file, which calls the
// library and prints, with one function, and a row in verbs.cc:
//
//   Verb model_verb() {
//     return {.name = "model", .summary = "Parameters, FLOPs and memory of a model",
//             .examples = {{"lockstep model llama3-8b", "the sizes of a known model"}},
//             .options = {flag("list", "List the known models"),
//                         integer("seq", "TOKENS", "Sequence length").at_least(1)},
//             .positionals = {{.name = "MODEL", .help = "Name or file", .required = false}},
//             .run = run_model};
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/result.h"
#include "lockstep/base/units.h"
#include "lockstep/config/diagnostic.h"

namespace lockstep::cli {

struct Engine;  // engine.h

enum class ExitCode : std::uint8_t {
  kOk = 0,
  kCheckFailed = 1,   // a mismatch, an infeasible plan, a difference
  kUsage = 2,         // command line or configuration
  kEnvironment = 3,   // a file, a device, a port; torch not built in
  kRunFailed = 4,     // a peer was lost, a loss diverged
  kBug = 70,          // ours
  kTerminated = 143,  // after a clean stop on SIGTERM
};

// The exit code that belongs to an error, by the range of its code.
ExitCode exit_code_of(Code code);

enum class OptionType : std::uint8_t { kText, kInt, kReal, kBytes, kChoice };

struct Option {
  std::string name = {};   // long name without dashes: "set"
  std::string value = {};  // how help writes its value: "KEY=VALUE"; empty: a flag
  OptionType type = OptionType::kText;
  std::string help = {};                  // no full stop
  std::vector<std::string> choices = {};  // kChoice
  std::string initial = {};               // default; empty: none
  std::string env = {};  // variable that sets it when the option is not given; empty: none
  std::string group = "Options";
  bool repeated = false;                                  // may be given several times
  double min = -std::numeric_limits<double>::infinity();  // kInt, kReal; inclusive
  double max = std::numeric_limits<double>::infinity();
  char letter = 0;        // short name: 'o' for -o; 0: none
  std::string bare = {};  // value when it is given alone; then another comes after "=" only
  Suffixes suffixes = Suffixes::kNone;  // kInt, kReal: that a value may have; Args has it without
  std::string setting =
      {};  // key of a run file: the value joins those of --set, which is there too

  // Each sets what its name says, for chains: integer("top", "N", "Rows").initially("8").
  Option initially(std::string words) && { return initial = std::move(words), std::move(*this); }
  Option from_variable(std::string key) && { return env = std::move(key), std::move(*this); }
  Option in_group(std::string title) && { return group = std::move(title), std::move(*this); }
  Option repeats() && { return repeated = true, std::move(*this); }
  Option at_least(double least) && { return min = least, std::move(*this); }
  Option between(double least, double most) && { return min = least, max = most, std::move(*this); }
  Option short_name(char key) && { return letter = key, std::move(*this); }
  Option with(Suffixes some) && { return suffixes = some, std::move(*this); }
  Option sets(std::string path) && { return setting = std::move(path), std::move(*this); }
  Option when_bare(std::string words) && { return bare = std::move(words), std::move(*this); }
};

// Rows of an option table; `value` is how help writes the value.
Option flag(std::string name, std::string help);
Option text(std::string name, std::string value, std::string help);
Option integer(std::string name, std::string value, std::string help);
Option real(std::string name, std::string value, std::string help);
Option bytes(std::string name, std::string value, std::string help);
Option choice(std::string name, std::string value, std::vector<std::string> among,
              std::string help);

// One table of several, in their order, each under its title.
std::vector<Option> grouped(std::vector<std::pair<std::string, std::vector<Option>>> groups);

struct Positional {
  std::string name = {};  // in capitals: "FILE"
  std::string help = {};
  bool required = true;
  bool repeated = false;    // only the last may be
  bool is_command = false;  // it and all words behind it are another command's
};

struct Example {
  std::string command;  // complete: "lockstep config check run.toml"
  std::string what;     // what it shows; lower case, no full stop
};

// Styles of text on a terminal, as the numbers of its escape codes.
namespace style {
inline constexpr const char *kBold = "1", *kDim = "2", *kRed = "31", *kGreen = "32",
                            *kYellow = "33", *kCyan = "36", *kBoldCyan = "1;36";
}  // namespace style

// `text` in a style, where there may be colours.
std::string painted(const char* codes, std::string_view text, bool colour);

// Where a verb writes. Data goes to `out`, everything else to `err`.
struct Output {
  std::ostream& out;
  std::ostream& err;
  bool json = false;        // --json: one JSON object on `out`, errors as JSON on `err`
  bool colour = false;      // `out` may be coloured
  bool err_colour = false;  // `err` may be coloured
  bool live = false;        // `err` is a terminal: its last line may be written again
  int width = 80;           // columns to write text in
  int table_width = 80;     // columns that a table may take; of a pipe, any number
  // Where files go: replaces one. Only of verbs that write any.
  std::function<Result<void>(const std::string& name, const std::string& text)> write = {};
  void (*tell)(const Error& error) = nullptr;  // who else hears why a verb failed; null: nobody

  std::string paint(const char* codes, std::string_view text) const;  // for `out`
  // A painted label of so many columns from column `indent` on, and the text wrapped beside it.
  void row(int indent, const char* codes, int columns, const char* label,
           const std::string& text) const;
  // Writes the last line of `err`, a terminal's, again; an empty text clears it.
  void status(std::string_view text) const;
};

// What the command line said, every value already checked against its Option. A name that is not
// in the verb's table is a broken invariant.
class Args {
 public:
  bool flag(std::string_view name) const;  // a flag was given
  bool has(std::string_view name) const;   // given, by the environment, or has a default
  // REQUIRES: has(name), and the type of the Option.
  std::string text(std::string_view name) const;  // options and positionals
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  Bytes bytes(std::string_view name) const;
  // Of a repeated option or positional; empty when not given.
  std::vector<std::string> texts(std::string_view name) const;

  // Declares `name` and its values, none if it was not given. For the parser and for tests.
  void set(const std::string& name, std::vector<std::string> values);

 private:
  const std::vector<std::string>& values(std::string_view name) const;

  std::map<std::string, std::vector<std::string>, std::less<>> values_;
};

// Refuses --list or --fields beside one of `others`: a verb answers them with a listing alone.
Result<void> check_alone(const Args& args, const std::vector<std::string>& others);

struct Verb {
  std::string name = {};
  std::string summary = {};      // one line, no full stop
  std::string description = {};  // a paragraph for `lockstep help <verb>`; may be empty
  std::vector<Example> examples = {};
  std::vector<Option> options = {};  // --json, --color and --help are everywhere, not listed here
  std::vector<Positional> positionals = {};
  std::vector<Verb> verbs = {};  // of a verb like `config`; then it has no run function
  // One of the two; the engine's where it takes LibTorch.
  Result<ExitCode> (*run)(const Args& args, Output& output) = nullptr;
  Result<ExitCode> (*Engine::*engine)(const Args& args, Output& output) = nullptr;
  Verb (*starts)() = nullptr;  // the verb that its arguments are words of
};

// What goes wrong in `work`, however it is told, is an Error.
Result<ExitCode> guarded(const std::function<Result<ExitCode>()>& work);

// Report an error on output.err, as text or, with --json, as "lockstep.diagnostics/1"; return the
// exit code that belongs to it. Who runs a verb does so with the Error that it returns.
ExitCode fail(Output& output, const Error& error);
ExitCode fail(Output& output, const config::Report& report, std::string_view subject);

// One JSON value, indented, and a line end on output.out; returns kOk. Verbs begin theirs with
// "schema": "lockstep.<verb>/1".
ExitCode print_json(Output& output, const Json& json);

}  // namespace lockstep::cli
