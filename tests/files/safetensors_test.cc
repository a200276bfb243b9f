#include "lockstep/files/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "lockstep/base/error.h"
#include "tests/support/golden.h"

namespace lockstep::files {
namespace {

std::string fresh(const std::string& name) {
  std::string path = testing::TempDir() + "safetensors-" + name;
  std::remove(path.c_str());
  return path;
}

std::string bytes_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A file of this header and this many bytes of data.
std::string file_of(std::string header, std::size_t data, std::int64_t lie = 0) {
  const std::uint64_t length = header.size() + static_cast<std::uint64_t>(lie);
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data, 'x');
}

std::string trouble(const std::string& file) {
  const auto read = Safetensors::parse(as_byte_span(file), "f");
  if (read.ok()) return "";
  EXPECT_EQ(read.error().code, Code::kBadSafetensors);
  return read.error().message;
}

TEST(Safetensors, WritesTheBytesThatOthersWrite) {
  const std::string path = fresh("golden");
  SafetensorsWriter writer(real_disk(), path, {{"a", ElementType::kF32, {1}}}, {}, kLeastAlign);
  const float one = 1;
  writer.write(std::as_bytes(std::span(&one, 1)));
  writer.finish();
  EXPECT_EQ(bytes_in(path), std::string("\x38\0\0\0\0\0\0\0", 8) +
                                R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  )" +
                                std::string("\0\0\x80\x3f", 4));
}

TEST(Safetensors, ReadsWhatItWroteInCanonicalOrder) {
  const std::string path = fresh("again");
  SafetensorsWriter writer(real_disk(), path,
                           {{"z", ElementType::kBF16, {2, 3}},
                            {"b", ElementType::kF32, {}},
                            {"none", ElementType::kF32, {4, 0}},
                            {"a\"\n", ElementType::kF32, {2}}},
                           {{"format", "pt"}}, kPageAlign);
  std::string data;
  for (int i = 0; i < 24; ++i) data += static_cast<char>(i);
  writer.write(as_byte_span(data).first(5));
  writer.write(as_byte_span(data).subspan(5));
  writer.finish();
  EXPECT_EQ(std::int64_t(bytes_in(path).size()), writer.file_bytes());

  const auto read = Safetensors::open(path);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->data_begin(), kPageAlign);
  EXPECT_EQ(read->metadata(), (Metadata{{"format", "pt"}}));
  ASSERT_EQ(read->entries().size(), 4u);
  const char* const names[] = {"a\"\n", "b", "none", "z"};
  const std::size_t begins[] = {0, 8, 12, 12}, sizes[] = {8, 4, 0, 12};
  for (std::size_t i = 0; i < 4; ++i) {
    const TensorEntry* const entry = read->find(names[i]);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry, &read->entries()[i]);
    EXPECT_EQ(entry->info, writer.order()[i]);
    ASSERT_EQ(entry->bytes.size(), sizes[i]);
    EXPECT_EQ(std::memcmp(entry->bytes.data(), data.data() + begins[i], sizes[i]), 0);
  }
  EXPECT_EQ(read->find("c"), nullptr);
}

// python.safetensors was made by version 0.8.0 of the format's own Python package; we write the
// same bytes.
TEST(Safetensors, IsTheFormatOfItsPythonPackage) {
  const std::string made = support::source_dir() + "/tests/golden/files/python.safetensors";
  const auto read = Safetensors::open(made);
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->entries().size(), 10u);
  double scalar = 0;
  std::memcpy(&scalar, read->find("scalar")->bytes.data(), sizeof scalar);
  EXPECT_EQ(scalar, 2.5);
  const std::string path = fresh("python");
  std::vector<TensorInfo> infos;
  for (const TensorEntry& entry : read->entries()) infos.insert(infos.begin(), entry.info);
  SafetensorsWriter writer(real_disk(), path, std::move(infos), read->metadata(), kLeastAlign);
  for (const TensorInfo& info : writer.order()) writer.write(read->find(info.name)->bytes);
  writer.finish();
  EXPECT_EQ(bytes_in(path), bytes_in(made));
}

TEST(Safetensors, RefusesEveryLieOfAHeader) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                           R"("b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";
  EXPECT_EQ(trouble(file_of(good, 9)), "");
  EXPECT_EQ(trouble(file_of("{}", 0)), "");
  const auto with = [&](std::string_view part, std::string_view instead) {
    std::string text = good;
    text.replace(text.find(part), part.size(), instead);
    return trouble(file_of(text, 9));
  };
  const auto says = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(trouble(""), "0 bytes");
  says(trouble(file_of(good, 9, 10)), "only 114 follow");
  says(trouble(file_of(good, 9, std::int64_t{1} << 40)), "at most 16777216");
  says(trouble(file_of(good, 9, -std::int64_t(good.size()) - 1)), "at most 16777216");
  says(trouble(file_of(" " + good, 9)), "does not begin with `{`");
  says(trouble(file_of(good, 8)), "the data ends at byte 9, but the file has 8");
  says(trouble(file_of(good, 10)), "the data ends at byte 9, but the file has 10");
  says(with("\"b\"", "\"a\""), "appears twice");
  says(with("\"b\"", "\"\xff\""), "no JSON");
  says(with("[8,9]", "[9,10]"), "`b` begins at byte 9 of the data, where 8 is due");
  says(with("[8,9]", "[7,8]"), "belong to two tensors");
  says(with("[8,9]", "[9,8]"), "`b` is said to lie in bytes [9, 8)");
  says(with("[8,9]", "[8]"), "data_offsets of two");
  says(with("[8,9]", "[8,-9]"), "data_offsets of two");
  says(with("[8,9]", "[8,9.0]"), "data_offsets of two");
  says(with("[8,9]", "[8,18446744073709551615]"), "does not fit into 64");
  says(with("[2]", "[3]"), "take 12");
  says(with("[2]", "[-2]"), "no shape");
  says(with("[2]", "[4294967296,4294967296]"), "does not fit into 63 bits");
  says(with("[2]", "2"), "no shape");
  says(with("F32", "F33"), "unknown dtype `F33`");
  says(with("\"F32\"", "32"), "no dtype");
  says(with("\"shape\":[2]", "\"shape\":[2],\"x\":1"), "unknown key `x`");
  says(with("{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[8,9]}", "[]"), "not an object");
  says(with("{\"a\"", "{\"__metadata__\":[],\"a\""), "not an object");
  says(with("{\"a\"", "{\"__metadata__\":{\"x\":1},\"a\""), "__metadata__.x is not text");
  says(trouble(file_of(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1)),
       "whole byte");
  says(trouble(file_of(R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,1]}})", 1)), "take 2");
}

TEST(Safetensors, EveryTypeHasItsNameAndSize) {
  for (int i = 0; i <= static_cast<int>(ElementType::kU64); ++i) {
    const auto type = static_cast<ElementType>(i);
    EXPECT_EQ(parse_element_type(to_text(type)), type);
    if (const auto dtype = dtype_of(type)) {
      EXPECT_EQ(element_type(*dtype), type);
      EXPECT_EQ(bits_of(type), static_cast<std::int64_t>(8 * size_of(*dtype)));
    }
  }
  for (const DType dtype : kAllDTypes) EXPECT_EQ(dtype_of(element_type(dtype)), dtype);
}

}  // namespace
}  // namespace lockstep::files
