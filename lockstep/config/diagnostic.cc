#include "lockstep/config/diagnostic.h"

#include <algorithm>
#include <filesystem>

#include "lockstep/base/check.h"
#include "lockstep/base/units.h"

namespace lockstep::config {
namespace {

Json label_json(const Label& label) {
  return Json::object({{"file", label.span.file},
                       {"line", label.span.line},
                       {"column", label.span.column},
                       {"length", label.span.length},
                       {"label", label.text}});
}

Json diagnostic_json(const Diagnostic& d) {
  return Json::object({{"severity", d.severity == Severity::kError ? "error" : "warning"},
                       {"code", to_text(d.code)},
                       {"message", d.message},
                       {"primary", d.primary.span.known() ? label_json(d.primary) : Json()},
                       {"secondary", Json::list(d.secondary, label_json)},
                       {"notes", Json::list(d.notes)},
                       {"help", d.help.empty() ? Json() : Json(d.help)}});
}

}  // namespace

Diagnostic to_diagnostic(const Error& error) {
  return {.code = error.code, .message = error.message, .help = error.help};
}

void Sources::add(std::string name, std::string text, bool is_file) {
  Source source{std::move(text), is_file, {0}};
  for (std::size_t at = 0; at < source.text.size(); ++at)
    if (source.text[at] == '\n') source.line_starts.push_back(at + 1);
  sources_[std::move(name)] = std::move(source);
}

int Sources::append_line(const std::string& name, std::string_view line) {
  const auto found = sources_.find(name);
  const std::string before = found == sources_.end() ? "" : found->second.text;
  std::string flat(line);
  std::ranges::transform(flat, flat.begin(), [](char c) { return c == '\n' ? ' ' : c; });
  add(name, before + flat + "\n", false);
  return static_cast<int>(sources_[name].line_starts.size()) - 1;
}

void Sources::merge(const Sources& other) {
  for (const auto& [name, source] : other.sources_) sources_[name] = source;
}

bool Sources::is_file(std::string_view name) const {
  const auto found = sources_.find(name);
  return found == sources_.end() || found->second.is_file;
}

std::string Sources::beside(const Span& span, const std::string& name) const {
  if (!span.known() || !is_file(span.file)) return name;
  return (std::filesystem::path(span.file).parent_path() / name).string();
}

std::string_view Sources::line(std::string_view name, int number) const {
  const auto found = sources_.find(name);
  if (found == sources_.end()) return {};
  const Source& source = found->second;
  if (number < 1 || static_cast<std::size_t>(number) > source.line_starts.size()) return {};
  const std::size_t begin = source.line_starts[number - 1];
  std::string_view line = std::string_view(source.text).substr(begin);
  line = line.substr(0, line.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

void Report::add(Diagnostic diagnostic) { diagnostics_.push_back(std::move(diagnostic)); }

void Report::add(const Error& error, Label place) {
  diagnostics_.push_back(to_diagnostic(error));
  diagnostics_.back().primary = std::move(place);
}

int Report::num_errors() const {
  return static_cast<int>(
      std::ranges::count(diagnostics_, Severity::kError, &Diagnostic::severity));
}

Error Report::first_error() const {
  const auto first = std::ranges::find(diagnostics_, Severity::kError, &Diagnostic::severity);
  LS_CHECK(first != diagnostics_.end(), "no error in this report");
  const Span& span = first->primary.span;
  std::string place;
  if (span.known() && sources.is_file(span.file))
    place = strf("%s:%d:%d: ", span.file.c_str(), span.line, span.column);
  else if (span.known())
    place = span.file + ": ";
  return {first->code, place + first->message, first->help};
}

std::string Report::text(std::string_view subject, bool colour) const {
  std::string out;
  for (const Diagnostic& d : diagnostics_) {
    if (!out.empty()) out += '\n';
    out += render(d, sources, colour);
  }
  const bool alone = diagnostics_.size() == 1 && !diagnostics_.front().primary.span.known();
  if (diagnostics_.empty() || subject.empty() || alone) return out;
  const int errors = num_errors();
  const int warnings = static_cast<int>(diagnostics_.size()) - errors;
  std::string counts;
  if (errors > 0) counts = counted(errors, "error");
  if (warnings > 0) counts += (errors > 0 ? ", " : "") + counted(warnings, "warning");
  const std::string head = errors > 0 ? "error" : "warning";
  const char* escape = errors > 0 ? "\x1b[1;31m" : "\x1b[1;33m";
  out += '\n';
  out += (colour ? escape + head + "\x1b[0m" : head) + ": " + counts + " in ";
  return out + where(subject) + "\n";
}

std::string Report::where(std::string_view subject) const {
  std::vector<std::string> others;
  bool in_subject = diagnostics_.empty();
  for (const Diagnostic& d : diagnostics_) {
    const std::string& file = d.primary.span.file;
    if (!d.primary.span.known() || sources.is_file(file))
      in_subject = true;
    else if (std::ranges::find(others, file) == others.end())
      others.push_back(file);
  }
  std::string text(in_subject ? subject : "");
  for (const std::string& other : others) text += (text.empty() ? "" : " and ") + other;
  return text;
}

Json Report::json(std::string_view subject) const {
  return Json::object({{"schema", "lockstep.diagnostics/1"},
                       {"subject", subject.empty() ? Json() : Json(where(subject))},
                       {"errors", num_errors()},
                       {"warnings", static_cast<int>(diagnostics_.size()) - num_errors()},
                       {"diagnostics", Json::list(diagnostics_, diagnostic_json)}});
}

}  // namespace lockstep::config
