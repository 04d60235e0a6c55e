// A model that fills masks over HTTP: the same routes and streams, fields of its own, and 400 for what it cannot
// promise.
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "server/rig.h"

namespace millrace::testing {
namespace {

namespace fs = std::filesystem;

// A golden of another kind whose tokens are made to see each other: what it says has no meaning.
fs::path made_to_fill() {
  const fs::path from = fs::path(MILLRACE_SOURCE_DIR) / "tests/model/golden/llama-mha";
  const fs::path to = fs::path(::testing::TempDir()) / "millrace-diffusion";
  fs::remove_all(to);
  fs::create_directories(to);
  fs::copy(from / "model.safetensors", to / "model.safetensors");
  Json config = parse_json(read_file(from / "config.json").value()).value();
  config.as_object()["is_causal"] = false;
  config.as_object()["mask_token_id"] = 6;
  std::ofstream(to / "config.json") << to_text(config);
  return to;
}

ServedModel served_filler() {
  LoadChoice choice{.path = made_to_fill()};
  choice.cpu.threads = 2;
  ServedModel served{.name = "filler", .fingerprint = "fp_test", .loaded = LoadedModel::load(choice).value()};
  EngineOptions options;
  options.executor.context = 128;
  options.limits.max_sequences = 4;
  options.limits.step_tokens = 16;
  served.engine = Engine::create(served.loaded->model(), served.loaded->backend(), options).value();
  suit_filling(served.defaults);
  return served;
}

std::string body(std::string_view more) {
  return fmt::format(R"({{"prompt":[1,20,30,40],"max_tokens":24,"ignore_eos":true{}{}}})", more.empty() ? "" : ",",
                     more);
}

std::string ids(const Response& response, int choice = 0) {
  EXPECT_EQ(response.status, 200) << response.body;
  return response.status == 200 ? to_text(at(response.json(), "choices", choice, "token_ids")) : "";
}

TEST(DiffusionServer, AnswersInBothModesAndTheSameEveryTime) {
  Rig rig({}, served_filler());
  const std::string exact = ids(rig.post("/v1/completions", body("")));
  EXPECT_EQ(ids(rig.post("/v1/completions", body(""))), exact);
  const std::string frozen = ids(rig.post("/v1/completions", body(R"("block_length":8,"diffusion_steps":12)")));
  EXPECT_NE(frozen, exact);
  EXPECT_NE(ids(rig.post("/v1/completions", body(R"("remasking":"order")"))), "");
  const Response two = rig.post("/v1/completions", body(R"("n":2,"temperature":1,"seed":3)"));
  EXPECT_NE(ids(two, 0), ids(two, 1));
  const Metrics m = rig.metrics();
  EXPECT_EQ(m.fill_passes, 12 * 6);
  EXPECT_EQ(m.filled_tokens, 24 * 6);
  const std::string page = rig.get("/metrics").body;
  const size_t at = page.find("\nmillrace_diffusion_passes_total");
  ASSERT_NE(at, std::string::npos);
  EXPECT_TRUE(page.substr(at + 1, page.find('\n', at + 1) - at - 1).ends_with(" 72"));
  EXPECT_TRUE(eventually([&] { return rig.quiet(); }));
}

TEST(DiffusionServer, StreamsInOrderWhatTheWholeAnswerHas) {
  Rig rig({}, served_filler());
  const Response whole = rig.post("/v1/completions", body(R"("block_length":8)"));
  const Response streamed = rig.post("/v1/completions", body(R"("block_length":8,"stream":true)"));
  EXPECT_EQ(streamed.status, 200);
  std::string joined;
  for (const std::string& event : streamed.events()) {
    if (event == "[DONE]") continue;
    const Json json = parse_json(event).value();
    const Json* list = find(at(json, "choices", 0), "token_ids");
    if (list == nullptr || list->as_array().empty()) continue;
    for (const Json& id : list->as_array()) joined += (joined.empty() ? "" : ",") + to_text(id);
  }
  EXPECT_EQ("[" + joined + "]", ids(whole));
}

TEST(DiffusionServer, RequestsAtDifferentPassesShareSteps) {
  Rig rig({}, served_filler());
  std::vector<std::string> alone, bodies;
  for (const char* more : {R"("diffusion_steps":24)", R"("block_length":6)", R"("diffusion_steps":5)", R"("seed":1)"})
    bodies.push_back(body(more));
  for (const std::string& one : bodies) alone.push_back(ids(rig.post("/v1/completions", one)));
  std::vector<std::unique_ptr<Client>> clients;
  for (const std::string& one : bodies) {
    clients.push_back(std::make_unique<Client>(rig.port()));
    clients.back()->ask("POST", "/v1/completions", one);
  }
  for (size_t i = 0; i < bodies.size(); ++i) EXPECT_EQ(ids(clients[i]->answer()), alone[i]);
}

TEST(DiffusionServer, WhatCannotBePromisedIs400) {
  Rig rig({}, served_filler());
  for (const char* more : {R"("logprobs":2)", R"("presence_penalty":1)", R"("repetition_penalty":1.2)", R"("top_k":5)",
                           R"("top_p":0.5)", R"("logit_bias":{"5":1})", R"("mirostat":2)", R"("remasking":"loudest")",
                           R"("diffusion_steps":-1)", R"("block_length":"8")"}) {
    const Response refused = rig.post("/v1/completions", body(more));
    EXPECT_EQ(refused.status, 400) << more << refused.body;
  }
  const Response told = rig.post("/v1/completions", body(R"("top_k":5)"));
  EXPECT_NE(told.body.find("fills masks"), std::string::npos) << told.body;
  EXPECT_TRUE(eventually([&] { return rig.quiet(); }));
}

TEST(DiffusionServer, PassesOfAModelThatHasNoneAre400) {
  Rig rig;
  const Response refused = rig.post("/v1/completions", R"({"prompt":[400],"max_tokens":4,"diffusion_steps":4})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("token by token"), std::string::npos) << refused.body;
}

}  // namespace
}  // namespace millrace::testing
