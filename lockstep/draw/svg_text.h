// Text of an SVG file: escaping, numbers, and how wide words will be in a font nobody knows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::draw {

// For text and attributes. What XML cannot hold becomes U+FFFD: control characters, and bytes that
// are not UTF-8.
std::string xml_escaped(std::string_view text);

// At most two digits after the point: "12", "12.5".
std::string svg_number(double number);

// Elements, each on a line; `more` are further attributes. A text is escaped, `y` is its baseline.
std::string svg_text(double x, double y, double size, std::string_view text,
                     const std::string& more = "");
// A text in lines of at most that width, each `line` below the one before; moves `y` along.
std::string svg_paragraph(double x, double& y, double size, double line, std::string_view text,
                          double width, const std::string& more = "");
std::string svg_rect(double x, double y, double width, double height, const std::string& more);

// A picture that stands alone: `head` is what follows its title, then come a white ground and
// `body`.
std::string svg_document(double width, double height, std::string_view title,
                         const std::string& head, const std::string& body);

// At least as wide as any usual sans-serif font sets it, in the unit of `size`.
double text_width(std::string_view text, double size);

// Words on lines of at most that width; a longer word stands alone and is broken.
std::vector<std::string> wrapped(std::string_view text, double size, double width);

}  // namespace lockstep::draw
