#include "server/stored_answers.h"

#include <algorithm>

#include "server/schema.h"

namespace millrace {
namespace {

// What it takes in memory, with what lists and maps add.
int64_t bytes_of(const StoredAnswer& answer) {
  size_t bytes = answer.body.size() + 512;
  for (const Message& message : answer.messages) {
    bytes += sizeof(Message) + message.role.size() + message.content.size() + message.reasoning.size() +
             message.tool_call_id.size() + message.name.size();
    for (const Json& call : message.tool_calls) bytes += 512 + 2 * to_text(call).size();
  }
  return static_cast<int64_t>(bytes);
}

// Templates of some models want the name of the tool beside what it gave; the call may be in what was kept.
void name_results(std::vector<Message>& messages) {
  std::map<std::string, std::string, std::less<>> names;
  for (Message& message : messages) {
    for (const Json& call : message.tool_calls) {
      const Json *id = find(call, "id"), *function = find(call, "function");
      const Json* name = function != nullptr ? find(*function, "name") : nullptr;
      if (id != nullptr && id->is_string() && name != nullptr && name->is_string())
        names[std::string(id->get_string())] = std::string(name->get_string());
    }
    if (message.role != "tool" || !message.name.empty()) continue;
    if (auto found = names.find(message.tool_call_id); found != names.end()) message.name = found->second;
  }
}

}  // namespace

void StoredAnswers::remove(Entries::iterator entry) {
  counters_.bytes -= entry->bytes;
  auto paid = by_tenant_.find(entry->key.first);
  paid->second -= entry->bytes;
  if (paid->second <= 0) by_tenant_.erase(paid);
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

void StoredAnswers::put(const std::string& tenant, const std::string& id, StoredAnswer answer) {
  const int64_t bytes = bytes_of(answer);
  if (bytes > most_bytes_) return;
  auto kept = std::make_shared<const StoredAnswer>(std::move(answer));
  std::lock_guard hold(lock_);
  const Key key{tenant, id};
  if (auto found = by_key_.find(key); found != by_key_.end()) remove(found->second);
  entries_.push_front({key, std::move(kept), bytes});
  by_key_[key] = entries_.begin();
  by_tenant_[tenant] += bytes;
  counters_.bytes += bytes;
  ++counters_.stored;
  while (counters_.bytes > most_bytes_ && entries_.size() > 1) {
    const auto largest = std::max_element(by_tenant_.begin(), by_tenant_.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
    const std::string whose = largest->first;
    const auto victim =
        std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& entry) { return entry.key.first == whose; });
    if (victim == entries_.rend()) return;
    remove(std::next(victim).base());
    ++counters_.pushed_out;
  }
}

std::shared_ptr<const StoredAnswer> StoredAnswers::find(const std::string& tenant, const std::string& id) {
  std::lock_guard hold(lock_);
  const auto found = by_key_.find({tenant, id});
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->answer;
}

bool StoredAnswers::erase(const std::string& tenant, const std::string& id) {
  std::lock_guard hold(lock_);
  const auto found = by_key_.find({tenant, id});
  if (found == by_key_.end()) return false;
  remove(found->second);
  return true;
}

ApiError StoredAnswers::unknown(const std::string& id) {
  return {
      .status = 404,
      .message = fmt::format("there is no answer '{}' any more, or there never was: answers are kept in memory until "
                             "others need the room or the server ends; send the whole conversation instead",
                             shortened(id)),
      .code = "response_not_found"};
}

std::optional<ApiError> StoredAnswers::go_on(const std::string& tenant, RequestBody& asked) {
  if (asked.previous.empty()) return {};
  const auto before = find(tenant, asked.previous);
  if (before == nullptr) {
    ApiError failure = unknown(asked.previous);
    failure.status = 400;  // as OpenAI's own clients know it
    failure.param = "previous_response_id";
    failure.code = "previous_response_not_found";
    return failure;
  }
  std::vector<Message> all = before->messages;
  size_t taken = 0;
  if (!asked.instructions.empty()) {  // templates know one system message, in front
    Message first = asked.messages[taken++];
    if (!all.empty() && all[0].role == "system") {
      all[0].content = first.content + "\n\n" + all[0].content;
    } else {
      all.insert(all.begin(), std::move(first));
    }
  }
  all.insert(all.end(), asked.messages.begin() + static_cast<ptrdiff_t>(taken), asked.messages.end());
  asked.messages = std::move(all);
  name_results(asked.messages);
  return {};
}

std::vector<Message> StoredAnswers::kept_of(const RequestBody& asked) {
  std::vector<Message> kept = asked.messages;
  const std::string& own = asked.instructions;
  if (own.empty() || kept.empty() || !kept[0].content.starts_with(own)) return kept;
  if (kept[0].content == own) {
    kept.erase(kept.begin());
  } else {
    kept[0].content.erase(0, own.size() + std::string_view("\n\n").size());
  }
  return kept;
}

std::string StoredAnswers::metrics_text() {
  const Counters now = counters();
  std::string text;
  const auto add = [&](std::string_view name, std::string_view type, std::string_view help, int64_t value) {
    text += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n{0} {3}\n", name, type, help, value);
  };
  add("millrace_stored_responses", "gauge", "Answers kept for requests that go on from them.",
      static_cast<int64_t>(now.answers));
  add("millrace_stored_response_bytes", "gauge", "Memory they take.", now.bytes);
  add("millrace_stored_responses_total", "counter", "Answers that were kept.", now.stored);
  add("millrace_stored_responses_evicted_total", "counter", "Of those, pushed out by others for want of room.",
      now.pushed_out);
  return text;
}

StoredAnswers::Counters StoredAnswers::counters() {
  std::lock_guard hold(lock_);
  Counters now = counters_;
  now.answers = entries_.size();
  return now;
}

}  // namespace millrace
