#include "lockstep/base/units.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <span>

#include "lockstep/base/text.h"

namespace lockstep {
namespace {

struct Multiple {
  std::string_view name;
  double factor;
};

// Three significant digits without trailing zeros: 64, 1.5, 2.52.
std::string short_number(double x) {
  std::string text = strf(x >= 99.95 ? "%.0f" : x >= 9.995 ? "%.1f" : "%.2f", x);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

std::string scaled(double x, std::span<const Multiple> multiples) {
  const Multiple* chosen = &multiples[0];
  for (const Multiple& m : multiples)
    if (std::abs(x) >= m.factor) chosen = &m;
  const std::string sign = x < 0 ? "-" : "";
  return sign + short_number(std::abs(x) / chosen->factor) + " " + std::string(chosen->name);
}

}  // namespace

std::string to_text(Bytes bytes) {
  static constexpr Multiple kMultiples[] = {{"B", 1},        {"KiB", 0x1p10}, {"MiB", 0x1p20},
                                            {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"PiB", 0x1p50}};
  return scaled(static_cast<double>(bytes.value), kMultiples);
}

std::string to_text(Seconds seconds) {
  static constexpr Multiple kMultiples[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
  const double s = seconds.value;
  if (s == 0) return "0 s";
  if (std::abs(s) < 120) return scaled(s, kMultiples);
  if (const auto whole = std::llround(s); whole < 7200)
    return whole % 60 == 0 ? strf("%lld min", whole / 60)
                           : strf("%lld min %lld s", whole / 60, whole % 60);
  const auto minutes = std::llround(s / 60);
  if (minutes < 60 * 48) return strf("%lld h %lld min", minutes / 60, minutes % 60);
  return strf("%.1f days", s / 86400);
}

Result<Bytes> parse_bytes(std::string_view text) {
  static constexpr Multiple kMultiples[] = {
      {"", 1},      {"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  const auto refuse = [&](const std::string& why) {
    return Error{
        Code::kBadOptionValue, "size '" + std::string(text) + "' " + why,
        "write a number of bytes, or a number with kB MB GB TB (powers of 1000) or KiB MiB GiB TiB "
        "(powers of 1024), for example 64MiB"};
  };
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc()) return refuse("is not a number of bytes");
  std::string_view unit(end, text.data() + text.size() - end);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const Multiple& m : kMultiples) {
    if (m.name != unit) continue;
    const double bytes = number * m.factor;
    if (!(bytes >= 0)) return refuse("is negative");
    if (bytes >= 0x1p63) return refuse("is too large");
    if (bytes != std::floor(bytes)) return refuse("is not a whole number of bytes");
    return Bytes{static_cast<std::int64_t>(bytes)};
  }
  return refuse("has an unknown unit '" + std::string(unit) + "'");
}

Result<double> parse_amount(std::string_view text, Suffixes suffixes) {
  const bool binary = suffixes == Suffixes::kBinary;
  const auto refuse = [&](const char* why) {
    return Error{Code::kBadOptionValue, "`" + std::string(text) + "` " + why,
                 binary                           ? "write 8192 or 8k (k is 1024, M its square)"
                 : suffixes == Suffixes::kMoney   ? "write 2.5, $2.5 or $1.5M (k, M, B or G, T)"
                 : suffixes == Suffixes::kDecimal ? "write 1.5e12 or 1.5T (k, M, B or G, T)"
                                                  : "write a number"};
  };
  const std::size_t begin = suffixes == Suffixes::kMoney && text.starts_with('$') ? 1 : 0;
  const std::size_t end = std::min(text.find_last_of("0123456789.") + 1, text.size());
  const std::string digits(text.substr(begin, std::max(begin, end) - begin));
  const auto number = number_in<double>(digits);
  if (!number) return refuse("is no number");
  std::string_view suffix = text.substr(end);
  if (suffix.starts_with(' ')) suffix.remove_prefix(1);
  if (suffix.empty()) return *number;
  // Powers of a thousand and their letters; a decimal one is read with the digits, rounded once.
  constexpr std::string_view kPowers = "kmgt";
  const auto letter = static_cast<char>(std::tolower(static_cast<unsigned char>(suffix[0])));
  const std::size_t power = kPowers.substr(0, binary ? 2 : 4).find(letter == 'b' ? 'g' : letter);
  if (suffix.size() > 1 || power == std::string_view::npos || suffixes == Suffixes::kNone)
    return refuse("ends in what is no suffix here");
  if (digits.find_first_of("eE") != digits.npos) return refuse("has an exponent and a suffix");
  if (binary) return std::ldexp(*number, 10 * static_cast<int>(power + 1));
  return number_in<double>(strf("%se%zu", digits.c_str(), 3 * (power + 1))).value();
}

std::string with_commas(std::int64_t number) {
  std::string digits = std::to_string(number);
  const std::size_t first = number < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) digits.insert(i -= 3, 1, ',');
  return digits;
}

std::string counted(std::int64_t number, const std::string& noun) {
  const char* ending = number == 1 ? "" : noun.ends_with('s') || noun.ends_with('h') ? "es" : "s";
  return with_commas(number) + " " + noun + ending;
}

std::string shortest(double number) {
  std::array<char, 32> digits;
  std::string text(digits.data(),
                   std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
  const std::size_t sign = text.find_first_of("+-", std::min(text.find('e'), text.size()));
  if (sign != std::string::npos && text[sign + 1] == '0') text.erase(sign + 1, 1);
  return text;
}

std::string strf(const char* format, ...) {
  std::va_list args;
  va_start(args, format);
  std::va_list again;
  va_copy(again, args);
  const int length = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string text(length, '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  return text;
}

}  // namespace lockstep
