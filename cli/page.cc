#include "cli/page.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <iterator>
#include <sstream>

#include "cli/page_style.h"
#include "cli/plan/report.h"
#include "cli/table.h"
#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/draw/svg_text.h"

namespace lockstep::cli {
namespace {

using draw::xml_escaped;

// Three digits, also where the last are zeros: columns line up.
std::string three(double value) {
  std::string text = strf("%#.3g", value);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string seconds(double value) {
  const double size = std::abs(value);
  if (size == 0 || size >= 119.5) return to_text(Seconds{value});
  return size >= 0.9995      ? three(value) + " s"
         : size >= 0.9995e-3 ? three(1e3 * value) + " ms"
                             : three(1e6 * value) + " us";
}
std::string scaled(double value) {
  constexpr const char* kPrefixes[] = {"", " k", " M", " G", " T", " P"};
  std::size_t step = 0;
  for (; value >= 999.5 && step + 1 < std::size(kPrefixes); ++step) value /= 1000;
  return three(value) + kPrefixes[step];
}
std::string memory_of(double bytes) { return bytes == 0 ? "0" : gibibytes(bytes); }
std::string bytes_of(double value) { return to_text(Bytes{std::llround(value)}); }
std::string digits(double value) { return strf("%.5g", value); }
// Of seconds since 1970.
std::string date_of(double value) {
  const auto time = static_cast<std::time_t>(value);
  std::tm parts = {};
  ::gmtime_r(&time, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts)};
}
std::string percent(double share) { return strf("%.1f %%", 100 * share); }
std::string percents(double value) { return strf("%.1f %%", value); }
std::string whole(double value) { return with_commas(std::llround(value)); }
std::string plain(double value) { return strf("%.4g", value); }
std::string days(double value) { return value < 999.5 ? three(value) : whole(value); }
std::string bandwidth(double value) { return scaled(value) + "B/s"; }
std::string flops(double value) { return scaled(value) + "FLOP/s"; }

constexpr std::pair<std::string_view, std::string (*)(double)> kNumberForms[] = {
    {"seconds", seconds}, {"scaled", scaled},      {"memory", memory_of},
    {"percent", percent}, {"percents", percents},  {"whole", whole},
    {"plain", plain},     {"days", days},          {"signed", signed_percent},
    {"bytes", bytes_of},  {"digits", digits},      {"date", date_of},
    {"flops", flops},     {"bandwidth", bandwidth}};

const auto* form_of(std::string_view name) {
  return std::ranges::find(kNumberForms, name, [](const auto& row) { return row.first; });
}
bool is_number(std::string_view form) { return form_of(form) != std::end(kNumberForms); }

// The first two words of a text.
std::pair<std::string, std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::pair<std::string, std::string> words;
  in >> words.first >> words.second;
  return words;
}

}  // namespace

std::string HtmlPage::filled(std::string_view words) const {
  std::string out;
  for (std::size_t open; (open = words.find('{')) != words.npos;) {
    out += words.substr(0, open);
    const std::size_t close = words.find('}', open);
    const std::string_view tag = words.substr(open + 1, close - open - 1);
    words.remove_prefix(close + 1);
    if (tag[0] == '?')
      out += filled(branch(words, is_true(std::string(tag.substr(1)))));
    else
      out += made(tag);
  }
  return out += words;
}

bool HtmlPage::is_true(const std::string& path) const {
  const Json* found = find(path);
  return found != nullptr && (!found->is_bool() || found->as_bool());
}

// One side of a question, of which all is taken from the words.
std::string_view HtmlPage::branch(std::string_view& words, bool is_first) {
  std::size_t at = 0, middle = words.npos;
  for (int depth = 1; depth > 0; ++at) {
    at = words.find('{', at);
    depth += words[at + 1] == '?' ? 1 : words[at + 1] == '/' ? -1 : 0;
    if (depth == 1 && words[at + 1] == ':') middle = at;
  }
  const std::string_view all = words.substr(0, at - 1);
  words.remove_prefix(all.size() + 3);
  if (middle == words.npos) return is_first ? all : "";
  return is_first ? all.substr(0, middle) : all.substr(middle + 3);
}

std::string HtmlPage::made(std::string_view tag) const {
  if (tag[0] == '#') return listing(tag.substr(1));
  if (tag == "!head") return std::string(kPageHead);
  if (tag == "!style") return std::string(kPageStyle);
  if (tag[0] == '!') return drawn(tag.substr(1));
  const auto [path, form] = words_of(tag);
  return cell(path, form.empty() ? "span" : form);
}

const Json* HtmlPage::find(const std::string& path) const {
  const Json* found = &data_;
  for (const std::string_view part : split(path, '.')) {
    const std::size_t index = found->is_array() ? *number_in<std::size_t>(part) : 0;
    if (!found->is_array())
      found = found->find(part);
    else
      found = index < found->items().size() ? &found->items()[index] : nullptr;
    if (found == nullptr || found->is_null()) return nullptr;
  }
  return found;
}
const Json& HtmlPage::at(const std::string& path) const {
  const Json* found = find(path);
  LS_CHECK(found != nullptr, "there is no ", path);
  return *found;
}
std::string HtmlPage::cell(const std::string& path, const std::string& form) const {
  const auto* const known = form_of(form);
  const bool is_real = known != std::end(kNumberForms);
  const Json* value = find(path);
  if (value == nullptr) return is_real ? "-" : "";
  if (value->is_bool()) return value->as_bool() ? "yes" : "no";
  if (value->is_object())
    return cell(path + ".value", form) +
           (at(path + ".origin").as_text() == "published"
                ? ""
                : " <small>" + cell(path + ".origin", "span") + "</small>");
  if (!is_real && form == "raw") return xml_escaped(value->as_text());
  const std::string where = join_parts("data-json=\"", path, "\">");
  if (is_real && !value->is_text())  // what is not finite is a text
    return join_parts("<data value=\"", value->dump(), "\" ", where,
                      known->second(value->as_real()), "</data>");
  if (is_real) return cell(path, "span");
  return join_parts("<", form, " ", where, xml_escaped(value->as_text()), "</", form, ">");
}

std::vector<HtmlPage::Group> HtmlPage::groups(const std::string& list) const {
  std::vector<Group> all;
  for (std::size_t i = 0; i < count(list); ++i) all.emplace_back(i, i);
  return all;
}

std::string HtmlPage::path_in(const std::string& list, std::size_t i, const std::string& path) {
  const std::size_t star = path.find('*');
  return star == path.npos ? join_parts(list, ".", i, ".", path)
                           : join_parts(path.substr(0, star), i, path.substr(star + 1));
}
std::string HtmlPage::cell(const std::string& list, const Group& group, const std::string& path,
                           const std::string& form) const {
  std::string first = cell(path_in(list, group.first, path), form);
  if (path != "pipeline_rank" || group.first == group.second) return first;
  return first + " to " + cell(path_in(list, group.second, path), form);
}

std::string HtmlPage::listing(std::string_view tag) const {
  const std::size_t bar = tag.find('|');
  const auto [list, name] = words_of(tag.substr(0, bar));
  const std::vector<Group> items = groups(list);
  std::string head, body;
  std::vector<std::string> rows(items.size());
  for (const std::string_view column : split(tag.substr(bar + 1), '|')) {
    const std::size_t is = column.find('=');
    std::string title(column.substr(1, is - 1));
    auto [path, form] = words_of(column.substr(is + 1));
    const std::string side = is_number(form) ? " class=\"n\"" : "";
    if (form.empty()) form = path.ends_with("name") || path == "winner" ? "code" : "span";
    if (title.starts_with('?') && find(path_in(list, 0, path)) == nullptr) continue;
    if (title.starts_with('?')) title.erase(0, 1);
    head += join_parts("<th", side, ">", title, "</th>");
    for (std::size_t i = 0; i < items.size(); ++i)
      rows[i] += join_parts("<td", side, " data-label=\"", title, "\"><span>",
                            cell(list, items[i], path, form), "</span></td>");
  }
  for (const std::string& row : rows) body += join_parts("<tr>", row, "</tr>\n");
  return join_parts("<table class=\"", name, "\"><thead><tr>", head, "</tr></thead>\n<tbody>", body,
                    "</tbody></table>\n");
}

}  // namespace lockstep::cli
