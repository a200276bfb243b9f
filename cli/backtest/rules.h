// bench/backtest/excluded.toml, as built in.
#pragma once

namespace lockstep::cli {

const char* excluded_toml();

}  // namespace lockstep::cli
