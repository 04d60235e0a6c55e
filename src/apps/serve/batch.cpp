#include <fcntl.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <fstream>
#include <mutex>
#include <set>

#include "apps/build_info.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "apps/serve/flags.h"
#include "server/service.h"

namespace millrace::apps {
namespace {

constexpr size_t kLongestLine = size_t{16} << 20;

// Answers in the order they come, from any thread.
class Answered {
 public:
  struct Item {
    std::string id;
    HttpAnswer answer;
  };
  void push(Item item) {
    {
      std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
    }
    arrived_.notify_one();
  }
  // Nothing if none came for a moment, so that the caller can look whether it was interrupted.
  std::optional<Item> pop() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, std::chrono::milliseconds(200), [&] { return !items_.empty(); })) return std::nullopt;
    Item item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Item> items_;
};

class LineExchange : public Exchange {
 public:
  LineExchange(Answered& answered, std::string id) : answered_(answered), id_(std::move(id)) {}
  void attach(std::shared_ptr<Job>) override {}
  void answer(HttpAnswer answer) override { answered_.push({id_, std::move(answer)}); }
  void stream(HttpAnswer) override {}
  void ready() override {}

 private:
  Answered& answered_;
  std::string id_;
};

// Lines appended one by one, each on its way to the disk before the next begins: a kill loses at most part of the last.
class Output {
 public:
  static Result<Output> open(const std::string& path, std::set<std::string>& done) {
    Output output;
    output.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (output.fd_ < 0) return error(Code::io, "{}: {}", path, std::strerror(errno));
    TRY_VOID(output.resume(path, done));
    return output;
  }
  Output(Output&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Output& operator=(Output&&) = delete;
  ~Output() {
    if (fd_ >= 0) ::close(fd_);
  }
  Result<void> write(std::string line) {
    line += '\n';
    for (std::string_view rest = line; !rest.empty();) {
      const ssize_t written = ::write(fd_, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return error(Code::io, "cannot write the answers: {}", std::strerror(errno));
      rest.remove_prefix(static_cast<size_t>(written));
    }
    return {};
  }

 private:
  Output() = default;
  // What an earlier run answered need not be asked again; a line it could not finish is taken back.
  Result<void> resume(const std::string& path, std::set<std::string>& done) {
    std::ifstream before(path);
    std::string line;
    off_t whole = 0;
    while (std::getline(before, line) && !before.eof()) {
      auto json = parse_json(line, {.max_bytes = size_t{1} << 30});
      const Json* id = json.ok() ? find(*json, "custom_id") : nullptr;
      if (id == nullptr || !id->is_string())
        return error(Code::invalid, "{}: line {} is no answer of a batch; give another file with -o", path,
                     done.size() + 1);
      done.insert(std::string(id->get_string()));
      whole += static_cast<off_t>(line.size()) + 1;
    }
    if (::ftruncate(fd_, whole) != 0 || ::lseek(fd_, 0, SEEK_END) < 0)
      return error(Code::io, "{}: {}", path, std::strerror(errno));
    return {};
  }
  int fd_ = -1;
};

struct Line {
  std::string id;
  HttpRequest request;
};

Result<Line> read_line(const std::string& text, int64_t number) {
  auto wrong = [&](std::string_view what) { return error(Code::invalid, "line {}: {}", number, what); };
  if (text.size() > kLongestLine) return wrong("longer than 16 MiB");
  auto json = parse_json(text, {.max_depth = 40});
  if (!json.ok()) return wrong(json.error().message);
  const Json *id = find(*json, "custom_id"), *url = find(*json, "url"), *body = find(*json, "body");
  if (id == nullptr || !id->is_string()) return wrong("it has no custom_id");
  Line line{.id = std::string(id->get_string())};
  if (url == nullptr || (*url != Json("/v1/chat/completions") && *url != Json("/v1/completions")))
    return wrong("its url must be /v1/chat/completions or /v1/completions");
  if (body == nullptr || !body->is_object()) return wrong("it has no body");
  if (const Json* stream = find(*body, "stream"); stream != nullptr && *stream == Json(true))
    return wrong("answers of a batch are not streamed");
  line.request = {.method = "POST", .path = std::string(url->get_string()), .body = to_text(*body), .local = true};
  return line;
}

std::string answer_line(const Answered::Item& item, int64_t number) {
  auto body = parse_json(item.answer.body, {.max_bytes = size_t{1} << 30});
  const std::string id = fmt::format("batch_req_{}", number);
  JsonObject out = {{"id", id},
                    {"custom_id", item.id},
                    {"response", JsonObject{{"status_code", item.answer.status},
                                            {"request_id", id},
                                            {"body", body.ok() ? std::move(*body) : Json()}}},
                    {"error", nullptr}};
  return to_text(out);
}

std::string error_line(const std::string& id, std::string_view message) {
  return to_text(JsonObject{{"id", nullptr},
                            {"custom_id", id},
                            {"response", nullptr},
                            {"error", JsonObject{{"code", "invalid_request"}, {"message", message}}}});
}

struct Counts {
  int64_t lines = 0, answered = 0, failed = 0, skipped = 0;
};

class Batch {
 public:
  Batch(Service& service, Output& output, std::set<std::string> done, size_t at_once)
      : service_(service), output_(output), done_(std::move(done)), at_once_(at_once) {}

  Result<Counts> run(std::istream& input, Progress& progress, const std::function<uint64_t()>& position) {
    std::string text;
    while (std::getline(input, text)) {
      ++counts_.lines;
      if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
      TRY_VOID(take(text));
      while (open_ >= at_once_) TRY_VOID(land());
      progress.update(position());
    }
    while (open_ > 0) TRY_VOID(land());
    return counts_;
  }

 private:
  Result<void> take(const std::string& text) {
    auto line = read_line(text, counts_.lines);
    const std::string id = line.ok() ? line->id : fmt::format("line-{}", counts_.lines);
    if (done_.contains(id)) {
      ++counts_.skipped;
      return {};
    }
    if (line.ok() && !asked_.insert(id).second)
      line = error(Code::invalid, "line {}: its custom_id came before", counts_.lines);
    if (!line.ok()) {
      ++counts_.failed;
      return output_.write(error_line(id, line.error().message));
    }
    ++open_;
    service_.handle(std::move(line->request), std::make_shared<LineExchange>(answered_, id));
    return {};
  }
  Result<void> land() {
    if (Interruptible::interrupted()) return interrupted_error();
    auto item = answered_.pop();
    if (!item) return {};
    --open_;
    (item->answer.status == 200 ? counts_.answered : counts_.failed) += 1;
    return output_.write(answer_line(*item, ++written_));
  }

  Service& service_;
  Output& output_;
  std::set<std::string> done_, asked_;  // by earlier runs, by this one
  size_t at_once_, open_ = 0;
  int64_t written_ = 0;
  Counts counts_;
  Answered answered_;
};

Result<int> run(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  const std::string in = arguments.text("input"), out = arguments.text("output");
  std::ifstream input(in, std::ios::binary);
  if (!input) return error(Code::io, "{}: cannot be read: {}", in, std::strerror(errno));
  input.seekg(0, std::ios::end);
  const auto bytes = static_cast<uint64_t>(std::max<std::streamoff>(input.tellg(), 0));
  input.seekg(0);
  std::set<std::string> done;
  TRY(Output output, Output::open(out, done));
  if (!done.empty()) terminal.note("going on after {} answers in {}", done.size(), printable(out));

  Interruptible scope;
  TRY(ServedModel model, served_model(arguments, [] { return !Interruptible::interrupted(); }));
  const size_t at_once = static_cast<size_t>(model.engine->options().limits.max_sequences) * 4;
  Service service({.version = std::string(kBuildInfo.version)});
  service.serve(std::move(model));
  const auto start = std::chrono::steady_clock::now();
  Progress progress(terminal, "batch", std::max<uint64_t>(bytes, 1), Progress::Unit::bytes);
  Batch batch(service, output, std::move(done), at_once);
  auto position = [&] { return static_cast<uint64_t>(std::max<std::streamoff>(input.tellg(), 0)); };
  TRY(Counts counts, batch.run(input, progress, position));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Metrics metrics = service.metrics();
  terminal.note("{} answered, {} with errors, {} done before; {:.1f} s, {:.1f} tokens/s", counts.answered,
                counts.failed, counts.skipped, seconds,
                static_cast<double>(metrics.tokens_out) / std::max(seconds, 1e-9));
  return kExitOk;
}

}  // namespace

Verb batch_verb() {
  return {
      .name = "batch",
      .summary = "answer a file of requests, as many at once as the machine takes",
      .group = "Use a model",
      .flags = joined({{model_flag(),
                        {.name = "input",
                         .alias = "-i",
                         .kind = Kind::path,
                         .value = "IN.jsonl",
                         .required = true,
                         .help = "requests, one a line, in OpenAI's batch format"},
                        {.name = "output",
                         .alias = "-o",
                         .kind = Kind::path,
                         .value = "OUT.jsonl",
                         .required = true,
                         .help = "answers, one a line, in the order they are done; an existing file is gone on with"}},
                       engine_flags(),
                       machine_flags()}),
      .examples = {{"batch -i questions.jsonl -o answers.jsonl -np 64", "64 at once"}},
      .notes =
          "A line is {\"custom_id\": ..., \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": {...}}. "
          "After a kill, the same command answers what is missing. A line with a mistake gets an error of its own.",
      .run = run};
}

}  // namespace millrace::apps
