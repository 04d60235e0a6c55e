// What a body may say: every field of the table at and beyond its edges, the shapes of errors, and JSON of every bad
// kind. No socket and no model.
#include "server/openai/read_request.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

std::optional<ApiError> read(std::string_view body, RequestBody& out, Body kind = kChat) {
  return read_request_body(body, kind, {}, out);
}

ApiError refused(std::string_view body, Body kind = kChat) {
  RequestBody asked;
  auto failure = read(body, asked, kind);
  EXPECT_TRUE(failure.has_value()) << body;
  return failure.value_or(ApiError{.status = 0});
}

constexpr std::string_view kTalk = R"("messages":[{"role":"user","content":"hi"}])";
std::string talk(std::string_view rest) { return fmt::format("{{{},{}}}", kTalk, rest); }
std::string text(std::string_view rest) { return fmt::format(R"({{"prompt":"hi",{}}})", rest); }

TEST(RequestBody, ReadsEverythingAChatMaySay) {
  RequestBody asked;
  auto failure =
      read(talk(R"("stream":true,"stream_options":{"include_usage":true},"max_tokens":7,"n":3,"stop":["a","b"],
      "temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,"seed":42,"logprobs":true,"top_logprobs":5,"user":"me",
      "presence_penalty":0.25,"frequency_penalty":-0.5,"repetition_penalty":1.5,"logit_bias":{"17":-100,"4":2.5},
      "ttft_ms":500,"tpot_ms":50,"priority":3,"stop_token_ids":[5,6],"ignore_eos":true,"min_tokens":2,
      "chat_template_kwargs":{"enable_thinking":false},"model":"m","store":true,"tools":[],"response_format":{"type":"text"})"),
           asked);
  ASSERT_FALSE(failure) << failure->message;
  EXPECT_TRUE(asked.stream && asked.include_usage && asked.ignore_end);
  EXPECT_EQ(asked.max_tokens, 7);
  EXPECT_EQ(asked.request.choices, 3);
  EXPECT_EQ(asked.stops, (std::vector<std::string>{"a", "b"}));
  const Sampling& s = asked.request.sampling;
  EXPECT_EQ(s.temperature, 0.5);
  EXPECT_EQ(s.top_p, 0.9);
  EXPECT_EQ(s.top_k, 40);
  EXPECT_EQ(s.seed, 42U);
  EXPECT_EQ(s.presence, 0.25);
  EXPECT_EQ(s.frequency, -0.5);
  EXPECT_EQ(s.repetition, 1.5);
  ASSERT_EQ(s.bias.size(), 2U);
  EXPECT_EQ(s.bias[0].token, 17);
  EXPECT_EQ(s.bias[0].bias, -100.0F);
  EXPECT_EQ(asked.request.logprobs, 5);
  EXPECT_DOUBLE_EQ(asked.request.targets.first_token, 0.5);
  EXPECT_DOUBLE_EQ(asked.request.targets.next_token, 0.05);
  EXPECT_EQ(asked.request.priority, 3);
  EXPECT_EQ(asked.request.stop_tokens, (std::vector<Token>{5, 6}));
  EXPECT_EQ(asked.chat_options.variables.size(), 1U);
}

TEST(RequestBody, NullsCountAsAbsent) {
  RequestBody asked;
  ASSERT_FALSE(read(talk(R"("temperature":null,"stop":null,"max_tokens":null,"seed":null,"logprobs":null)"), asked));
  EXPECT_EQ(asked.request.sampling.temperature, 0.8);
  EXPECT_EQ(asked.max_tokens, 0);  // what the context has room for
  EXPECT_TRUE(asked.new_seed);
  EXPECT_EQ(asked.request.logprobs, -1);
  RequestBody completion;
  ASSERT_FALSE(read(R"({"prompt":"x"})", completion, kCompletion));
  EXPECT_EQ(completion.max_tokens, 16);
}

TEST(RequestBody, PromptsComeInFourShapes) {
  auto prompts = [](std::string_view body) {
    RequestBody asked;
    auto failure = read(body, asked, kCompletion);
    EXPECT_FALSE(failure) << body << (failure ? failure->message : "");
    return asked.prompts;
  };
  EXPECT_EQ(prompts(R"({"prompt":"a"})"), (std::vector<Prompt>{"a"}));
  EXPECT_EQ(prompts(R"({"prompt":["a","b"]})"), (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(prompts(R"({"prompt":[1,2]})"), (std::vector<Prompt>{std::vector<Token>{1, 2}}));
  EXPECT_EQ(prompts(R"({"prompt":[[1],[2,3]]})"),
            (std::vector<Prompt>{std::vector<Token>{1}, std::vector<Token>{2, 3}}));
  for (std::string_view bad :
       {R"({"prompt":[]})", R"({"prompt":[1,"a"]})", R"({"prompt":["a",1]})", R"({"prompt":[[1],"a"]})",
        R"({"prompt":[-1]})", R"({"prompt":[1.5]})", R"({"prompt":[2147483648]})", R"({"prompt":{}})",
        R"({"prompt":5})", R"({})", R"({"prompt":null})"}) {
    EXPECT_EQ(refused(bad, kCompletion).param, "prompt") << bad;
  }
}

TEST(RequestBody, PartsOfContentAreJoinedAndImagesRefused) {
  RequestBody asked;
  ASSERT_FALSE(
      read(R"({"messages":[{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"user","content":"c"},{"role":"assistant","content":null}]})",
           asked));
  ASSERT_EQ(asked.messages.size(), 3U);
  EXPECT_EQ(asked.messages[0].role, "system");
  EXPECT_EQ(asked.messages[0].content, "a\nb");
  const ApiError image =
      refused(R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}}]}]})");
  EXPECT_EQ(image.code, "unsupported_parameter");
  EXPECT_NE(image.message.find("not built"), std::string::npos);
}

TEST(RequestBody, WhatIsNotBuiltIsSaidAndNeverIgnored) {
  for (std::string_view field : {R"("structured_outputs":{"structural_tag":"x"})", R"("modalities":["audio"])",
                                 R"("verbosity":"low")", R"("mirostat":1)"}) {
    const ApiError failure = refused(talk(field));
    EXPECT_EQ(failure.status, 400) << field;
    EXPECT_EQ(failure.code, "unsupported_parameter") << field;
    EXPECT_NE(failure.message.find("not built"), std::string::npos) << failure.message;
  }
}

// What a request does not say is as the defaults have it, and what it says is as it says.
TEST(RequestBody, TheDefaultsAreOneSet) {
  SamplingDefaults defaults;
  defaults.sampling.temperature = 0.6;
  defaults.sampling.top_k = 20;
  defaults.sampling.repetition = 1.05;
  defaults.dry_breakers = {"|"};
  RequestBody silent, says;
  ASSERT_FALSE(read_request_body(R"({"prompt":"x"})", kCompletion, {}, silent, defaults));
  ASSERT_FALSE(read_request_body(R"({"prompt":"x","temperature":0,"top_k":-1,"repeat_penalty":1.2,"top_p":0})",
                                 kCompletion, {}, says, defaults));
  for (const SamplingValue& value : sampling_values()) {
    if (value.number != nullptr) {
      EXPECT_EQ(silent.request.sampling.*value.number, defaults.sampling.*value.number) << value.name;
    } else {
      EXPECT_EQ(silent.request.sampling.*value.integer, defaults.sampling.*value.integer) << value.name;
    }
    // Every value with a default can be asked for, and the table has the default we have without a model.
    const auto fields = openai_bodies().fields;
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == value.name; });
    ASSERT_NE(field, fields.end()) << value.name;
    EXPECT_EQ(parse_json(field->otherwise).value().to_number<double>(),
              find(sampling_json(SamplingDefaults()), value.name)->to_number<double>())
        << value.name;
  }
  EXPECT_EQ(silent.dry_breakers, defaults.dry_breakers);
  EXPECT_EQ(says.request.sampling.temperature, 0);
  EXPECT_EQ(says.request.sampling.top_k, 0);
  EXPECT_EQ(says.request.sampling.repetition, 1.2);
  EXPECT_GT(says.request.sampling.top_p, 0);
}

TEST(RequestBody, MisspeltFieldsAreRefusedWithWhatIsMeant) {
  for (const auto& [given, param, meant] :
       {std::tuple{R"("temprature":1)", "temprature", "temperature"},
        {R"("maxTokens":1)", "maxTokens", "max_tokens"},
        {R"("max-tokens":1)", "max-tokens", "max_tokens"},
        {R"("top_kk":1)", "top_kk", "top_k"},
        {R"("stream_options":{"include_usgae":true})", "stream_options.include_usgae", "include_usage"},
        {R"("tool":[])", "tool", "tools"}}) {
    const ApiError failure = refused(talk(given));
    EXPECT_EQ(failure.param, param);
    EXPECT_EQ(failure.code, "unknown_parameter");
    EXPECT_NE(failure.message.find(fmt::format("'{}' is meant", meant)), std::string::npos) << failure.message;
  }
  const ApiError message = refused(R"({"messages":[{"role":"user","content":"a"},{"rol":"user","content":"b"}]})");
  EXPECT_EQ(message.param, "messages.[1].rol");
  const ApiError part = refused(R"({"messages":[{"role":"user","content":[{"type":"text","text":"a","texts":"b"}]}]})");
  EXPECT_EQ(part.param, "messages.[0].content.[0].texts");
  // What means something in another body is not harmless here.
  EXPECT_EQ(refused(text(R"("max_completion_tokens":5)"), kCompletion).param, "max_completion_tokens");
  EXPECT_EQ(refused(talk(R"("prompt":"x")")).param, "prompt");
}

TEST(RequestBody, HarmlessUnknownFieldsAreTakenAndNamed) {
  RequestBody asked;
  ASSERT_FALSE(read(R"({"messages":[{"role":"user","content":"a","weight":1},{"role":"user","content":[
      {"type":"text","text":"a","source":"x"}],"weight":2,"name":"me"}],"trace_id":"5","metadata":{"a":1},"store":null,
      "stream_options":{"chunk_size":5}})",
                    asked));
  EXPECT_EQ(asked.ignored, (Ignored{"messages.[].content.[].source", "messages.[].weight", "metadata",
                                    "stream_options.chunk_size", "trace_id"}));
  HttpAnswer answer;
  add_ignored(asked.ignored, answer);
  ASSERT_EQ(answer.headers.size(), 1U);
  EXPECT_EQ(answer.headers[0].first, "X-Millrace-Ignored");
  EXPECT_TRUE(answer.headers[0].second.ends_with("metadata, stream_options.chunk_size, trace_id"));
  HttpAnswer plain;
  add_ignored({}, plain);
  EXPECT_TRUE(plain.headers.empty());
}

// However many and whatever names there are, the header is short and plain, and a body of nothing but names is refused.
TEST(RequestBody, IgnoredNamesCannotBeAbused) {
  RequestBody asked;
  std::string name(63, 'x');
  name += "\xC3\xA9\xC3\xA9";  // a name is cut between characters
  ASSERT_FALSE(read(talk(fmt::format(R"("{}":1,"a\r\nb: c":1,"d,e":1)", name)), asked));
  EXPECT_EQ(asked.ignored, (Ignored{"a\r\nb: c", "d,e", std::string(63, 'x')}));
  HttpAnswer answer;
  add_ignored(asked.ignored, answer);
  EXPECT_EQ(answer.headers[0].second, "a??b:?c, d?e, " + std::string(63, 'x'));
  std::string many = R"("first":0)";
  for (int i = 0; i < 128; ++i) many += fmt::format(R"(,"unknown-name-{}-{}":1)", i, std::string(40, 'y'));
  const ApiError too_many = refused(talk(many));
  EXPECT_NE(too_many.message.find("at most 128"), std::string::npos) << too_many.message;
  std::string spread;
  for (int i = 0; i < 60; ++i)
    spread += fmt::format(R"(,{{"role":"user","content":"x","first-{0}-{1}":1,"second-{0}-{1}":2,"third-{0}-{1}":3}})",
                          i, std::string(20, 'y'));
  EXPECT_EQ(refused(fmt::format(R"({{"messages":[{}]}})", spread.substr(1))).code, "unknown_parameter");
  Ignored some;
  for (int i = 0; i < 100; ++i) some.insert(fmt::format("{}{}", std::string(60, 'z'), i));
  HttpAnswer cut;
  add_ignored(some, cut);
  EXPECT_LT(cut.headers[0].second.size(), 1200U);
  EXPECT_TRUE(cut.headers[0].second.ends_with(" more"));
}

// Every numeric field of the table, at its edges and beyond, with every wrong kind of value.
TEST(RequestBody, EveryFieldHoldsItsRange) {
  int tried = 0;
  for (const Field& field : openai_bodies().fields) {
    if (field.shape != Shape::integer && field.shape != Shape::number) continue;
    for (Body kind : {kChat, kCompletion}) {
      if ((field.bodies & kind) == 0) continue;
      auto failure_for = [&, kind_now = kind](std::string_view value) {
        const std::string rest = fmt::format(R"("{}":{})", field.name, value);
        RequestBody asked;
        return read(kind_now == kChat ? talk(rest) : text(rest), asked, kind_now);
      };
      for (std::string_view bad : {"\"1\"", "[]", "{}", "true", "1e999", "-1e999", "1e308", "-1e308", "[1]"}) {
        auto failure = failure_for(bad);
        ASSERT_TRUE(failure) << field.name << " " << bad;
        EXPECT_EQ(failure->status, 400);
        ++tried;
      }
      if (field.most < 1e17) {
        for (double beyond : {field.least - 1, field.most + 1, field.most * 2 + 10, -1e15}) {
          auto failure = failure_for(fmt::format("{:.10g}", beyond));
          ASSERT_TRUE(failure) << field.name << " " << beyond;
          EXPECT_EQ(failure->param, field.name);
          ++tried;
        }
      }
      for (double edge : {field.least, field.most}) {
        auto failure = failure_for(fmt::format("{:.17g}", edge));
        // Other rules may refuse it (n beyond the choices of a request, min_tokens beyond max_tokens), but never its
        // range.
        if (failure) {
          EXPECT_EQ(failure->message.find("must be between"), std::string::npos) << failure->message;
        }
        ++tried;
      }
      EXPECT_FALSE(failure_for("null")) << field.name;
      if (field.shape == Shape::integer) {
        EXPECT_TRUE(failure_for("1.5")) << field.name;
      }
    }
  }
  EXPECT_GT(tried, 800);
}

TEST(RequestBody, ListsAndTextsHaveMostEntries) {
  EXPECT_EQ(
      refused(talk(R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])")).param,
      "stop");
  EXPECT_EQ(refused(talk(fmt::format(R"("stop":"{}")", std::string(257, 'a')))).param, "stop");
  EXPECT_EQ(refused(talk(R"("stop":"")")).param, "stop");
  EXPECT_EQ(refused(talk(R"("n":33)")).param, "n");
  EXPECT_EQ(refused(R"({"prompt":["a","b"],"n":17})", kCompletion).param, "n");
  EXPECT_EQ(refused(R"({"messages":[]})").param, "messages");
  EXPECT_EQ(refused(talk(R"("logit_bias":{"x":1})")).param, "logit_bias");
  EXPECT_EQ(refused(talk(R"("logit_bias":{"1":1001})")).param, "logit_bias");
  EXPECT_EQ(refused(talk(R"("top_logprobs":3)")).param, "top_logprobs");
  EXPECT_EQ(refused(talk(R"("min_tokens":5,"max_tokens":4)")).param, "min_tokens");
}

TEST(RequestBody, BadMessagesAreNamedByPlace) {
  EXPECT_EQ(refused(R"({"messages":[{"role":"user","content":"x"},{"role":"wizard","content":"x"}]})").param,
            "messages.[1].role");
  EXPECT_EQ(refused(R"({"messages":[{"content":"x"}]})").param, "messages.[0].role");
  EXPECT_EQ(refused(R"({"messages":[{"role":"user"}]})").param, "messages.[0].content");
  EXPECT_EQ(refused(R"({"messages":[{"role":"user","content":5}]})").param, "messages.[0].content");
  EXPECT_EQ(refused(R"({"messages":["x"]})").param, "messages.[0]");
  EXPECT_EQ(refused(R"({"messages":[{"role":"assistant","content":null,"tool_calls":[{}]}]})").param,
            "messages.[0].tool_calls.[0].function");
}

// After the cases of nst/JSONTestSuite: what must be refused.
TEST(RequestBody, BrokenJsonIsRefused) {
  const std::string deep(100000, '[');
  const std::string_view cases[] = {"",
                                    " ",
                                    "[1,]",
                                    "{\"a\":1,}",
                                    "{'a':1}",
                                    "{\"a\"}",
                                    "{\"a\":}",
                                    "{:1}",
                                    "{\"a\" 1}",
                                    "nul",
                                    "True",
                                    "+1",
                                    "01",
                                    "1.",
                                    ".5",
                                    "-",
                                    "1e",
                                    "0x1",
                                    "Infinity",
                                    "NaN",
                                    "\"\\x\"",
                                    "\"\\u12\"",
                                    "\"\\ud800\"",
                                    "\"\\udc00\\ud800\"",
                                    "\"\n\"",
                                    "\"\t\"",
                                    "{\"a\":1}}",
                                    "{\"a\":1} x",
                                    "{\"a\":1}{",
                                    "// c\n{}",
                                    "/**/{}",
                                    "\xEF\xBB\xBF{}",
                                    "\"\xFF\"",
                                    "\"\xC0\x80\"",
                                    "\"\xED\xA0\x80\"",
                                    "[",
                                    "{",
                                    "\"",
                                    "{\"a\":1,\"a\":2}",
                                    "[1 2]",
                                    "{\"a\":[}",
                                    "\xFF\xFE{\0}\0",
                                    deep,
                                    "{\"a\":\"\\\"}",
                                    "[\"a\",\n4\n,1,",
                                    "[1e1000]",
                                    "5",
                                    "[]",
                                    "null"};
  for (std::string_view body : cases) {
    const ApiError failure = refused(body);
    EXPECT_EQ(failure.status, 400) << body.substr(0, 40);
    EXPECT_EQ(failure.code, "invalid_json") << body.substr(0, 40) << ": " << failure.message;
  }
  std::string nested = R"({"messages":[{"role":"user","content":"x"}],"metadata":)";
  for (int i = 0; i < 80; ++i) nested += R"({"a":)";
  nested += "1" + std::string(80, '}') + "}";
  EXPECT_EQ(refused(nested).code, "invalid_json");
}

TEST(Schema, DocumentsWhatItChecks) {
  const JsonObject schema = schema_json(openai_bodies(), kChat);
  const auto& properties = schema.at("properties").get_object();
  EXPECT_EQ(properties.at("temperature").get_object().at("maximum"), Json(100.0));
  EXPECT_EQ(properties.at("top_logprobs").get_object().at("maximum"), Json(20));
  EXPECT_EQ(properties.if_contains("modalities"), nullptr);
  for (const Field& field : openai_bodies().fields) {
    EXPECT_FALSE(field.help.empty()) << field.name;
    EXPECT_NE(field.bodies, 0U) << field.name;
    const bool has_table = field.shape == Shape::objects || field.name == "stream_options" ||
                           field.name == "prediction" || field.name == "response_format" ||
                           field.name == "structured_outputs";
    EXPECT_EQ(field.inside != nullptr, has_table) << field.name;
    if (!field.otherwise.empty()) {
      EXPECT_TRUE(parse_json(field.otherwise).ok()) << field.name;
    }
  }
}

TEST(ApiErrors, HaveOpenAisShape) {
  const HttpAnswer answer =
      error_answer({.status = 429, .message = "later", .type = "rate_limit_error", .retry_after = 2.2});
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.body, R"({"error":{"message":"later","type":"rate_limit_error","param":null,"code":null}})");
  ASSERT_EQ(answer.headers.size(), 1U);
  EXPECT_EQ(answer.headers[0], (std::pair<std::string, std::string>{"Retry-After", "3"}));
}

}  // namespace
}  // namespace millrace
