// Several models behind one server: which one a body names, figures of all on one page, and what becomes of those who
// wait for a model that does not come. With real engines: several.py.
#include "server/shelf.h"

#include <gtest/gtest.h>

#include <future>

#include "server/metrics_text.h"
#include "server/rig.h"

namespace millrace {
namespace {

std::string named(std::string body, std::string query = "") {
  HttpRequest request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.query = std::move(query);
  request.body = std::move(body);
  return named_model(request);
}

TEST(NamedModel, IsFoundAtTheTopLevelOnly) {
  EXPECT_EQ(named(R"({"model":"a"})"), "a");
  EXPECT_EQ(named(R"( {"prompt": ["model", {"model": "b"}], "x": {"model": "c"}, "model" : "a\n/ü" } )"), "a\n/ü");
  EXPECT_EQ(named(R"({"messages":[{"role":"user","content":"\"model\": \"b\" {"}],"model":"a"})"), "a");
  EXPECT_EQ(named(R"({"name":"llama"})"), "llama");  // as older clients of Ollama write it
  EXPECT_EQ(named(R"({"name":"b","model":"a"})"), "a");
  EXPECT_EQ(named(R"({"model":"b"})", "x=1&model=a"), "a");
  EXPECT_EQ(named("", "model=org%2Fa%20b"), "org/a b");
  for (const char* none :
       {"", "{", R"({"model")", R"({"model":)", R"({"model":1})", R"({"model":"a)", R"(["model","a"])",
        R"({"prompt":"model"})", R"({"x":{"model":"a"}})", R"({"model":"\u12"})"})
    EXPECT_EQ(named(none), "") << none;
}

TEST(JoinedMetrics, HaveOneHeadingEach) {
  const std::string pages[] = {
      "# HELP a A.\n# TYPE a gauge\na{m=\"1\"} 1\n# HELP b B.\n# TYPE b counter\nb{m=\"1\"} 2\n",
      "# HELP a A.\n# TYPE a gauge\na{m=\"2\"} 3\n# HELP c C.\n# TYPE c counter\nc{m=\"2\"} 4\n"};
  EXPECT_EQ(joined_metrics(pages),
            "# HELP a A.\n# TYPE a gauge\na{m=\"1\"} 1\na{m=\"2\"} 3\n# HELP b B.\n# TYPE b counter\nb{m=\"1\"} 2\n"
            "# HELP c C.\n# TYPE c counter\nc{m=\"2\"} 4\n");
}

// A server whose further model is made, or not, by the test.
struct TwoModels {
  explicit TwoModels(std::function<Result<ServedModel>(const std::string&, int64_t)> load, double patience = 60)
      : shelf({.first = {"stories", 100},
               .others = {{"second", 100}},
               .memory = int64_t{1} << 40,
               .patience = patience,
               .load = std::move(load),
               .service = [] { return ServiceOptions(); }}) {
    ServerOptions options;
    options.service.shelf = &shelf;
    rig = std::make_unique<testing::Rig>(std::move(options));
    shelf.set_first(rig->server().service());
    shelf.first_loaded();
  }
  Shelf shelf;
  std::unique_ptr<testing::Rig> rig;
};

constexpr const char* kBody = R"({"model":"second","prompt":[1,20,30],"max_tokens":5,"ignore_eos":true})";

TEST(TheShelf, LoadsOnceForAllWhoAsk) {
  std::atomic<int> loads = 0;
  TwoModels two([&](const std::string& name, int64_t memory) -> Result<ServedModel> {
    ++loads;
    EXPECT_GT(memory, 0);
    ServedModel served = testing::served_model();
    served.name = name;
    return served;
  });
  std::vector<std::unique_ptr<testing::Client>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<testing::Client>(two.rig->port()));
    clients.back()->ask("POST", "/v1/completions", kBody);
  }
  for (const auto& client : clients) {
    const auto answer = client->answer();
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(testing::at(answer.json(), "model").as_string(), "second");
  }
  EXPECT_EQ(loads, 1);
  const auto listed = two.rig->get("/v1/models").json();
  EXPECT_EQ(testing::at(listed, "data", 1, "id").as_string(), "second");
  EXPECT_EQ(testing::at(listed, "data", 1, "status", "value").as_string(), "loaded");
  EXPECT_EQ(two.rig->get("/v1/models/second").status, 200);
  EXPECT_EQ(two.rig->get("/v1/models/third").status, 404);
}

TEST(TheShelf, TellsWhoWaitsThatNothingCame) {
  std::atomic<int> loads = 0;
  TwoModels two([&](const std::string&, int64_t) -> Result<ServedModel> {
    if (++loads == 1) return error(Code::corrupt, "/secret/path: is no model");
    throw std::runtime_error("out of luck");
  });
  // Whoever comes while others are told that it failed is told the same.
  for (int i = 0; i < 1000 && loads < 2; ++i) {
    const auto answer = two.rig->post("/v1/completions", kBody);
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.body.find("/secret"), std::string::npos) << answer.body;
  }
  EXPECT_EQ(loads, 2);
  EXPECT_EQ(two.rig->post("/v1/completions", R"({"prompt":[1,20],"max_tokens":2})").status, 200);
}

TEST(TheShelf, EndsWithRequestsThatWait) {
  std::promise<void> begun, go;
  std::vector<std::unique_ptr<testing::Client>> clients;
  {
    TwoModels two([&](const std::string&, int64_t) -> Result<ServedModel> {
      begun.set_value();
      go.get_future().wait();
      return error(Code::cancelled, "no more");
    });
    clients.push_back(std::make_unique<testing::Client>(two.rig->port()));
    clients.back()->ask("POST", "/v1/completions", kBody);
    begun.get_future().wait();
    EXPECT_EQ(two.rig->server().service().open(), 1);
    two.rig->server().service().fail_all("the server is shutting down");
    EXPECT_EQ(clients.back()->answer().status, 503);
    go.set_value();
  }
}

}  // namespace
}  // namespace millrace
