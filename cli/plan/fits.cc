#include "cli/plan/fits.h"

#include <ostream>
#include <string>

#include "cli/plan/report.h"
#include "lockstep/planner/layout_of.h"

namespace lockstep::cli {

ExitCode print_fits(const PlanRequest& request, const PlanAnswer& answer, Output& output) {
  const PlanRow* const row = answer.rows.empty() ? nullptr : &answer.rows.front();
  const bool fits = row != nullptr && row->finalist.priced.price.fits;
  const double has = cost::capacity_bytes(request.cluster.device);
  const double needs = row != nullptr ? row->device_bytes() : answer.least_bytes;
  const std::string layout =
      row != nullptr ? to_text(planner::layout_of(row->finalist)) : std::string();
  if (output.json)
    print_json(output, Json::object({{"schema", "lockstep.plan-fits/1"},
                                     {"fits", fits},
                                     {"layout", row != nullptr ? Json(layout) : Json()},
                                     {"device_bytes", needs > 0 ? Json(needs) : Json()},
                                     {"device_has_bytes", has}}));
  else if (row != nullptr)
    output.out << (fits ? "fits: " : "does not fit: ") << gibibytes(needs) << " of "
               << gibibytes(has) << ", " << layout << "\n";
  else
    output.out << "does not fit: "
               << (needs > 0 ? join_parts("every layout needs at least ", gibibytes(needs), " of ",
                                          gibibytes(has),
                                          strf(", %.3g %% of them kept free",
                                               100 * request.question.headroom))
                             : nothing_found(request, answer).message)
               << "\n";
  return fits ? ExitCode::kOk : ExitCode::kCheckFailed;
}

}  // namespace lockstep::cli
