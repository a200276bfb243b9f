#include "lockstep/doctor/engine_check.h"

#include <exception>
#include <fstream>
#include <future>
#include <set>

#include "lockstep/comm/backends/backends.h"
#include "lockstep/comm/c10d/store.h"
#include "lockstep/tensor/strict_kernels.h"
#include "lockstep/tensor/torch_version.h"

namespace lockstep::doctor {
namespace {

using Verdict = Finding::Verdict;

std::set<std::string> loaded_libraries(const std::string& part) {
  std::set<std::string> paths;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto slash = line.find('/');
    if (slash != std::string::npos && line.find(part, slash) != std::string::npos)
      paths.insert(line.substr(slash));
  }
  return paths;
}

Finding check_openmp() {
  const auto found = loaded_libraries("libgomp");
  if (found.size() == 1) return {Verdict::kGood, "OpenMP", "one runtime is loaded, torch's own"};
  std::string list;
  for (const std::string& path : found) list += (list.empty() ? "" : ", ") + path;
  return {Verdict::kProblem, "OpenMP",
          std::to_string(found.size()) + " runtimes are loaded: " + list,
          "two OpenMP runtimes in one process compete for the cores; unset LD_PRELOAD and "
          "LD_LIBRARY_PATH"};
}

Finding check_strict() {
  const tensor::StrictReport report = tensor::test_strict_kernels();
  if (report.holds())
    return {Verdict::kGood, "strict kernels",
            "they hold: layouts that promise equal bits can keep it"};
  return {Verdict::kNote, "strict kernels",
          std::string("they do not hold here (f32 ") + (report.holds_f32 ? "yes" : "no") +
              ", f64 " + (report.holds_f64 ? "yes" : "no") + ", MKL_CBWR=" + report.setting +
              "): results of different layouts are close, not equal",
          "unset MKL_CBWR; on CPUs where MKL has no strict mode there is nothing to do"};
}

// Two endpoints in one process add two numbers over loopback.
void try_backend(const comm::Backend& backend) {
  const Deadline deadline = Deadline::after(Seconds{10});
  const auto store = comm::Store::host("127.0.0.1", 0);
  const auto run = [&](int rank) {
    const comm::Rendezvous meeting{Rank{rank}, 2, "127.0.0.1", store->port(),
                                   /*agent_hosts_store=*/true};
    const auto world = backend.join(meeting, deadline, {});
    const auto group = world->connect_all("doctor", "doctor", deadline);
    auto sum = static_cast<float>(rank + 1);
    group->all_reduce({&sum, 1, DType::kF32, {}}, deadline).wait();
    return sum;
  };
  std::future<float> first = std::async(std::launch::async, run, 0);
  std::future<float> second = std::async(std::launch::async, run, 1);
  if (first.get() != 3.0f || second.get() != 3.0f)
    throw std::runtime_error("1 + 2 gave something else");
}

Finding check_backend(const comm::Backend& backend) {
  const std::string name(backend.name);
  if (const auto can = backend.check(); !can.ok())
    return {Verdict::kNote, name, "the row is built; " + can.error().message, can.error().help};
  if (backend.device != DeviceKind::kCpu)
    return {
        Verdict::kNote, name,
        "the row is built and finds devices; it has been compiled and linked, never run on a GPU"};
  try {
    try_backend(backend);
    return {Verdict::kGood, name, "an all_reduce over loopback works"};
  } catch (const std::exception& error) {
    return {Verdict::kProblem, name,
            std::string("an all_reduce over loopback failed: ") + error.what(),
            "check that TCP connections to 127.0.0.1 are allowed"};
  }
}

}  // namespace

std::vector<Finding> check_engine() {
  std::vector<Finding> findings;
  const auto libraries = loaded_libraries("libtorch_cpu");
  findings.push_back({Verdict::kGood, "LibTorch",
                      tensor::torch_version() + ", loaded from " +
                          (libraries.empty() ? "?" : *libraries.begin())});
  findings.push_back(check_openmp());
  findings.push_back(check_strict());
  for (const comm::Backend& backend : comm::backends()) findings.push_back(check_backend(backend));
  if (comm::backend_for(DeviceKind::kCuda) == nullptr)
    findings.push_back({Verdict::kNote, "CUDA", "this build has no backend for GPUs",
                        "build the preset `cuda` for one"});
  return findings;
}

}  // namespace lockstep::doctor
