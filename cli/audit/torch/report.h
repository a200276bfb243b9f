// What `lockstep audit` found, as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/verb.h"
#include "lockstep/audit/explain.h"
#include "lockstep/audit/step.h"

namespace lockstep::cli {

// A number that the framework said, beside the right one; absent: it said none.
struct SaidCheck {
  const char* name = "";
  double said = 0, right = 0, bound = 0;  // the bound is relative
  bool is_of_gradients = false;           // held to the dump's own gradients
  std::vector<audit::Explanation> explained = {};
  double error() const;
  bool is_right() const { return error() <= bound; }
};

struct AuditFindings {
  const audit::Dump& dump;
  const audit::Step& truth;
  std::vector<audit::Compared> tensors;
  std::vector<SaidCheck> said = {};
  std::vector<audit::Explanation> explained = {};
  std::string unexplained = {};  // why nothing was tried; empty: it was

  bool gradients_are_right() const;
  bool is_right() const;
};

void print_audit(const AuditFindings& findings, const Args& args, Output& output);

}  // namespace lockstep::cli
