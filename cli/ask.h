// The verbs that compute and print, as one function from JSON to JSON: what the Python package and
// the page in a browser call. What may be asked, and how a value is checked, is in the verb's own
// table; what is answered is the object that the verb prints with --json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/verb.h"
#include "lockstep/base/json.h"

namespace lockstep::cli {

// plan, simulate, model, cluster and backtest. Built once; any thread may read it.
const std::vector<Verb>& askable();

// {"verb": "plan", "model": "llama3-70b", "global_batch": 256, "what_if": ["network=2x"]}: the
// options of the verb by their names with `_` for `-`, its arguments by theirs in small letters. A
// flag is true or false, what may be repeated also a list, and null is as if it were not there.
// What would be written into a file is answered under its name; files are read, nothing is written.
//
//   {"exit_code": 0, "answer": {"schema": "lockstep.plan/2", ...}, "files": {"memory.svg": "<svg"},
//    "notes": "..."}
//
// Where the verb refuses, "answer" is null and "refusal" "lockstep.diagnostics/1". `notes` is what
// else the verb says, of an answer. Never throws; any number of threads at once.
Json ask(const Json& request);

// The same on text; what is no JSON is refused.
std::string ask_text(std::string_view request);

}  // namespace lockstep::cli
