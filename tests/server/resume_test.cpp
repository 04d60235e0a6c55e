// Streams that break at every one of their events and are gone on with at another server: with what the client has, the
// answer is what it would have been. And ids that were changed, or belong to somebody or something else.
#include "server/resume.h"

#include <gtest/gtest.h>

#include <set>

#include "server/rig.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {
namespace {

using testing::Rig;

struct Told {
  std::string id, data;
};

std::vector<Told> told_of(const std::string& body) {
  std::vector<Told> list;
  for (size_t at = 0; at < body.size();) {
    const size_t end = std::min(body.find("\n\n", at), body.size());
    Told one;
    for (size_t line = at; line < end;) {
      const size_t next = std::min(body.find('\n', line), end);
      const std::string_view text = std::string_view(body).substr(line, next - line);
      if (text.starts_with("id: ")) one.id = text.substr(4);
      if (text.starts_with("data: ")) one.data = text.substr(6);
      line = next + 1;
    }
    list.push_back(one);
    at = end + 2;
  }
  return list;
}

// What a stream says, however it is cut into events: texts that grow, by choice and name, and all else that it has.
struct Meaning {
  std::map<std::string, std::string> texts;
  std::set<std::string> rest;
  bool operator==(const Meaning&) const = default;
};

bool grows(std::string_view key) {
  return key == "text" || key == "content" || key == "delta" || key == "token_ids" || key == "tokens" ||
         key == "partial_json" || key == "token_logprobs" || key == "top_logprobs" || key == "text_offset";
}

// What depends on the clock or on how the stream was cut.
bool passing(std::string_view key) {
  return key == "sequence_number" || key == "timings" || key == "tokens_predicted" || key == "logprobs";
}

void fold(Meaning& meaning, Json& json, const std::string& place) {
  if (auto* list = json.if_array())
    for (Json& each : *list) fold(meaning, each, place);
  auto* object = json.if_object();
  if (object == nullptr) return;
  std::string here = place;
  if (const Json* index = find(json, "index")) here += to_text(*index) + ".";
  std::vector<std::string> gone;  // whether an event has them depends on where the stream was cut
  for (auto& [key, value] : *object) {
    const std::string name(key);
    const bool end = name == "finish_reason" || name == "stop_reason";
    if ((grows(name) && !value.is_object()) || end) {
      std::string text = value.is_null() ? "" : to_text(value);  // "..." or [...]
      if (value.is_string() || value.is_array()) text = text.substr(1, text.size() - 2);
      if (!text.empty() && value.is_array()) text += ',';
      if (!text.empty()) meaning.texts[here + name] += text;
      gone.push_back(name);
    } else if (passing(name)) {
      gone.push_back(name);
    } else {
      fold(meaning, value, here + name + ".");
    }
  }
  for (const std::string& name : gone) object->erase(name);
}

Meaning meaning_of(std::span<const Told> list) {
  Meaning meaning;
  for (const Told& one : list) {
    auto json = parse_json(one.data);
    if (!json.ok()) {
      meaning.rest.insert(one.data);
      continue;
    }
    fold(meaning, *json, "");
    // An event that only adds text: whether there is one depends on how many tokens an event has.
    if (to_text(*json).find(R"("finish_reason":null)") != std::string::npos) continue;
    meaning.rest.insert(to_text(*json));
  }
  return meaning;
}

struct Case {
  std::string name, path, body;
};

std::vector<Case> cases() {
  return {
      {"chat", "/v1/chat/completions",
       R"({"messages":[{"role":"user","content":"Write a story about a fox."}],"max_tokens":24,"stream":true,)"
       R"("stream_options":{"include_usage":true},"temperature":1})"},
      {"completions", "/v1/completions",
       R"({"prompt":"Once upon a time","max_tokens":12,"n":2,"echo":true,"stream":true,"temperature":0.9,)"
       R"("return_token_ids":true,"stop":["the"],"stream_options":{"include_usage":true}})"},
      {"seeded", "/v1/completions",
       R"({"prompt":["One day","A cat"],"max_tokens":10,"stream":true,"seed":7,"return_token_ids":true})"},
      {"messages", "/v1/messages",
       R"({"messages":[{"role":"user","content":"Write a story about a dog."}],"max_tokens":16,"stream":true})"},
      {"responses", "/v1/responses", R"({"input":"Write a story about a bird.","max_output_tokens":16,"stream":true})"},
      {"llama.cpp", "/completion", R"({"prompt":"Once upon a time","n_predict":12,"stream":true})"},
  };
}

class Resume : public ::testing::TestWithParam<Case> {};

TEST_P(Resume, AtEveryEventAndAtAnotherServer) {
  Rig first, second;
  const Case& one = GetParam();
  const auto begun = first.post(one.path, one.body, "X-Event-Ids: 1\r\n");
  ASSERT_EQ(begun.status, 200) << begun.body;
  const std::vector<Told> whole = told_of(begun.body);
  ASSERT_GE(whole.size(), 2U);  // how many there are depends on how fast they are written
  const Meaning wanted = meaning_of(whole);
  for (size_t k = 0; k < whole.size(); ++k) {
    ASSERT_FALSE(whole[k].id.empty()) << k;
    const auto again = second.post(one.path, one.body, "Last-Event-ID: " + whole[k].id + "\r\n");
    ASSERT_EQ(again.status, 200) << again.body;
    std::vector<Told> both(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(k) + 1);
    const std::vector<Told> rest = told_of(again.body);
    both.insert(both.end(), rest.begin(), rest.end());
    const Meaning got = meaning_of(both);
    EXPECT_EQ(got.texts, wanted.texts) << "from event " << k;
    EXPECT_EQ(got.rest, wanted.rest) << "from event " << k;
    // And again from an id of the second stream.
    if (rest.size() < 2) continue;
    const auto third = first.post(one.path, one.body, "Last-Event-ID: " + rest[0].id + "\r\n");
    both.resize(k + 2);
    const std::vector<Told> last = told_of(third.body);
    both.insert(both.end(), last.begin(), last.end());
    EXPECT_EQ(meaning_of(both), wanted) << "twice from event " << k;
  }
  const std::string metrics = second.get("/metrics").body;
  EXPECT_NE(metrics.find(fmt::format("millrace_http_resumed_total {}", whole.size())), std::string::npos) << metrics;
}

INSTANTIATE_TEST_SUITE_P(Dialects, Resume, ::testing::ValuesIn(cases()),
                         [](const auto& each) { return each.param.name == "llama.cpp" ? "llama" : each.param.name; });

// Events of the Responses interface have numbers, which go on without a gap.
TEST(ResumeRefused, NumbersGoOn) {
  Rig rig;
  const Case one = cases()[4];
  const std::vector<Told> whole = told_of(rig.post(one.path, one.body, "X-Event-Ids: 1\r\n").body);
  const auto rest = told_of(rig.post(one.path, one.body, "Last-Event-ID: " + whole[5].id + "\r\n").body);
  ASSERT_GT(rest.size(), 2U);
  for (size_t i = 0; i < rest.size(); ++i)
    EXPECT_EQ(testing::at(parse_json(rest[i].data).value(), "sequence_number"), Json(static_cast<int64_t>(6 + i)));
}

TEST(ResumeRefused, StreamsWithoutTheWishHaveNoIds) {
  Rig rig;
  const Case one = cases()[0];
  EXPECT_EQ(rig.post(one.path, one.body).body.find("id: "), std::string::npos);
  EXPECT_EQ(rig.post(one.path, one.body, "X-Event-Ids: 0\r\n").body.find("\nid: "), std::string::npos);
}

TEST(ResumeRefused, ChangedAndForeignIds) {
  Rig rig;
  const Case one = cases()[0], other = cases()[1];
  const std::string id = told_of(rig.post(one.path, one.body, "X-Event-Ids: 1\r\n").body)[2].id;
  auto status = [&](const std::string& path, const std::string& body, const std::string& text) {
    const auto answer = rig.post(path, body, "Last-Event-ID: " + text + "\r\n");
    return answer.status;
  };
  ASSERT_EQ(status(one.path, one.body, id), 200);
  for (size_t i = 0; i < id.size(); ++i) {
    std::string changed = id;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    EXPECT_EQ(status(one.path, one.body, changed), 400) << i;
    EXPECT_EQ(status(one.path, one.body, id.substr(0, i) + (i == 0 ? "x" : "")), 400) << i;
  }
  EXPECT_EQ(status(one.path, one.body, id + "A"), 400);
  EXPECT_EQ(status(one.path, one.body, "cmpl-1:5"), 400);
  EXPECT_EQ(status(one.path, one.body, std::string(4000, 'A')), 400);
  EXPECT_EQ(status(other.path, other.body, id), 400);             // another body
  EXPECT_EQ(status("/v1/completions", one.body, id), 400);        // another path
  EXPECT_EQ(status(one.path, one.body + " ", id), 400);           // the same in other bytes
  EXPECT_EQ(status("/api/chat", R"({"messages":[]})", id), 400);  // no events
  std::string whole = one.body;
  whole.replace(whole.find(R"("stream":true)"), 13, R"("stream":false)");
  EXPECT_EQ(status(one.path, whole, id), 400);
}

// Without a secret anybody can seal ids. Made up ones end their stream, whatever they say.
TEST(ResumeRefused, PlacesPastTheEndEndTheStream) {
  Rig rig;
  const SealKey key = seal_key(std::nullopt, "");
  for (const size_t at : {0U, 1U}) {
    const Case one = cases()[at];
    const std::vector<Told> whole = told_of(rig.post(one.path, one.body, "X-Event-Ids: 1\r\n").body);
    auto opened = open_place(whole[2].id, key);
    ASSERT_TRUE(opened.ok());
    for (int kind = 0; kind < 4; ++kind) {
      EventPlace place = *opened;
      if (kind == 0) place.after.taken = 1 << 20;
      if (kind == 1) place.sent[0] = {1 << 20, true, false};
      if (kind == 2) place.first = place.told = place.cached = place.created = int64_t{1} << 53;
      if (kind == 3) place.choice = 0, place.after = {1 << 20, true, true}, place.sent[0] = place.after;
      const auto answer = rig.post(one.path, one.body, "Last-Event-ID: " + seal_place(place, key) + "\r\n");
      EXPECT_EQ(answer.status, 200) << answer.body;
    }
    EventPlace place = *opened;
    place.first = INT64_MAX;
    EXPECT_EQ(rig.post(one.path, one.body, "Last-Event-ID: " + seal_place(place, key) + "\r\n").status, 400);
  }
  EXPECT_TRUE(testing::eventually([&] { return rig.quiet(); }));
}

TEST(ResumeRefused, AnotherFingerprintIsAConflict) {
  Rig rig;
  ServedModel changed = testing::served_model();
  changed.fingerprint = "fp_other";
  Rig other({}, std::move(changed));
  ServedModel defaults = testing::served_model();
  defaults.defaults.sampling.temperature += 0.25;
  Rig warmer({}, std::move(defaults));
  const Case one = cases()[0];
  const std::string header =
      "Last-Event-ID: " + told_of(rig.post(one.path, one.body, "X-Event-Ids: 1\r\n").body)[2].id + "\r\n";
  EXPECT_EQ(rig.post(one.path, one.body, header).status, 200);
  for (Rig* each : {&other, &warmer}) {
    const auto answer = each->post(one.path, one.body, header);
    EXPECT_EQ(answer.status, 409) << answer.body;
  }
}

TEST(ResumeRefused, AnotherTenantOrSecret) {
  ServerOptions options;
  ASSERT_TRUE(options.service.keys.add("ann", "key-of-ann-0123456789").ok());
  ASSERT_TRUE(options.service.keys.add("ben", "key-of-ben-0123456789").ok());
  ServerOptions shared = options, secret = options;
  shared.service.secret = secret.service.secret = std::array<uint8_t, 32>{1};
  Rig open(options), a(shared), b(secret);
  const std::string ann = "Authorization: Bearer key-of-ann-0123456789\r\n",
                    ben = "Authorization: Bearer key-of-ben-0123456789\r\n";
  const Case one = cases()[0];
  const std::string id = told_of(a.post(one.path, one.body, ann + "X-Event-Ids: 1\r\n").body)[2].id;
  const std::string header = "Last-Event-ID: " + id + "\r\n";
  EXPECT_EQ(b.post(one.path, one.body, ann + header).status, 200);
  EXPECT_EQ(b.post(one.path, one.body, ben + header).status, 400);
  EXPECT_EQ(open.post(one.path, one.body, ann + header).status, 400);  // it does not know the secret
}

}  // namespace
}  // namespace millrace
#endif
