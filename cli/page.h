// A page of HTML that needs nothing else, to be read, printed and handed on: words with places in
// them, which what a JSON value says fills in.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep::cli {

// Every number and every text of the user stands in an element whose `data-json` is its path, such
// as "plans.0.step_s.total"; of a number `value` has all digits.
//
// Braces in the words hold paths, and what is made of them:
//   {path form}           a number in that form, "-" where there is none
//   {path}, {path code}   a text in <span> or in that element; {path raw}: in none
//   {?path}...{:}...{/}   the first where the path is there and not false, else the second
//   {#list class | title=path form | ...}
//                         a table with a row for each of the list. Paths are inside that, or, with
//                         a star for its index, in the value. A column whose title begins with "?"
//                         is left out where the first row has no such path
//   {!head}               how all pages begin
//   {!style}              and how they look: wide, narrow, dark and on paper
//   {!part}               what drawn() makes of that name
class HtmlPage {
 public:
  explicit HtmlPage(const Json& data) : data_(data) {}  // which outlives it
  virtual ~HtmlPage() = default;

  std::string filled(std::string_view words) const;

 protected:
  using Group = std::pair<std::size_t, std::size_t>;  // the first and the last of a list

  virtual std::string drawn(std::string_view part) const = 0;
  // Items of a list that share a row: each has its own.
  virtual std::vector<Group> groups(const std::string& list) const;

  const Json* find(const std::string& path) const;
  const Json& at(const std::string& path) const;
  double real(const std::string& path) const { return at(path).as_real(); }
  std::size_t count(const std::string& path) const { return at(path).items().size(); }

  // A number in a form, with its origin where that is not the vendor; or a text in an element.
  std::string cell(const std::string& path, const std::string& form) const;
  std::string cell(const std::string& list, const Group& group, const std::string& path,
                   const std::string& form) const;
  static std::string path_in(const std::string& list, std::size_t i, const std::string& path);

 private:
  bool is_true(const std::string& path) const;
  static std::string_view branch(std::string_view& words, bool is_first);
  std::string made(std::string_view tag) const;
  std::string listing(std::string_view tag) const;

  const Json& data_;
};

}  // namespace lockstep::cli
