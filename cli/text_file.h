// Whole files, and directories of them, that a verb reads or writes because it was told their
// names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/result.h"

namespace lockstep::cli {

// kFileUnreadable, with the reason; also for a file of more than 256 MiB.
Result<std::string> read_text(const std::string& name);

// Replaces what the file held: readers, and whoever looks after an interruption, find the old bytes
// or the new ones, never a part. kUnsuitableEnvironment, with the reason.
Result<void> write_text(const std::string& name, const std::string& text);

// The file itself, or of a directory those in it whose names end with `suffix`, sorted.
// kFileUnreadable, with the reason, also when a directory has none.
Result<std::vector<std::string>> files_at(const std::string& name, std::string_view suffix);

// With those above it; it may be there already. kUnsuitableEnvironment, with the reason.
Result<void> make_directory(const std::string& name);

// Whether write_text can, to be asked before long work whose result would be lost. Changes nothing.
Result<void> check_writable(const std::string& name);

}  // namespace lockstep::cli
