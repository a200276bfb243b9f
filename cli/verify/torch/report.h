// What `lockstep verify` tells about its verdicts: as lines and tables, as JSON, as Markdown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/verb.h"
#include "cli/verify/request.h"
#include "lockstep/base/clock.h"
#include "lockstep/verify/verify.h"

namespace lockstep::cli {

class VerifyReport {
 public:
  enum class Form : std::uint8_t { kText, kJson, kMarkdown };

  struct Style {
    Form form = Form::kText;
    bool every_layout = false;  // a line for each, not only for those that failed
  };
  struct Circumstances {
    std::string ranks_are;  // "threads"
    bool strict = true;     // bits are compared
  };

  // The request must outlive it.
  VerifyReport(const VerifyRequest& request, Circumstances around, Style style, Output& output);

  void begin(const model::Model& model) const;  // what will be done; the number of layouts first
  // Shown on a terminal; elsewhere only twice a minute, as a sign of life.
  void running(const spec::Layout& layout);
  void add(verify::Verdict verdict);
  void conclude(Seconds time);

  int failed() const;

 private:
  void print_row(const char* label, const std::string& text) const;
  void print_line(const verify::Verdict& verdict) const;
  void print_factors() const;
  void print_summary(Seconds time) const;
  void print_markdown() const;
  Json json(Seconds time) const;

  std::string heading() const;
  int num_classes() const;
  const verify::Verdict& worst() const;  // REQUIRES: a verdict
  double largest(double verify::Verdict::* error) const;
  void clear_line() const;

  const VerifyRequest& request_;
  const Circumstances around_;
  const Style style_;
  Output& output_;
  std::vector<verify::Verdict> verdicts_;
  RealClock clock_;
  Seconds told_;  // when `running` last wrote something that is no terminal's
};

}  // namespace lockstep::cli
