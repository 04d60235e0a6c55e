#include <condition_variable>
#include <deque>
#include <mutex>

#include "apps/build_info.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/diffusion.h"
#include "apps/run/flags.h"
#include "apps/run/speculate.h"
#include "apps/serve/batch_files.h"
#include "apps/serve/flags.h"
#include "base/human.h"
#include "server/service.h"

namespace millrace::apps {
namespace {

// A request that was asked, kept until its answer is written: one that found no room is asked again.
struct Asked {
  std::string id, path, body;
  HttpRequest request() const { return {.method = "POST", .path = path, .body = body, .local = true}; }
};

// Answers in the order they come, from any thread. Whoever may still answer keeps it alive.
class Answered {
 public:
  struct Item {
    std::shared_ptr<const Asked> asked;
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
  std::optional<Item> pop(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, patience, [&] { return !items_.empty(); })) return std::nullopt;
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
  LineExchange(std::shared_ptr<Answered> answered, std::shared_ptr<const Asked> asked)
      : answered_(std::move(answered)), asked_(std::move(asked)) {}
  void attach(std::shared_ptr<Job>) override {}
  void answer(HttpAnswer answer) override { answered_->push({asked_, std::move(answer)}); }
  void stream(HttpAnswer) override {}
  void ready() override {}

 private:
  std::shared_ptr<Answered> answered_;
  std::shared_ptr<const Asked> asked_;
};

struct Counts {
  int64_t lines = 0, answered = 0, failed = 0, skipped = 0;
};

class Batch {
 public:
  Batch(Service& service, BatchOutput& output, BatchRecord record, size_t at_once)
      : service_(service), output_(output), record_(std::move(record)), at_once_(at_once) {}

  const Counts& counts() const { return counts_; }

  // Until every line has its row, something cannot be written, or it is interrupted; what is still open then is
  // answered to nobody.
  Result<void> run(BatchInput& input, Progress& progress) {
    std::string text;
    for (auto next = BatchInput::Next::line; next != BatchInput::Next::end;) {
      if (Interruptible::interrupted()) return interrupted_error();
      TRY(next, input.next(text, std::chrono::milliseconds(open_ > 0 ? 20 : 200)));
      if (next == BatchInput::Next::line) TRY_VOID(take(text));
      // Answers are written as they come, however long the next line takes.
      TRY_VOID(land(std::chrono::milliseconds(0)));
      while (open_ >= at_once_) TRY_VOID(land());
      progress.update(input.position());
    }
    while (open_ > 0) TRY_VOID(land());
    return {};
  }
  // Writes what was answered already, without waiting for more.
  Result<void> write_finished() {
    while (auto item = answered_->pop(std::chrono::milliseconds(0))) TRY_VOID(write(*item));
    return {};
  }

 private:
  Result<void> take(const std::string& text) {
    ++counts_.lines;
    if (text.find_first_not_of(" \t\r") == std::string::npos) return {};
    BatchLine line = read_batch_line(text, counts_.lines);
    switch (record_.next(line, counts_.lines)) {
      case BatchRecord::Next::skip:
        ++counts_.skipped;
        return {};
      case BatchRecord::Next::refuse:
        ++counts_.failed;
        return output_.write(batch_error_row(line.id, line.wrong));
      case BatchRecord::Next::ask:
        break;
    }
    ask(std::make_shared<const Asked>(
        Asked{std::move(line.id), std::move(line.request.path), std::move(line.request.body)}));
    return {};
  }
  void ask(std::shared_ptr<const Asked> asked) {
    ++open_;
    HttpRequest request = asked->request();
    service_.handle(std::move(request), std::make_shared<LineExchange>(answered_, std::move(asked)));
  }
  Result<void> land(std::chrono::milliseconds patience = std::chrono::milliseconds(200)) {
    if (Interruptible::interrupted()) return interrupted_error();
    auto item = answered_->pop(patience);
    if (!item) return {};
    --open_;
    // The queue was full: its turn comes when others have ended. Alone it would be refused for good.
    const bool full = item->answer.status == 429 && open_ > 0;
    if (full) waiting_.push_back(std::move(item->asked));
    auto written = full ? Result<void>() : write(*item);
    if (!full && !waiting_.empty()) {
      ask(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    return written;
  }
  Result<void> write(const Answered::Item& item) {
    (item.answer.status == 200 ? counts_.answered : counts_.failed) += 1;
    return output_.write(batch_answer_row(item.asked->id, item.answer, ++written_));
  }

  Service& service_;
  BatchOutput& output_;
  BatchRecord record_;
  size_t at_once_, open_ = 0;
  int64_t written_ = 0;
  Counts counts_;
  std::deque<std::shared_ptr<const Asked>> waiting_;  // refused while others ran
  std::shared_ptr<Answered> answered_ = std::make_shared<Answered>();
};

// The service goes before anything it answers into does.
Result<int> answer_all(const Arguments& arguments, BatchInput& input, BatchOutput& output, BatchRecord record) {
  const Terminal& terminal = arguments.terminal();
  Interruptible scope;
  auto loaded = served_model(arguments, [] { return !Interruptible::interrupted(); });
  if (!loaded.ok() && loaded.error().code == Code::cancelled)
    terminal.note("interrupted while the model was loading: nothing was asked yet");
  TRY(ServedModel model, std::move(loaded));
  const int places = model.engine ? model.engine->facts().limits.max_sequences
                                  : model.embeds->embedder().encoder().options().sequences;
  ServiceOptions options{.version = std::string(kBuildInfo.version)};
  const size_t at_once = std::min(options.most_preparing, static_cast<size_t>(places) * 4);
  Service service(std::move(options));
  service.serve(std::move(model));
  const auto start = std::chrono::steady_clock::now();
  Progress progress(terminal, "batch", std::max<uint64_t>(input.bytes(), 1), Progress::Unit::bytes);
  Batch batch(service, output, std::move(record), at_once);
  auto done = batch.run(input, progress);
  const bool interrupted = !done.ok() && done.error().code == Code::cancelled;
  if (interrupted) done = batch.write_finished();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Metrics metrics = service.metrics();
  const Counts& counts = batch.counts();
  if (!done.ok()) return done.error();
  terminal.note("{} answered, {} with errors, {} done before; {:.1f} s, {:.1f} tokens/s", counts.answered,
                counts.failed, counts.skipped, seconds,
                static_cast<double>(metrics.tokens_out) / std::max(seconds, 1e-9));
  if (!interrupted) return kExitOk;
  terminal.note("interrupted: the same command goes on with what is missing");
  return interrupted_exit_code();
}

Result<int> run_batch(const Arguments& arguments) {
  const std::string in = arguments.text("input"), out = arguments.text("output");
  TRY(BatchInput input, BatchInput::open(in, out));
  BatchRecord record;
  TRY(BatchOutput output, BatchOutput::open(out, record));
  if (record.answered() > 0)
    arguments.terminal().note("going on after {} in {}", counted(record.answered(), "answer"), printable(out));
  return answer_all(arguments, input, output, std::move(record));
}

}  // namespace

Verb batch_verb() {
  return {
      .name = "batch",
      .summary = "answer a file of requests, as many at once as the machine takes",
      .group = "Use a model",
      .flags = joined({hub_flags(),
                       {model_flag(),
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
                       default_flags(),
                       diffusion_flags(),
                       speculate_flags(),
                       {ranks_flag(), pipeline_flag(), whole_experts_flag()},
                       machine_flags()}),
      .examples = {{"batch -i questions.jsonl -o answers.jsonl -np 64", "64 at once"}},
      .notes =
          "A line is {\"custom_id\": ..., \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": {...}}. "
          "After a kill, the same command answers what is missing. A line with a mistake gets an error of its own.",
      .run = run_batch};
}

}  // namespace millrace::apps
