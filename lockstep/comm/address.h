// Addresses of this machine, and plain TCP connections with a deadline. Below c10d, which listens
// on all interfaces, connects without a deadline and takes the interface that the host's name
// happens to mean.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/base/clock.h"

namespace lockstep::comm {

// The numeric address from which this machine reaches `host`; nothing is sent. Throws WorldError
// (LS0505) for a name that does not resolve or a host without a route.
std::string route_to(const std::string& host);

bool is_loopback(const std::string& address);  // of a numeric one

// A listening socket, to be closed by the caller, on `port` (0: any free one) of `host` if that is
// an address of this machine, else on all of its interfaces: behind a mapped address, or where the
// machine's own name means loopback while others know it by another. Throws WorldError (LS0505).
int listen_at(const std::string& host, std::uint16_t port);
std::uint16_t port_of(int socket);
// At which this machine itself reaches it: the numeric address, loopback where it listens
// everywhere.
std::string address_of(int socket);

// A connection, to be closed by the caller, to one who listens already: a refusal is an answer.
// Throws WorldError (LS0505) then, and when there is no answer before the deadline.
int connect_to(const std::string& host, std::uint16_t port, Deadline deadline);

// The same to one who may listen only later: tries until it is accepted, and tells where it waits
// when that takes 2 s. Throws LS0506 soon after `stop` was set.
int await_and_connect(const std::string& host, std::uint16_t port, Deadline deadline,
                      const std::atomic<bool>* stop = nullptr,
                      const std::function<void(const std::string&)>& tell = {});

// Whether the other end of a connection on which nothing was ever said is closed.
bool is_closed(int connection);

}  // namespace lockstep::comm
