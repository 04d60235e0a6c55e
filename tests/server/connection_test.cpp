// The connection: HTTP/1.1 as clients and attackers speak it, keep-alive, limits, slow and vanishing clients, keys,
// hosts, draining. After each the engine must be as quiet as before.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <iostream>
#include <regex>
#include <set>

#include "base/file.h"
#include "server/rig.h"

namespace millrace {
namespace {

using testing::at;
using testing::Client;
using testing::eventually;
using testing::Response;
using testing::Rig;

constexpr std::string_view kShort = R"({"prompt":[1,403],"max_tokens":2,"temperature":0})";
constexpr std::string_view kLong =
    R"({"prompt":[1,403],"max_tokens":500,"temperature":0,"ignore_eos":true,"stream":true})";

TEST(Http, ConnectionsAreKeptAndRequestsMayComeAhead) {
  Rig rig;
  Client client(rig.port());
  for (int i = 0; i < 3; ++i) {
    client.ask("POST", "/v1/completions", kShort);
    EXPECT_EQ(client.answer().status, 200);
  }
  for (int i = 0; i < 4; ++i) client.ask("GET", "/health", "");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(client.answer().status, 200);
  client.ask("POST", "/v1/completions", std::string(kShort).insert(1, R"("stream":true,)"));
  client.ask("GET", "/health", "");
  EXPECT_TRUE(client.answer().complete);
  EXPECT_EQ(client.answer().status, 200);
  client.ask("GET", "/health", "", "Connection: close\r\n");
  EXPECT_EQ(client.answer().headers.at("connection"), "close");
  EXPECT_TRUE(client.ended());
}

TEST(Http, BodiesInChunksAndAfterContinue) {
  Rig rig;
  Client client(rig.port());
  const std::string body(kShort);
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (char c : body) client.send(fmt::format("1\r\n{}\r\n", c));
  client.send("0\r\n\r\n");
  EXPECT_EQ(client.answer().status, 200);
  client.send(fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
      body.size()));
  EXPECT_TRUE(client.read_until("100 Continue"));
  client.send(body);
  EXPECT_EQ(client.answer().status, 200);
  // Byte by byte, as a slow but honest client.
  for (char c : fmt::format("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                            body.size(), body))
    client.send(std::string(1, c));
  EXPECT_EQ(client.answer().status, 200);
}

// Cut anywhere, also where Beast's parser does not expect it: between the two line breaks that end the last chunk.
TEST(Http, ChunksMayBeCutAnywhere) {
  Rig rig;
  const std::string head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string_view ask = R"({"prompt":[1],"max_tokens":1})";
  Client other(rig.port());
  for (const auto& [body, status] : {std::pair<std::string, int>{"0\r\n\r\n", 400},
                                     {"000;a=b\r\nX: y\r\n\r\n", 400},
                                     {fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", ask.size(), ask), 200}}) {
    for (size_t cut = 1; cut < body.size(); ++cut) {
      Client client(rig.port());
      client.send(head + body.substr(0, cut));
      // By the time somebody else has two answers the server has read what was sent before.
      for (int i = 0; i < 2; ++i) {
        other.ask("GET", "/health", "");
        ASSERT_EQ(other.answer().status, 200);
      }
      client.send(body.substr(cut));
      EXPECT_EQ(client.answer().status, status) << body << cut;
    }
  }
}

TEST(Http, OldClientsGetTheirStreamToo) {
  Rig rig;
  Client client(rig.port());
  const std::string body = std::string(kShort).insert(1, R"("stream":true,)");
  client.send(fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Length: {}\r\nHost: localhost\r\n\r\n{}",
                          body.size(), body));
  const Response response = client.answer();
  EXPECT_EQ(response.status, 200);
  EXPECT_FALSE(response.headers.contains("transfer-encoding"));
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
}

// What is no HTTP, or could be read in two ways, is answered with an error and ends the connection.
TEST(Http, WhatCannotBeReadIsRefused) {
  Rig rig;
  const std::string host = "Host: localhost\r\n";
  struct Case {
    std::string bytes;
    int status;
  };
  const Case cases[] = {
      {"\x16\x03\x01\x02\x01\r\n\r\n", 400},
      {"GET\r\n\r\n", 400},
      {"GET /health\r\n\r\n", 400},
      {"GET /health HTTP/2.0\r\n" + host + "\r\n", 505},
      {"GET /health HTTP/1.1\r\n\r\n", 400},                     // no host
      {"GET /health HTTP/1.1\r\n" + host + host + "\r\n", 400},  // two of them
      {"GET health HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET * HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /health HTTP/1.1\r\n" + host + "Bad Header: x\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\n" + host + "A\x01: x\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\n" + host + ": x\r\n\r\n", 400},
      {"GET /hea\x01lth HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET  /health  HTTP/1.1\r\n" + host + "\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\n" + host + "Content-Length: 1e3\r\n\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999999\r\n\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\n" + host + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", 400},
      {"POST /v1/completions HTTP/1.1\r\n" + host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       400},
      {"POST /v1/completions HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
       400},
      {"POST /v1/completions HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n", 501},
      {"POST /v1/completions HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {"POST /v1/completions HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 501},
      {"POST /v1/completions HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\n" + host + "A: b\r\n c\r\n\r\n", 400},  // a header that goes on in the next line
      {"GET /health HTTP/1.1\r\n" + host + "A: b\r\n\tc\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\n \r\n" + host + "\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n c\r\n\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\n" + host + "Content-Length: 17000000\r\n\r\n", 413},
      {"GET /health HTTP/1.1\r\n" + host + "A: " + std::string(40000, 'x') + "\r\n\r\n", 431},
      {"GET /" + std::string(40000, 'x') + " HTTP/1.1\r\n" + host + "\r\n", 431},
  };
  for (const Case& one : cases) {
    Client client(rig.port());
    client.send(one.bytes);
    const Response response = client.answer();
    EXPECT_EQ(response.status, one.status) << one.bytes.substr(0, 100);
    if (response.status != 0) {
      EXPECT_TRUE(parse_json(response.body).ok()) << response.body;
    }
    EXPECT_TRUE(client.ended());
  }
  std::string many = "GET /health HTTP/1.1\r\n" + host;
  for (int i = 0; i < 101; ++i) many += fmt::format("a{}: b\r\n", i);
  Client client(rig.port());
  client.send(many + "\r\n");
  EXPECT_EQ(client.answer().status, 431);
  EXPECT_EQ(rig.get("/health").status, 200);
}

// The parser takes lines as they come, so a line that goes on must be seen before the head is whole.
TEST(Http, FoldedHeadersAreRefusedHoweverTheyCome) {
  Rig rig;
  const std::string head = "GET /health HTTP/1.1\r\nHost: localhost\r\nA: b\r\n c\r\n\r\n";
  for (size_t cut = head.find("A: b"); cut < head.size(); ++cut) {
    Client client(rig.port());
    const std::string piece = head.substr(0, cut);
    client.send(piece);
    if (piece.find("\r\n ") == std::string::npos) client.send(head.substr(cut));  // else the answer needs no more
    EXPECT_EQ(client.answer().status, 400) << "cut at " << cut;
  }
  // In a body such a line is nobody's business, however it is cut up.
  const std::string text = "{\"prompt\":[1,403],\"max_tokens\":1,\r\n \"temperature\":0}";
  Client client(rig.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  client.send(fmt::format("{:x}\r\n{}\r\n0\r\nA: b\r\n\r\n", text.size(), text));
  EXPECT_EQ(client.answer().status, 200);
}

TEST(Http, TargetsInEveryForm) {
  Rig rig;
  Client client(rig.port());
  client.send("\r\nGET http://localhost/health?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");  // after an empty line
  EXPECT_EQ(client.answer().status, 200);
  for (std::string_view path : {"/health/", "//health", "/HEALTH", "/health%2f", "/./health", "/v1/../health", "/%00"})
    EXPECT_EQ(rig.get(path).status, 404) << path;
}

TEST(Http, SlowSendersAreCutOff) {
  ServerOptions options;
  options.header_seconds = 0.2;
  options.body_seconds = 0.2;
  Rig rig(std::move(options));
  Client header(rig.port()), body(rig.port());
  header.send("GET /health HTTP/1.1\r\nHost: lo");
  EXPECT_EQ(header.answer().status, 408);
  body.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_EQ(body.answer().status, 408);
}

TEST(Http, IdleConnectionsAreClosed) {
  ServerOptions options;
  options.idle_seconds = 0.2;
  Rig rig(std::move(options), std::nullopt);
  Client idle(rig.port());
  EXPECT_TRUE(idle.ended());
  EXPECT_TRUE(idle.unread().empty());
}

// A client that does not read costs its buffers and no more, and is cut off in the end.
TEST(Http, SlowReadersAreCutOff) {
  ServerOptions options;
  options.write_seconds = 0.3;
  Rig rig(std::move(options));
  Client client(rig.port(), 4096);
  client.ask("POST", "/v1/completions",
             R"({"prompt":[1],"max_tokens":300,"n":4,"logprobs":20,"ignore_eos":true,"stream":true})");
  EXPECT_TRUE(eventually([&] { return rig.server().service().counters().slow_clients.load() == 1; }));
  EXPECT_TRUE(eventually([&] { return rig.quiet(); }));
}

TEST(Http, AClientThatLeavesStopsItsWork) {
  Rig rig;
  for (int i = 0; i < 8; ++i) {
    Client client(rig.port());
    const bool stream = i % 2 == 0;
    client.ask("POST", "/v1/completions",
               stream ? std::string(kLong) : R"({"prompt":[1],"max_tokens":500,"ignore_eos":true})");
    if (stream) {
      EXPECT_TRUE(client.read_until("data: "));
    } else {
      EXPECT_TRUE(eventually([&] { return rig.metrics().running > 0; }));
    }
    i % 4 < 2 ? client.close() : client.reset();
    EXPECT_TRUE(eventually([&] { return rig.quiet(); })) << i;
  }
  EXPECT_EQ(rig.server().service().counters().disconnects.load(), 8);
  EXPECT_LT(rig.metrics().tokens_out, 8 * 500);
}

TEST(Http, IdleStreamsGetComments) {
  ServerOptions options;
  options.ping_seconds = 0.05;
  Rig rig(std::move(options), testing::served_model(1));
  Client first(rig.port()), second(rig.port());
  first.ask("POST", "/v1/completions", kLong);
  EXPECT_TRUE(first.read_until("data: "));
  second.ask("POST", "/v1/completions", kLong);  // waits for its turn
  EXPECT_TRUE(second.read_until(": ping\n\n"));
}

TEST(Http, TooManyWaitAndTheRestIsToldWhenToComeBack) {
  Rig rig({}, testing::served_model(1, 2));
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(rig.port()));
    clients.back()->ask("POST", "/v1/completions", kLong);
    EXPECT_TRUE(clients.back()->read_until("200 OK"));
  }
  const Response refused = rig.post("/v1/completions", kShort);
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_GE(std::stoi(refused.headers.at("retry-after")), 1);
  EXPECT_EQ(at(refused.json(), "error", "type"), Json("rate_limit_error"));
  const std::string predicted = fmt::format("try again in about {} s", refused.headers.at("retry-after"));
  EXPECT_NE(refused.body.find(predicted), std::string::npos) << refused.body;
}

// Beyond the most connections there may be, whoever asks is told to come back; how many are told at once is bounded,
// and those whose turn it is do not notice.
TEST(Http, TooManyConnectionsAreToldSo) {
  ServerOptions options;
  options.connections = 2;
  Rig rig(std::move(options));
  Client first(rig.port()), second(rig.port());
  for (Client* client : {&first, &second}) {
    client->ask("GET", "/health", "");
    EXPECT_EQ(client->answer().status, 200);
  }
  for (int i = 0; i < 3; ++i) {
    Client third(rig.port());
    third.ask("POST", "/v1/completions", kShort);
    const Response refused = third.answer();
    EXPECT_EQ(refused.status, 503) << refused.body;
    EXPECT_EQ(refused.headers.at("retry-after"), "1");
    EXPECT_EQ(refused.headers.at("connection"), "close");
    EXPECT_EQ(at(refused.json(), "error", "code"), Json("overloaded"));
    EXPECT_TRUE(third.ended());
  }
  {
    std::vector<std::unique_ptr<Client>> crowd;
    for (int i = 0; i < 200; ++i) crowd.push_back(std::make_unique<Client>(rig.port()));
    int told = 0;
    for (auto& client : crowd) client->ask("GET", "/health", "");
    for (auto& client : crowd) told += client->answer().status == 503;
    EXPECT_GE(told, 1);
    first.ask("POST", "/v1/completions", kShort);
    EXPECT_EQ(first.answer().status, 200);
  }
  EXPECT_EQ(rig.server().service().counters().connections.load(), 2);
  second.close();
  EXPECT_TRUE(eventually([&] { return rig.get("/health").status == 200; }));
}

// Fewer connections than were asked for, since there are too few open files, are told before anything is served. In a
// process of its own: a limit that is lowered cannot be raised again.
TEST(HttpDeathTest, TooFewOpenFilesAreToldAtTheStart) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto start = [] {
    const rlimit few = {.rlim_cur = 140, .rlim_max = 140};
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) std::exit(2);
    ServerOptions options;
    options.port = 0;
    options.warn = [](std::string_view line) { std::cerr << line << std::endl; };
    std::exit(Server::create(std::move(options)).ok() ? 0 : 1);
  };
  EXPECT_EXIT(start(), ::testing::ExitedWithCode(0),
              "12 of 8192 connections.*140 open files.*ulimit -n 8320.*LimitNOFILE=8320.*--max-connections");
}

std::vector<Route> all_routes() {
  std::vector<Route> all;
  for (const auto& table : route_tables()) all.insert(all.end(), table.begin(), table.end());
  return all;
}

TEST(Http, EveryRouteButTheOpenOnesNeedsTheKey) {
  ServerOptions options;
  ASSERT_TRUE(options.service.keys.add_lines("# who\nalice sk-alice-0001 rpm=1000\nbob sk-bob-00002").ok());
  Rig rig(std::move(options));
  std::set<std::string_view> open;
  for (const Route& route : all_routes()) {
    if (route.path == "/live") continue;  // without an end
    const std::string_view body = route.body.kind != 0 ? "{}" : "";
    const bool needs_none = route.access == Access::anybody;
    if (needs_none) open.insert(route.path);
    for (std::string_view key : {"", "Authorization: Bearer sk-alice-000\r\n", "Authorization: sk-alice-0001\r\n",
                                 "Authorization: Basic sk-alice-0001\r\n", "Authorization: Bearer \r\n"}) {
      const int status = rig.fetch(route.method, route.path, body, key).status;
      EXPECT_EQ(status == 401, !needs_none) << route.path << " " << key << status;
    }
    EXPECT_NE(rig.fetch(route.method, route.path, body, "Authorization: Bearer sk-alice-0001\r\n").status, 401)
        << route.path;
    EXPECT_NE(rig.fetch(route.method, route.path, body, "Authorization: Bearer sk-bob-00002\r\n").status, 401)
        << route.path;
  }
  EXPECT_EQ(open, (std::set<std::string_view>{"/health", "/ready"}));
  EXPECT_EQ(rig.get("/nowhere").status, 401);  // whoever has no key learns nothing
  EXPECT_EQ(rig.get("/live").status, 401);
}

TEST(Http, TenantsHaveLimitsAndDoNotShareTheCache) {
  ServerOptions options;
  ASSERT_TRUE(
      options.service.keys.add_lines("a key-of-a-0001 rpm=3\nb key-of-b-0001\nc key-of-c-0001 concurrent=1").ok());
  Rig rig(std::move(options));
  const std::string a = "Authorization: Bearer key-of-a-0001\r\n", b = "Authorization: Bearer key-of-b-0001\r\n";
  std::string ids = "1";
  for (int i = 0; i < 63; ++i) ids += ",403";
  const std::string ask = fmt::format(R"({{"prompt":[{}],"max_tokens":1}})", ids);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(rig.post("/v1/completions", ask, a).status, 200);
  const Response limited = rig.post("/v1/completions", ask, a);
  EXPECT_EQ(limited.status, 429);
  EXPECT_TRUE(limited.headers.contains("retry-after"));
  const Json other = rig.post("/v1/completions", ask, b).json();
  EXPECT_EQ(at(other, "usage", "prompt_tokens_details", "cached_tokens"), Json(0));
  const Json again = rig.post("/v1/completions", ask, b).json();
  EXPECT_GT(at(again, "usage", "prompt_tokens_details", "cached_tokens").get_int64(), 0);
  Client client(rig.port());
  const std::string c = "Authorization: Bearer key-of-c-0001\r\n";
  client.ask("POST", "/v1/completions", kLong, c);
  EXPECT_TRUE(client.read_until("200 OK"));
  EXPECT_EQ(rig.post("/v1/completions", ask, c).status, 429);
}

TEST(Http, OtherHostsAndOriginsAreRefused) {
  Rig rig;
  auto status = [&](std::string_view method, std::string_view host, std::string_view headers) {
    Client client(rig.port());
    client.send(fmt::format("{} /v1/completions HTTP/1.1\r\nHost: {}\r\n{}Content-Length: {}\r\n\r\n{}", method, host,
                            headers, kShort.size(), kShort));
    return client.answer().status;
  };
  for (std::string_view host : {"localhost", "localhost:8080", "127.0.0.1", "LOCALHOST:1"})
    EXPECT_EQ(status("POST", host, ""), 200) << host;
  for (std::string_view host :
       {"evil.example", "localhost.evil.example", "evil.example:8080", "[::2]", "[localhost", "[", "127.0.0.2", ""})
    EXPECT_EQ(status("POST", host, ""), 421) << host;
  EXPECT_EQ(status("POST", "localhost:80", "Origin: http://localhost:80\r\n"), 200);
  EXPECT_EQ(status("POST", "localhost:80", "Origin: https://evil.example\r\n"), 403);
  EXPECT_EQ(status("POST", "localhost:80", "Origin: null\r\n"), 403);
  EXPECT_EQ(status("OPTIONS", "localhost", "Origin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n"),
            403);
  EXPECT_FALSE(
      rig.get("/v1/models", "Origin: https://evil.example\r\n").headers.contains("access-control-allow-origin"));
}

TEST(Http, DrainingLetsOpenAnswersEnd) {
  ServerOptions options;
  options.grace_seconds = 3600;  // however slow the machine is
  Rig rig(std::move(options));
  Client client(rig.port());
  client.ask("POST", "/v1/completions", R"({"prompt":[1],"max_tokens":200,"ignore_eos":true,"stream":true})");
  EXPECT_TRUE(client.read_until("data: "));
  rig.server().drain();
  EXPECT_TRUE(eventually([&] {
    const int status = rig.get("/ready").status;
    return status == 503 || status == 0;
  }));
  const Response response = client.answer();
  EXPECT_TRUE(response.complete);
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(response.body.find("\"error\""), std::string::npos);
  rig.join();
}

TEST(Http, StoppingEndsStreamsWithAnError) {
  Rig rig;
  Client client(rig.port());
  client.ask("POST", "/v1/completions", kLong);
  EXPECT_TRUE(client.read_until("data: "));
  rig.server().stop();
  const Response response = client.answer();
  EXPECT_TRUE(response.complete);
  EXPECT_NE(response.body.find("shutting_down"), std::string::npos);
  rig.join();
}

TEST(Http, FilesAreServedToAnybody) {
  static constexpr StaticFile kFiles[] = {{"/index.html", "text/html", "<p>hello", "", "tag1"},
                                          {"/a.js", "text/javascript", "let a", "gzip", ""}};
  ServerOptions options;
  options.service.files = kFiles;
  ASSERT_TRUE(options.service.keys.add("a", "key-of-a-0001").ok());
  Rig rig(std::move(options));
  const Response page = rig.get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.body, "<p>hello");
  EXPECT_EQ(page.headers.at("content-type"), "text/html");
  EXPECT_TRUE(page.headers.contains("content-security-policy"));
  EXPECT_EQ(rig.get("/index.html", "If-None-Match: \"tag1\"\r\n").status, 304);
  EXPECT_EQ(rig.get("/a.js").headers.at("content-encoding"), "gzip");
  EXPECT_EQ(rig.get("/../index.html").status, 401);
}

TEST(Http, LiveTellsWhatTheEngineDoes) {
  Rig rig;
  Client client(rig.port());
  client.ask("GET", "/live", "");
  EXPECT_TRUE(client.read_until("}\n\n"));
  const size_t begin = client.unread().find("data: ") + 6;
  const Json json =
      parse_json(std::string_view(client.unread()).substr(begin, client.unread().find("\n\n", begin) - begin)).value();
  EXPECT_GT(at(json, "pages", "total").get_int64(), 0);
  EXPECT_EQ(at(json, "pages", "per_cell"), Json(1));
  EXPECT_EQ(at(json, "model"), Json("stories"));
}

// Prometheus' text format, strictly: each family once, with help and type before its samples, names and numbers as
// they must be, histograms that add up.
TEST(Metrics, AreWhatPrometheusReads) {
  Rig rig;
  EXPECT_EQ(rig.post("/v1/completions", kShort).status, 200);
  const Response response = rig.get("/metrics");
  EXPECT_TRUE(response.headers.at("content-type").starts_with("text/plain; version=0.0.4"));
  const std::regex sample(R"re(^([a-z_][a-z0-9_:]*)(\{([a-z_]+="[^"\\]*",?)+\})? (-?[0-9.e+-]+)$)re");
  std::map<std::string, std::string> types;
  std::map<std::string, double> values;
  std::string text = response.body, helped;
  ASSERT_TRUE(text.ends_with('\n'));
  for (size_t start = 0; start < text.size();) {
    const std::string line = text.substr(start, text.find('\n', start) - start);
    start += line.size() + 1;
    if (line.starts_with("# HELP ")) {
      helped = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_FALSE(types.contains(helped)) << line;
      continue;
    }
    if (line.starts_with("# TYPE ")) {
      EXPECT_EQ(line.substr(7, line.find(' ', 7) - 7), helped);
      types[helped] = line.substr(line.rfind(' ') + 1);
      continue;
    }
    std::smatch parts;
    ASSERT_TRUE(std::regex_match(line, parts, sample)) << line;
    const std::string name = parts[1];
    EXPECT_TRUE(name == helped || (types[helped] == "histogram" && name.starts_with(helped + "_"))) << line;
    if (types[helped] == "counter") {
      EXPECT_TRUE(name.ends_with("_total")) << line;
    }
    const double value = std::stod(parts[4]);
    if (name.ends_with("_bucket")) {
      EXPECT_GE(value, values[name]) << line;  // they only grow
    }
    values[name] = value;
  }
  for (const auto& [name, type] : types) {
    if (type != "histogram") continue;
    EXPECT_EQ(values[name + "_bucket"], values[name + "_count"]) << name;  // the last is +Inf
  }
  EXPECT_EQ(values["vllm:time_to_first_token_seconds_count"], 1);
  EXPECT_EQ(values["vllm:generation_tokens_total"], 2);
  EXPECT_EQ(values["vllm:prompt_tokens_total"], 2);
  EXPECT_EQ(values["vllm:prefix_cache_queries_total"], 2);
  // What the dashboard, the alerts and the documents name is there; names of guesses are where a model guesses.
  Rig guessing({}, testing::guessing_model());
  const std::string guesses = guessing.get("/metrics").body;
  for (const char* name : {"docs/grafana.json", "docs/operations.md"}) {
    const std::string document = read_file(std::filesystem::path(MILLRACE_SOURCE_DIR) / name).value();
    const std::regex metric("(millrace_|vllm:)[a-z0-9_]*[a-z]");
    for (std::sregex_iterator it(document.begin(), document.end(), metric), end; it != end; ++it)
      EXPECT_TRUE(values.contains(it->str()) || types.contains(it->str()) ||
                  guesses.find("# TYPE " + it->str() + " ") != std::string::npos)
          << it->str() << " in " << name;
  }
}

}  // namespace
}  // namespace millrace
