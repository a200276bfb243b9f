#include "cli/data/run.h"

#include "cli/run_file.h"
#include "lockstep/base/check.h"

namespace lockstep::cli {

std::optional<spec::Spec> load_run_with_data(const Args& args, Output& output, ExitCode& code) {
  config::Report report;
  const auto document = load_run(args, report);
  auto spec = document ? spec::read_spec(*document, report) : std::nullopt;
  if (!spec || !report.ok()) {
    code = fail(output, report, subject_of(args));
    return std::nullopt;
  }
  if (!spec->data.files.empty()) return spec;
  code =
      fail(output,
           Error{Code::kMissingKey,
                 join_parts("`", args.text("FILE"), "` names no data: `data.files` is ", "not set"),
                 "add files = [\"prefix\"] to [data]"});
  return std::nullopt;
}

}  // namespace lockstep::cli
