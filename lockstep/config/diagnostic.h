// What is wrong with an input file, shown the way compilers do it: the code, the place, the source
// line with carets under both sides of a contradiction, and what to write instead.
//
// Everything that reads configuration takes a Report and appends to it, so one run names every
// mistake. Plain data; no thread may write a Report while another uses it.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/codes.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep::config {

// A stretch of one line. Lines and columns count from 1; columns and length count code points.
struct Span {
  std::string file;  // name of a source in Sources
  int line = 0;      // 0: nowhere
  int column = 0;
  int length = 0;
  bool known() const { return line > 0; }
  bool operator==(const Span&) const = default;
};

struct Label {
  Label(Span where = {}, std::string words = "")  // NOLINT(google-explicit-constructor)
      : span(std::move(where)), text(std::move(words)) {}

  Span span;
  std::string text;  // written after the carets; may be empty
};

enum class Severity { kError, kWarning };

struct Diagnostic {
  Severity severity = Severity::kError;
  Code code = Code::kBug;
  std::string message;                // as in Error: names the key, the value, the limit
  Label primary = {};                 // drawn with ^^^; its span may be unknown
  std::vector<Label> secondary = {};  // drawn with ---
  std::vector<std::string> notes = {};
  std::string help = {};  // what to write instead; may be empty
};

// No place: the message and the help.
Diagnostic to_diagnostic(const Error& error);

// The texts that spans point into. A source that is no file (an override, an environment variable)
// is shown by its name alone, without line and column.
class Sources {
 public:
  void add(std::string name, std::string text, bool is_file = true);
  // Appends a line to a source that is no file; returns its number.
  int append_line(const std::string& name, std::string_view line);
  void merge(const Sources& other);
  bool is_file(std::string_view name) const;
  // Where a file lies that is called so at `span`: beside the file that names it, if one does.
  std::string beside(const Span& span, const std::string& name) const;
  // Line `number` without its line end; empty when there is none.
  std::string_view line(std::string_view name, int number) const;

 private:
  struct Source {
    std::string text;
    bool is_file = true;
    std::vector<std::size_t> line_starts;
  };
  std::map<std::string, Source, std::less<>> sources_;
};

// "error[LS0203]: ..." down to "= see: lockstep explain LS0203". Ends with a line end. `colour`
// adds ANSI escapes and nothing else.
std::string render(const Diagnostic& diagnostic, const Sources& sources, bool colour);

// All diagnostics of one input, and the texts they point into.
class Report {
 public:
  Sources sources;

  void add(Diagnostic diagnostic);
  void add(const Error& error, Label place = {});
  std::span<const Diagnostic> diagnostics() const { return diagnostics_; }
  int num_errors() const;
  bool ok() const { return num_errors() == 0; }

  // The first error as a plain Error, "run.toml:14:6: " before its message when it has a place;
  // for callers that return a Result. REQUIRES: !ok().
  Error first_error() const;

  // Every diagnostic and the summary "error: 5 errors in run.toml", with blank lines between. No
  // summary without a subject or of a lone diagnostic that points nowhere. Empty when there is
  // nothing to say.
  std::string text(std::string_view subject, bool colour) const;

  // {"schema":"lockstep.diagnostics/1","subject":...,"errors":n,"warnings":n,"diagnostics":[...]}
  Json json(std::string_view subject) const;

 private:
  // The subject, or the sources that are no files, "--set" for one, where all mistakes lie in them.
  std::string where(std::string_view subject) const;

  std::vector<Diagnostic> diagnostics_;
};

}  // namespace lockstep::config
