#include "cli/plan/layout_words.h"

#include <algorithm>
#include <vector>

#include "lockstep/base/text.h"
#include "lockstep/base/units.h"

namespace lockstep::cli {
namespace {

// What commas and spaces separate; the axes of an order belong to it.
std::vector<std::string> layout_words(std::string text) {
  std::ranges::replace(text, ',', ' ');
  std::vector<std::string> words;
  for (const std::string_view word : split(text, ' ')) {
    if (word.empty()) continue;
    const bool is_axis = word == "tp" || word == "cp" || word == "pp" || word == "dp";
    if (is_axis && !words.empty() && words.back().starts_with("order="))
      words.back() += join_parts(",", word);
    else
      words.emplace_back(word);
  }
  return words;
}

}  // namespace

Result<LayoutWords> parse_own(const std::string& text, const std::string& where) {
  LayoutWords read;
  for (std::string& word : layout_words(text)) {
    const std::size_t is = word.find('=');
    const std::string key = word.substr(0, is);
    if (key == "microbatch") {
      read.names_microbatch = true;
      read.own.microbatch =
          number_in<std::int64_t>(word.substr(std::min(is, word.size() - 1) + 1)).value_or(0);
      if (read.own.microbatch < 1)
        return Error{Code::kOutOfRange, join_parts("`", word, "` in ", where, " is no number"),
                     "the nearest: microbatch=1"};
      continue;
    }
    if (key == "schedule") word = word.substr(is + 1);
    if (is != std::string::npos && key != "cp_comm_type" && key != "recompute" && key != "order" &&
        key != "layers" && key != "schedule")
      word.erase(is, 1);
    read.has_dp = read.has_dp || word.starts_with("dp");
    read.words += word + " ";
  }
  read.own.layout = LS_TRY(spec::parse_layout(read.words));
  return read;
}

bool LayoutWords::says(const std::string& begin) const {
  return words.find(" " + begin) != std::string::npos;
}

}  // namespace lockstep::cli
