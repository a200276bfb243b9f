// What a stream of the rehearsal's runtime waits for that other ranks do: collectives whose peers
// have not come. Between the libraries in place of libcudart and libnccl.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace lockstep::rehearsal {

struct Pending {
  std::function<bool()> is_over;
  std::function<void()> wait;  // and does what there is to do
};

extern "C" {
void rehearsal_enqueue(void* stream, const std::shared_ptr<Pending>* one);
void rehearsal_touched(const char* name, const void* in, std::size_t in_bytes, const void* out,
                       std::size_t out_bytes, void* stream);
void rehearsal_refused(const char* why);
}

}  // namespace lockstep::rehearsal
