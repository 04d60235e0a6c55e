// A client that means harm, and tenants that are curious: what may be sent before a key was looked at, what chunks may
// say beside a body, and what one tenant sees of another.
#include <gtest/gtest.h>

#include "server/rig.h"
#include "server/route.h"

namespace millrace {
namespace {

using testing::at;
using testing::Client;
using testing::eventually;
using testing::Response;
using testing::Rig;

constexpr std::string_view kShort = R"({"prompt":[1,403],"max_tokens":2,"temperature":0})";
constexpr std::string_view kChunked =
    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";

template <class R>
concept MadeWithoutHandler = requires {
  R{"GET", "/nothing", "nothing answers"};
};
static_assert(!MadeWithoutHandler<Route>, "a row without a handler must not compile");

TEST(Attack, WhatChunksSayBesideTheBodyIsBounded) {
  Rig rig;
  std::string many;
  for (int i = 0; i < 20000; ++i) many += "A: b\r\n";
  for (const std::string& rest : {"1;" + std::string(200'000, 'a'), "0\r\nX: " + std::string(200'000, 'a'),
                                  "0\r\n" + many, "1" + std::string(200'000, ' ')}) {
    Client client(rig.port());
    client.send(std::string(kChunked) + rest);  // and it does not end
    const int status = client.answer().status;
    EXPECT_TRUE(status == 431 || status == 400) << status << " " << rest.substr(0, 8);
    EXPECT_TRUE(client.ended());
  }
  EXPECT_EQ(rig.get("/health").status, 200);
}

TEST(Attack, FramesTogetherAreBounded) {
  ServerOptions options;
  options.service.body.bytes = 4096;
  Rig rig(std::move(options));
  Client client(rig.port());
  std::string frames;
  for (int i = 0; i < 100; ++i) frames += "1;" + std::string(1000, 'x') + "\r\n \r\n";
  client.send(std::string(kChunked) + frames);
  EXPECT_EQ(client.answer().status, 413);
  EXPECT_TRUE(client.ended());
}

// Whoever has no key is told so by the head: no body is waited for, none is asked for, and none is taken.
TEST(Attack, TheKeyComesBeforeTheBody) {
  ServerOptions options;
  ASSERT_TRUE(options.service.keys.add("a", "key-of-a-0001").ok());
  Rig rig(std::move(options));
  for (std::string_view rest : {"Content-Length: 10000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n",
                                "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
                                "Authorization: Bearer key-of-b-0001\r\nContent-Length: 5\r\n\r\n"}) {
    Client client(rig.port());
    client.send(fmt::format("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{}", rest));
    EXPECT_TRUE(client.read_until("\r\n\r\n"));
    EXPECT_TRUE(client.unread().starts_with("HTTP/1.1 401")) << client.unread();
    const Response response = client.answer();
    EXPECT_EQ(response.headers.at("connection"), "close");
    EXPECT_TRUE(client.ended());
  }
  EXPECT_EQ(rig.server().service().counters().body_bytes.load(), 0);
  // Paths and methods that are not there, too, and other hosts.
  const std::string key = "Authorization: bearer key-of-a-0001\r\n";
  for (const auto& [line, status] : {std::pair{"POST /nowhere", 404}, std::pair{"PUT /v1/completions", 405}}) {
    Client client(rig.port());
    client.send(fmt::format("{} HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: 10000000\r\n\r\n", line, key));
    EXPECT_EQ(client.answer().status, status) << line;
  }
  EXPECT_EQ(rig.post("/v1/completions", kShort, key).status, 200);
  Client kept(rig.port());  // without a body the connection goes on
  kept.ask("GET", "/v1/models", "");
  EXPECT_EQ(kept.answer().status, 401);
  kept.ask("GET", "/v1/models", "", key);
  EXPECT_EQ(kept.answer().status, 200);
}

// Where no key is asked for, or nothing is taken, a large body is refused by its head, or where it becomes large.
TEST(Attack, WhereNothingIsTakenThereIsNoRoomForABody) {
  static constexpr StaticFile kFiles[] = {{"/index.html", "text/html", "<p>hello", "", "tag1"}};
  for (const bool keys : {true, false}) {
    ServerOptions options;
    options.service.files = kFiles;
    options.service.open_metrics = true;
    ASSERT_TRUE(options.service.keys.add_lines(keys ? "a key-of-a-0001" : "").ok());
    Rig rig(std::move(options));
    for (std::string_view line : {"GET /health", "GET /ready", "HEAD /health", "GET /", "HEAD /index.html",
                                  "GET /metrics", "GET /v1/models", "DELETE /v1/responses/x"}) {
      const std::string key =
          line.find("/v1/") == std::string_view::npos ? "" : "Authorization: Bearer key-of-a-0001\r\n";
      const std::string head = fmt::format("{} HTTP/1.1\r\nHost: localhost\r\n{}", line, key);
      for (std::string_view rest : {"Content-Length: 1025\r\n\r\n", "Content-Length: 16777216\r\n\r\n",
                                    "Expect: 100-continue\r\nContent-Length: 200000\r\n\r\n"}) {
        Client client(rig.port());
        client.send(head + std::string(rest));
        const Response refused = client.answer(line.starts_with("HEAD"));
        EXPECT_EQ(refused.status, 413) << line << " " << rest;
        EXPECT_EQ(refused.headers.at("connection"), "close");
        EXPECT_TRUE(client.ended());
      }
      Client chunks(rig.port());
      chunks.send(head + "Transfer-Encoding: chunked\r\n\r\n400\r\n" + std::string(1024, ' ') + "\r\n");
      chunks.send("1\r\n");
      EXPECT_EQ(chunks.answer(line.starts_with("HEAD")).status, 413) << line;
      EXPECT_TRUE(chunks.ended());
    }
    EXPECT_TRUE(eventually([&] { return rig.server().service().counters().body_bytes.load() == 0; }));
    // A little is let go by, and the connection goes on.
    Client kept(rig.port());
    for (int i = 0; i < 2; ++i) {
      kept.ask("GET", "/health", std::string(1024, ' '));
      EXPECT_EQ(kept.answer().status, 200);
    }
    const std::string large = fmt::format(R"({{"prompt":[1,403],"max_tokens":1{}}})", std::string(100000, ' '));
    EXPECT_EQ(rig.post("/v1/completions", large, "Authorization: Bearer key-of-a-0001\r\n").status, 200);
  }
}

Json first_event(int port, std::string_view key) {
  Client client(port);
  client.ask("GET", "/live", "", key);
  EXPECT_TRUE(client.read_until("}\n\n")) << client.unread();
  const size_t begin = client.unread().find("data: ") + 6;
  return parse_json(std::string_view(client.unread()).substr(begin, client.unread().find("\n\n", begin) - begin))
      .value();
}

TEST(Tenants, SeeTheirOwnShareOnly) {
  ServerOptions options;
  ASSERT_TRUE(options.service.keys.add_lines("a key-of-a-0001\nb key-of-b-0001 rpm=1\nc key-of-c-0001 operator").ok());
  Rig rig(std::move(options));
  const std::string a = "Authorization: Bearer key-of-a-0001\r\n", b = "Authorization: Bearer key-of-b-0001\r\n",
                    c = "Authorization: Bearer key-of-c-0001\r\n";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(rig.post("/v1/completions", kShort, a).status, 200);
  EXPECT_EQ(rig.post("/v1/completions", kShort, b).status, 200);
  EXPECT_EQ(rig.post("/v1/completions", kShort, b).status, 429);
  EXPECT_TRUE(eventually([&] { return rig.quiet(); }));
  auto value = [&](const std::string& key, const std::string& name) {
    const std::string text = rig.get("/metrics", key).body;
    const size_t at = text.find("\n" + name);
    return at == std::string::npos ? -1.0 : std::stod(text.substr(text.find(' ', at) + 1));
  };
  EXPECT_EQ(value(a, "vllm:generation_tokens_total"), 6);
  EXPECT_EQ(value(b, "vllm:generation_tokens_total"), 2);
  EXPECT_EQ(value(c, "vllm:generation_tokens_total"), 8);
  EXPECT_EQ(value(a, "vllm:time_to_first_token_seconds_count"), 3);
  EXPECT_EQ(value(b, "vllm:time_to_first_token_seconds_count"), 1);
  EXPECT_EQ(value(b, "millrace_requests_refused_total"), 1);
  EXPECT_EQ(value(a, "vllm:num_requests_waiting"), 0);
  EXPECT_EQ(value(a, "vllm:num_requests_running"), 0);
  // Nothing of steps, pages and connections, which are everybody's.
  for (const char* name : {"millrace_steps_total", "millrace_kv_cache_pages", "millrace_http_requests_total"}) {
    EXPECT_EQ(value(a, name), -1) << name;
    EXPECT_GE(value(c, name), 0) << name;
  }
  const Json own = first_event(rig.port(), b), all = first_event(rig.port(), c);
  EXPECT_EQ(at(own, "scope"), Json("tenant"));
  EXPECT_EQ(at(all, "scope"), Json("all"));
  EXPECT_EQ(at(own, "finished"), Json(1));
  EXPECT_EQ(at(all, "finished"), Json(4));
  EXPECT_EQ(at(own, "pages", "total"), Json(0));
  EXPECT_EQ(at(own, "pages", "map"), Json(""));
  EXPECT_GT(at(all, "pages", "total").get_int64(), 0);
  EXPECT_EQ(at(own, "steps"), Json(0));
  // What was computed for it: the two tokens of its prompt, less what was found, and the two of its answer.
  EXPECT_GE(at(own, "computed_tokens").get_int64(), 2);
  EXPECT_LE(at(own, "computed_tokens").get_int64(), 4);
}

TEST(Tenants, MetricsMayBeOpenToScrapers) {
  for (bool open : {false, true}) {
    ServerOptions options;
    ASSERT_TRUE(options.service.keys.add_lines("a key-of-a-0001\nb key-of-b-0001").ok());
    options.service.open_metrics = open;
    Rig rig(std::move(options));
    const Response response = rig.get("/metrics");
    EXPECT_EQ(response.status, open ? 200 : 401);
    EXPECT_EQ(response.body.find("millrace_steps_total") != std::string::npos, open);
    EXPECT_EQ(rig.get("/live").status, 401);
    EXPECT_EQ(rig.get("/v1/models").status, 401);
  }
}

TEST(Answers, NameWhatWasIgnored) {
  Rig rig;
  for (std::string_view stream : {"false", "true"}) {
    const Response response = rig.post(
        "/v1/completions", fmt::format(R"({{"prompt":[1],"max_tokens":1,"trace_id":"x","stream":{}}})", stream));
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.headers.at("x-millrace-ignored"), "trace_id");
  }
  EXPECT_FALSE(rig.post("/v1/completions", kShort).headers.contains("x-millrace-ignored"));
  EXPECT_EQ(rig.post("/detokenize", R"({"tokens":[1],"trace_id":"x"})").headers.at("x-millrace-ignored"), "trace_id");
}

#if MILLRACE_SESSION_TEXT
TEST(Answers, TokensOutsideTheVocabularyAreRefused) {
  Rig rig;
  EXPECT_EQ(rig.post("/detokenize", R"({"tokens":[1,4095]})").status, 200);
  const Response response = rig.post("/detokenize", R"({"tokens":[1,4096]})");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(at(response.json(), "error", "message"), Json("there is no token 4096: the model knows 0 to 4095"));
  EXPECT_EQ(rig.post("/detokenize", R"({"tokens":[2147483647]})").status, 400);
}
#endif

TEST(Answers, AModelIsFoundByItsName) {
  Rig rig;
  EXPECT_EQ(at(rig.get("/v1/models/stories").json(), "id"), Json("stories"));
  EXPECT_EQ(rig.get("/v1/models/st%6Fries").status, 200);
  EXPECT_EQ(at(rig.get("/v1/models/org/other").json(), "error", "code"), Json("model_not_found"));
  EXPECT_EQ(rig.get("/v1/models/").status, 404);
  EXPECT_EQ(rig.fetch("DELETE", "/v1/models/stories").status, 405);
}

TEST(Answers, PropsTellTheDefaults) {
  ServedModel model = testing::served_model();
  model.defaults.sampling.temperature = 0.25;
  model.defaults.of_model = {"temperature"};
  Rig rig({}, std::move(model));
  const Json props = rig.get("/props").json();
  EXPECT_EQ(at(props, "default_generation_settings", "params", "temperature"), Json(0.25));
  EXPECT_EQ(at(props, "default_generation_settings", "params", "top_k"), Json(40));
  EXPECT_EQ(at(props, "default_generation_settings", "of_model", 0), Json("temperature"));
  EXPECT_EQ(at(props, "default_generation_settings", "n_ctx"), Json(512));
}

}  // namespace
}  // namespace millrace
