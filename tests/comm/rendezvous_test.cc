#include "lockstep/comm/rendezvous.h"

#include <gtest/gtest.h>

#include <map>

namespace lockstep::comm {
namespace {

Environment of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

const std::map<std::string, std::string> kGood = {
    {"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29400"}};

TEST(Rendezvous, ReadsWhatTorchrunSets) {
  const auto found = rendezvous_from(of(kGood));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->rank, Rank{3});
  EXPECT_EQ(found->world_size, 8);
  EXPECT_EQ(found->host, "node0");
  EXPECT_EQ(found->port, 29400);
  EXPECT_FALSE(found->agent_hosts_store);
  auto with_agent = kGood;
  with_agent["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_TRUE(rendezvous_from(of(with_agent))->agent_hosts_store);
}

TEST(Rendezvous, NamesTheVariableThatIsWrong) {
  const std::pair<const char*, const char*> wrong[] = {
      {"RANK", "8"},      {"RANK", "-1"},           {"RANK", "3x"},     {"WORLD_SIZE", "0"},
      {"WORLD_SIZE", ""}, {"MASTER_PORT", "70000"}, {"MASTER_ADDR", ""}};
  for (const auto& [name, value] : wrong) {
    auto variables = kGood;
    variables[name] = value;
    const auto found = rendezvous_from(of(variables));
    ASSERT_FALSE(found.ok()) << name << "=" << value;
    EXPECT_EQ(found.error().message.rfind(name, 0), 0u) << found.error().message;
    variables.erase(name);
    EXPECT_FALSE(rendezvous_from(of(variables)).ok()) << name << " missing";
  }
}

}  // namespace
}  // namespace lockstep::comm
