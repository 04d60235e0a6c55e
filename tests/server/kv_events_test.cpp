// What routers are told of the cache: vLLM's frames, read here by a reader of its own, with gaps that are replayed.
#include "server/kv_events.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>

#include "server/rig.h"

#if MILLRACE_ZMQ
#include <zmq.h>
#endif

namespace millrace {
namespace {

// MessagePack as JSON, as much of it as comes here. Numbers beyond an int64 are not expected of anything but hashes,
// which come as text.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  bool at_end() const { return rest_.empty(); }
  Json value() {
    const uint8_t kind = static_cast<uint8_t>(take(1)[0]);
    if (kind < 0x80) return Json(static_cast<int64_t>(kind));
    if (kind >= 0x90 && kind < 0xA0) return list(kind - 0x90U);
    if (kind >= 0xA0 && kind < 0xC0) return Json(std::string(take(kind - 0xA0U)));
    switch (kind) {
      case 0xC0:
        return Json(nullptr);
      case 0xCB:
        return Json(std::bit_cast<double>(number(8)));
      case 0xCC:
        return Json(static_cast<int64_t>(number(1)));
      case 0xCD:
        return Json(static_cast<int64_t>(number(2)));
      case 0xCE:
        return Json(static_cast<int64_t>(number(4)));
      case 0xCF:
        return Json(fmt::format("{}", number(8)));
      case 0xDC:
        return list(number(2));
      case 0xDD:
        return list(number(4));
      default:
        ADD_FAILURE() << "a byte " << int{kind};
        return Json();
    }
  }

 private:
  std::string_view take(size_t count) {
    EXPECT_LE(count, rest_.size());
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(std::min(count, rest_.size()));
    return taken.empty() ? std::string_view("\xC1", 1) : taken;
  }
  uint64_t number(size_t bytes) {
    uint64_t value = 0;
    for (char c : take(bytes)) value = value << 8 | static_cast<uint8_t>(c);
    return value;
  }
  Json list(uint64_t count) {
    JsonArray made;
    for (uint64_t i = 0; i < count; ++i) made.push_back(value());
    return made;
  }
  std::string_view rest_;
};

Json read(const std::string& batch) {
  Reader reader(batch);
  Json json = reader.value();
  EXPECT_TRUE(reader.at_end());
  return json;
}

CacheChange stored(uint64_t node, uint64_t parent, Token token, bool away = false) {
  return {.away = away, .node = node, .parent = parent, .tokens = {token, token}};
}
CacheChange removed(uint64_t node) { return {.kind = CacheChange::Kind::removed, .node = node}; }

TEST(KvBatch, HasTheFieldsInTheirPlaces) {
  constexpr uint64_t kBig = 0xF000000000000001;
  const Json json = read(kv_batch(2.5,
                                  {stored(5, 0, 1),
                                   stored(6, 5, 300),
                                   stored(7, 5, 70000),
                                   stored(kBig, 7, 2, true),
                                   removed(7),
                                   removed(6),
                                   {.kind = CacheChange::Kind::cleared}},
                                  2));
  EXPECT_EQ(to_text(json), R"([2.5E0,[["BlockStored",[5,6],null,[1,1,300,300],2,null,"GPU",null,null],)"
                           R"(["BlockStored",[7],5,[70000,70000],2,null,"GPU",null,null],)"
                           R"(["BlockStored",["17293822569102704641"],7,[2,2],2,null,"CPU",null,null],)"
                           R"(["BlockRemoved",[7,6],"GPU"],["AllBlocksCleared"]],null])");
}

TEST(KvBatch, LongListsAreRead) {
  std::vector<CacheChange> changes;
  for (uint64_t i = 1; i <= 70'000; ++i) changes.push_back(stored(i, i - 1, 9));
  const Json json = read(kv_batch(1, changes, 2));
  EXPECT_EQ(testing::at(json, 1, 0, 1).as_array().size(), 70'000U);
  EXPECT_EQ(testing::at(json, 1, 0, 3).as_array().size(), 140'000U);
}

#if MILLRACE_ZMQ
// A socket of a router.
class Router {
 public:
  Router(int kind, const std::string& endpoint) : context_(::zmq_ctx_new()), socket_(::zmq_socket(context_, kind)) {
    const int patience = testing::kPatience, at_once = 0;
    ::zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &patience, sizeof(patience));
    ::zmq_setsockopt(socket_, ZMQ_LINGER, &at_once, sizeof(at_once));
    if (kind == ZMQ_SUB) ::zmq_setsockopt(socket_, ZMQ_SUBSCRIBE, "kv@", 3);
    EXPECT_EQ(::zmq_connect(socket_, endpoint.c_str()), 0);
  }
  ~Router() {
    ::zmq_close(socket_);
    ::zmq_ctx_term(context_);
  }
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  std::vector<std::string> receive() {
    std::vector<std::string> frames;
    for (int more = 1; more != 0;) {
      zmq_msg_t frame;
      ::zmq_msg_init(&frame);
      EXPECT_GE(::zmq_msg_recv(&frame, socket_, 0), 0);
      frames.emplace_back(static_cast<const char*>(::zmq_msg_data(&frame)), ::zmq_msg_size(&frame));
      more = ::zmq_msg_more(&frame);
      ::zmq_msg_close(&frame);
    }
    return frames;
  }
  void ask(uint64_t from) {
    std::string number;
    for (int shift = 56; shift >= 0; shift -= 8) number += static_cast<char>(from >> shift);
    ::zmq_send(socket_, "", 0, ZMQ_SNDMORE);
    ::zmq_send(socket_, number.data(), number.size(), 0);
  }

 private:
  void* context_;
  void* socket_;
};

uint64_t number_of(const std::string& bytes) {
  uint64_t number = 0;
  for (char c : bytes) number = number << 8 | static_cast<uint8_t>(c);
  return number;
}

KvEventsOptions options() {
  return {.endpoint = "tcp://127.0.0.1:*", .replay = "tcp://127.0.0.1:*", .topic = "kv@here@stories", .node_tokens = 2};
}

// What is replayed from a number on, as (number, batch).
std::vector<std::pair<uint64_t, std::string>> replayed(Router& asks, uint64_t from) {
  std::vector<std::pair<uint64_t, std::string>> list;
  asks.ask(from);
  for (;;) {
    const auto frames = asks.receive();
    EXPECT_EQ(frames.size(), 4U);
    if (frames.size() != 4) return list;
    EXPECT_TRUE(frames[0].empty());
    if (frames[1].empty()) {
      EXPECT_EQ(number_of(frames[2]), UINT64_MAX);
      return list;
    }
    EXPECT_EQ(frames[1], "kv@here@stories");
    list.emplace_back(number_of(frames[2]), frames[3]);
  }
}

TEST(KvEvents, AreHeardAndReplayed) {
  auto events = KvEvents::create(options()).value();
  Router asks(ZMQ_DEALER, events->replay());
  // The first batch came before anybody could hear it.
  auto first = replayed(asks, 0);
  while (first.empty()) first = replayed(asks, 0);
  EXPECT_EQ(first[0].first, 0U);
  EXPECT_EQ(to_text(testing::at(read(first[0].second), 1)), R"([["AllBlocksCleared"]])");

  Router hears(ZMQ_SUB, events->endpoint());
  // Until the subscription is known to the other side, what is told is missed: exactly the gap that replay is for.
  std::atomic<bool> heard = false;
  for (uint64_t i = 1; i <= 200; ++i) events->publish({stored(i, i - 1, 7)});
  std::thread more([&] {
    for (uint64_t i = 201; !heard.load() && i < 2000; ++i) {
      events->publish({stored(i, i - 1, 7)});
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const auto frames = hears.receive();
  heard.store(true);
  more.join();
  ASSERT_EQ(frames.size(), 3U);
  EXPECT_EQ(frames[0], "kv@here@stories");
  ASSERT_EQ(frames[1].size(), 8U);
  const uint64_t last = number_of(frames[1]);
  EXPECT_EQ(to_text(testing::at(read(frames[2]), 1, 0, 1)), fmt::format("[{}]", last));
  const auto missed = replayed(asks, 1);
  ASSERT_GE(missed.size(), last);
  for (uint64_t i = 1; i <= last; ++i) {
    EXPECT_EQ(missed[i - 1].first, i);
    EXPECT_EQ(to_text(testing::at(read(missed[i - 1].second), 1, 0, 1)), fmt::format("[{}]", i));
  }
}

TEST(KvEvents, OldBatchesAreLetGo) {
  KvEventsOptions few = options();
  few.most_batches = 10;
  auto events = KvEvents::create(few).value();
  for (uint64_t i = 1; i <= 100; ++i) events->publish({removed(i)});
  Router asks(ZMQ_DEALER, events->replay());
  std::vector<std::pair<uint64_t, std::string>> kept;
  while (kept.empty() || kept.back().first < 100) kept = replayed(asks, 0);
  EXPECT_EQ(kept.size(), 10U);
  EXPECT_EQ(kept.front().first, 91U);
}

TEST(KvEvents, EndpointsThatCannotBeAreRefused) {
  KvEventsOptions bad = options();
  bad.endpoint = "tcp://nowhere";
  EXPECT_FALSE(KvEvents::create(bad).ok());
}
#endif

}  // namespace
}  // namespace millrace
