#include "process/frames.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace millrace {
namespace {

Request some_request() {
  Request request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 7;
  request.min_tokens = 2;
  request.choices = 2;
  request.stop_tokens = {9};
  request.sampling = {.temperature = 0.7, .top_k = 40, .dry_breakers = {4, 5}, .mirostat = 2, .bias = {{3, -1.5F}}};
  request.sampling.banned = {6};
  request.sampling.seed = 0xFFFF'0000'1234'5678;
  request.prediction = {8, 8};
  request.logprobs = 4;
  request.tenant = "one";
  request.adapter = "tone";
  request.adapter_strength = 0.5F;
  request.root.bytes[31] = 77;
  request.priority = -3;
  request.targets = {0.25, 0.05};
  request.again = true;
  request.resumed = {{.tokens = {5, 6}, .mu = 3.25, .finished = false}, {.tokens = {7}, .mu = 0, .finished = true}};
  return request;
}

std::vector<Frame> frames() {
  Event told = {.request = 4, .choice = 1, .token = 17, .finish = Finish::length, .cached = 3, .mu = 1.5};
  told.logprobs = Logprobs{.chosen = -0.5F, .top = {{3, -0.1F}, {4, -2}}};
  Event failed = {.request = 5, .finish = Finish::failed};
  failed.error = error(Code::overloaded, "too much");
  ReadyFrame ready{.kv = DType::bf16};
  ready.facts = {
      .limits = {.context = 99}, .pages = 12, .page_tokens = 16, .vocab = 4096, .token_bytes = 2.5, .bytes = 77};
  ready.pages.bytes[0] = 1;
  ready.tokens.bytes[31] = 2;
  AdapterInfo info = {.name = "tone", .path = "/adapters/tone", .strength = 0.5F, .rank = 8, .bytes = 4096};
  info.content.bytes[5] = 9;
  ready.adapters = {info, info};
  ready.files = {{.device = 1, .inode = 2, .size = 3, .links = 4, .written = 5, .changed = 6}};
  AdapterFrame refused{.ticket = 8};
  refused.error = error(Code::not_found, "no such adapter");
  return {SubmitFrame{.id = 4, .tell_admission = true, .request = some_request(), .constraint = "0 -1 0000 {}"},
          CancelFrame{.id = 4, .choice = 1},
          WatchFrame{},
          ready,
          FailedFrame{error(Code::io, "no file")},
          EventsFrame{.admitted = {4, 5}, .events = {told, failed}},
          PagesFrame{{PageState::free, PageState::cached}},
          LoadAdapterFrame{7, {"tone", "/adapters/tone", 0.5F, info.content}},
          LoadAdapterFrame{8, {"other", "/adapters/other", 1, std::nullopt}},
          UnloadAdapterFrame{9, "tone"},
          AdapterFrame{.ticket = 7, .error = std::nullopt, .info = info},
          refused,
          SaveCacheFrame{11},
          ResetCacheFrame{12},
          CacheFrame{.ticket = 11, .error = std::nullopt, .summary = {1, 2, 3, 4}},
          CacheFrame{.ticket = 12, .error = error(Code::io, "full"), .summary = {}}};
}

std::string bytes_of(const Frame& frame) {
  std::string bytes;
  append_frame(frame, bytes);
  return bytes;
}

TEST(Frames, AreReadAsTheyWereWritten) {
  std::string all;
  for (const Frame& frame : frames()) all += bytes_of(frame);
  FrameBuffer buffer;
  std::vector<std::string> seen;
  for (char byte : all) {  // one byte at a time
    buffer.add({&byte, 1});
    for (;;) {
      auto next = buffer.next();
      ASSERT_TRUE(next.ok());
      if (!*next) break;
      auto frame = read_frame(**next);
      ASSERT_TRUE(frame.ok()) << frame.error().message;
      seen.push_back(bytes_of(*frame));
    }
  }
  std::vector<std::string> wanted;
  for (const Frame& frame : frames()) wanted.push_back(bytes_of(frame));
  EXPECT_EQ(seen, wanted);

  auto submit = std::get<SubmitFrame>(read_frame(std::string_view(wanted[0]).substr(4)).value());
  EXPECT_EQ(submit.request.sampling.seed, 0xFFFF'0000'1234'5678);
  EXPECT_EQ(submit.request.resumed[1].finished, true);
  EXPECT_EQ(submit.request.resumed[0].tokens, (std::vector<Token>{5, 6}));
  EXPECT_EQ(submit.request.root.bytes[31], 77);
  EXPECT_EQ(submit.constraint, "0 -1 0000 {}");
  EXPECT_EQ(submit.request.adapter, "tone");
  EXPECT_EQ(submit.request.adapter_strength, 0.5F);
  auto ready = std::get<ReadyFrame>(read_frame(std::string_view(wanted[3]).substr(4)).value());
  ASSERT_EQ(ready.adapters.size(), 2u);
  EXPECT_EQ(ready.adapters[1].path, "/adapters/tone");
  EXPECT_EQ(ready.adapters[1].content.bytes[5], 9);
  ASSERT_EQ(ready.files.size(), 1u);
  EXPECT_EQ(ready.files[0], (FileState{.device = 1, .inode = 2, .size = 3, .links = 0, .written = 5, .changed = 0}));
  EXPECT_EQ(ready.files[0].changed, 6);
  auto load = std::get<LoadAdapterFrame>(read_frame(std::string_view(wanted[7]).substr(4)).value());
  EXPECT_EQ(load.ask.content, ready.adapters[0].content);
}

TEST(Frames, CutOrLengthenedAnywhereAreRefused) {
  for (const Frame& frame : frames()) {
    const std::string whole = bytes_of(frame).substr(4);
    for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(read_frame(whole.substr(0, size)).ok()) << size;
    EXPECT_FALSE(read_frame(whole + '\0').ok());
  }
  EXPECT_FALSE(read_frame("\x63").ok());
}

TEST(Frames, LengthsThatNobodySentTakeNoMemory) {
  FrameBuffer buffer;
  buffer.add(std::string("\xff\xff\xff\xff", 4));
  EXPECT_FALSE(buffer.next().ok());
  // A list of four thousand million tokens in a frame of some bytes.
  std::string frame = bytes_of(SubmitFrame{}).substr(4);
  frame.replace(10, 4, "\xff\xff\xff\xff");
  EXPECT_FALSE(read_frame(frame).ok());
}

TEST(Frames, DamagedAnywhereNeverEndTheProcess) {
  uint32_t read = 0;
  for (uint32_t round = 0; round < 2000; ++round) {
    for (const Frame& frame : frames()) {
      std::string bytes = bytes_of(frame).substr(4);
      for (uint32_t flip = 0; flip < 3; ++flip) {
        const auto at = uniform({.seed = 5, .position = round, .draw = flip}) * static_cast<double>(bytes.size());
        bytes[static_cast<size_t>(at)] = static_cast<char>(round * 31 + flip);
      }
      read += read_frame(bytes).ok();
    }
  }
  EXPECT_GT(read, 0u);
}

}  // namespace
}  // namespace millrace
