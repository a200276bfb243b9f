#include <cstdio>

#include "lockstep/base/units.h"
#include "lockstep/mesh/mesh.h"

int main() {
  using namespace lockstep;
  const auto mesh = mesh::Mesh::create({.tp = 2, .pp = 2, .dp = 4});
  const auto size = parse_bytes("64 MiB");
  if (!mesh.ok() || !size.ok()) return 1;
  const mesh::Group group = mesh->group(Rank{0}, mesh::Axis::kTensor);
  std::printf("%d ranks, tp group of %d, %s\n", mesh->world(), group.size(),
              to_text(*size).c_str());
  return mesh->world() == 16 && group.size() == 2 ? 0 : 1;
}
