#include "cli/verb.h"

#include <cctype>
#include <exception>
#include <new>
#include <ostream>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"

namespace lockstep::cli {
namespace {

const std::string& only(const std::vector<std::string>& values, std::string_view name) {
  LS_CHECK(values.size() == 1, name, " has ", values.size(), " values");
  return values.front();
}

template <class Number>
Number number_of(const std::string& text, std::string_view name) {
  const auto number = number_in<Number>(text);
  LS_CHECK(number, name, " = ", text);
  return *number;
}

Error bug(const char* what) {
  return {Code::kBug, what, "this is a bug in Lockstep; please report it with the command line"};
}

Option of_type(OptionType type, Option option) {
  option.type = type;
  return option;
}

}  // namespace

ExitCode exit_code_of(Code code) {
  const int number = static_cast<int>(code);
  if (code == Code::kOtherCheckpoint) return ExitCode::kUsage;
  if (code == Code::kFileUnreadable || number / 100 == 6 || number / 100 == 8)
    return ExitCode::kEnvironment;
  if (code == Code::kBug) return ExitCode::kBug;
  if (code == Code::kInterrupted) return ExitCode::kTerminated;
  // A bad argument of a collective comes from our own code, but a lost peer from the run.
  return number / 100 == 5 || code == Code::kDiverged || code == Code::kCorruptState
             ? ExitCode::kRunFailed
             : ExitCode::kUsage;
}

Option flag(std::string name, std::string help) {
  return {.name = std::move(name), .help = std::move(help)};
}
Option text(std::string name, std::string value, std::string help) {
  return {.name = std::move(name), .value = std::move(value), .help = std::move(help)};
}
Option integer(std::string name, std::string value, std::string help) {
  return of_type(OptionType::kInt, text(std::move(name), std::move(value), std::move(help)));
}
Option real(std::string name, std::string value, std::string help) {
  return of_type(OptionType::kReal, text(std::move(name), std::move(value), std::move(help)));
}
Option bytes(std::string name, std::string value, std::string help) {
  return of_type(OptionType::kBytes, text(std::move(name), std::move(value), std::move(help)));
}
Option choice(std::string name, std::string value, std::vector<std::string> among,
              std::string help) {
  Option option = text(std::move(name), std::move(value), std::move(help));
  option.choices = std::move(among);
  return of_type(OptionType::kChoice, std::move(option));
}

std::vector<Option> grouped(std::vector<std::pair<std::string, std::vector<Option>>> groups) {
  std::vector<Option> all;
  for (auto& [title, options] : groups)
    for (Option& option : options) all.push_back(std::move(option).in_group(title));
  return all;
}

std::string painted(const char* codes, std::string_view text, bool colour) {
  return colour ? join_parts("\x1b[", codes, "m", text, "\x1b[0m") : std::string(text);
}

std::string Output::paint(const char* codes, std::string_view text) const {
  return painted(codes, text, colour);
}

void Output::row(int indent, const char* codes, int columns, const char* label,
                 const std::string& text) const {
  out << std::string(indent, ' ') << paint(codes, strf("%-*s", columns, label))
      << wrapped(text, indent + columns, indent + columns, width);
}

void Output::status(std::string_view text) const { err << '\r' << text << "\x1b[K" << std::flush; }

Result<ExitCode> guarded(const std::function<Result<ExitCode>()>& work) {
  try {
    return work();
  } catch (const WorldError& error) {
    return error.error();
  } catch (const std::bad_alloc&) {
    return Error{Code::kUnsuitableEnvironment, "out of memory", ""};
  } catch (const std::exception& error) {
    return bug(error.what());
  } catch (...) {
    return bug("an exception of unknown type");
  }
}

void Args::set(const std::string& name, std::vector<std::string> values) {
  values_[name] = std::move(values);
}

const std::vector<std::string>& Args::values(std::string_view name) const {
  const auto found = values_.find(name);
  LS_CHECK(found != values_.end(), "the verb declares no ", name);
  return found->second;
}

bool Args::flag(std::string_view name) const { return has(name); }
bool Args::has(std::string_view name) const { return !values(name).empty(); }
std::string Args::text(std::string_view name) const { return only(values(name), name); }
std::int64_t Args::integer(std::string_view name) const {
  return number_of<std::int64_t>(text(name), name);
}
double Args::real(std::string_view name) const { return number_of<double>(text(name), name); }
Bytes Args::bytes(std::string_view name) const { return parse_bytes(text(name)).value(); }
std::vector<std::string> Args::texts(std::string_view name) const { return values(name); }

Result<void> check_alone(const Args& args, const std::vector<std::string>& others) {
  for (const char* list : {"list", "fields"})
    for (const std::string& other : others)
      if (args.has(list) && args.has(other) && other != list)
        return Error{Code::kBadOptionValue,
                     join_parts("--", list, " lists all there are, but ",
                                std::islower(other[0]) != 0 ? "--" : "", other, " is given too"),
                     "leave one of the two out"};
  return {};
}

ExitCode fail(Output& output, const Error& error) {
  if (output.tell != nullptr) output.tell(error);
  config::Report report;
  report.add(error);
  return fail(output, report, "");
}

ExitCode fail(Output& output, const config::Report& report, std::string_view subject) {
  if (output.json)
    output.err << report.json(subject).dump(2) << '\n';
  else
    output.err << report.text(subject, output.err_colour);
  for (const config::Diagnostic& diagnostic : report.diagnostics())
    if (diagnostic.severity == config::Severity::kError) return exit_code_of(diagnostic.code);
  return ExitCode::kOk;
}

ExitCode print_json(Output& output, const Json& json) {
  output.out << json.dump(2) << '\n';
  return ExitCode::kOk;
}

}  // namespace lockstep::cli
