#include "lockstep/draw/palette.h"

#include <array>
#include <cmath>

namespace lockstep::draw {
namespace {

struct Paint {
  std::array<int, 3> rgb;
  bool is_dark;
};

constexpr Paint kPaints[kNumInks] = {
    {{0x00, 0x54, 0x8c}, true},   // forward
    {{0xf0, 0xa5, 0x00}, false},  // input gradient
    {{0xa8, 0xdf, 0xc9}, false},  // weight gradient
    {{0xd5, 0x5e, 0x00}, false},  // backward
    {{0xa8, 0x57, 0x8a}, true},   // recompute
    {{0xf0, 0xe4, 0x42}, false},  // gather
    {{0x00, 0x9e, 0x73}, false},  // reduce
    {{0x8a, 0x8a, 0x8a}, false},  // transfer
    {{0x30, 0x30, 0x30}, true},   // update
    {{0xb8, 0xb8, 0xb8}, false},  // other
};
constexpr double kLightest = 0.3;  // share of white in the last chunk

const Paint& paint(Ink ink) { return kPaints[static_cast<std::size_t>(ink)]; }

}  // namespace

std::string colour_of(Ink ink, int chunk, int chunks) {
  const double white = chunks > 1 ? kLightest * chunk / (chunks - 1) : 0;
  std::string text = "#";
  for (const int part : paint(ink).rgb)
    text += strf("%02x", static_cast<int>(std::lround(part + (255 - part) * white)));
  return text;
}

std::string text_colour_on(Ink ink) { return paint(ink).is_dark ? "#fff" : "#000"; }

}  // namespace lockstep::draw
