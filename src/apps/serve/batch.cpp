#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <fstream>
#include <mutex>

#include "apps/build_info.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/diffusion.h"
#include "apps/run/flags.h"
#include "apps/run/speculate.h"
#include "apps/serve/flags.h"
#include "base/human.h"
#include "server/batch_file.h"
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
  std::optional<Item> pop(std::chrono::milliseconds patience = std::chrono::milliseconds(200)) {
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

// Rows appended one by one, each on its way to the disk before the next begins: a kill loses at most part of the last.
class Output {
 public:
  // What an earlier run wrote there goes into `record`.
  static Result<Output> open(const std::string& path, BatchRecord& record) {
    Output output;
    output.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (output.fd_ < 0) return error(Code::io, "{}: {}", path, std::strerror(errno));
    struct stat what = {};
    if (::fstat(output.fd_, &what) != 0) return error(Code::io, "{}: {}", path, std::strerror(errno));
    if (S_ISREG(what.st_mode)) TRY_VOID(output.resume(path, record));  // a device or a pipe has nothing to go on with
    return output;
  }
  Output(Output&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Output& operator=(Output&&) = delete;
  ~Output() {
    if (fd_ >= 0) ::close(fd_);
  }
  Result<void> write(std::string row) {
    row += '\n';
    for (std::string_view rest = row; !rest.empty();) {
      const ssize_t written = ::write(fd_, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return error(Code::io, "cannot write the answers: {}", std::strerror(errno));
      rest.remove_prefix(static_cast<size_t>(written));
    }
    return {};
  }

 private:
  Output() = default;
  // What an earlier run answered need not be asked again; a row it could not finish is taken back.
  Result<void> resume(const std::string& path, BatchRecord& record) {
    std::ifstream before(path, std::ios::binary);
    std::string row;
    off_t whole = 0;
    for (int64_t number = 1; std::getline(before, row); ++number) {
      const bool finished = !before.eof();
      auto added = finished ? record.add_row(row) : Result<void>();
      if (!added.ok() || (!finished && !BatchRecord::looks_like_row(row)))
        return error(Code::invalid, "{}: line {} is no answer of a batch; give another file with -o", path, number);
      if (finished) whole += static_cast<off_t>(row.size()) + 1;
    }
    if (::ftruncate(fd_, whole) != 0 || ::lseek(fd_, 0, SEEK_END) < 0)
      return error(Code::io, "{}: {}", path, std::strerror(errno));
    return {};
  }
  int fd_ = -1;
};

struct Counts {
  int64_t lines = 0, answered = 0, failed = 0, skipped = 0;
};

class Batch {
 public:
  Batch(Service& service, Output& output, BatchRecord record, size_t at_once)
      : service_(service), output_(output), record_(std::move(record)), at_once_(at_once) {}

  const Counts& counts() const { return counts_; }

  // Until every line has its row, something cannot be written, or it is interrupted; what is still open then is
  // answered to nobody.
  Result<void> run(std::istream& input, Progress& progress, const std::function<uint64_t()>& position) {
    std::string text;
    while (std::getline(input, text)) {
      ++counts_.lines;
      if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
      TRY_VOID(take(text));
      while (open_ >= at_once_) TRY_VOID(land());
      progress.update(position());
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
    if (Interruptible::interrupted()) return interrupted_error();
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
  Result<void> land() {
    if (Interruptible::interrupted()) return interrupted_error();
    auto item = answered_->pop();
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
  Output& output_;
  BatchRecord record_;
  size_t at_once_, open_ = 0;
  int64_t written_ = 0;
  Counts counts_;
  std::deque<std::shared_ptr<const Asked>> waiting_;  // refused while others ran
  std::shared_ptr<Answered> answered_ = std::make_shared<Answered>();
};

Result<std::ifstream> open_input(const std::string& in, const std::string& out) {
  struct stat source = {}, target = {};
  if (::stat(in.c_str(), &source) != 0) return error(Code::io, "{}: cannot be read: {}", in, std::strerror(errno));
  if (S_ISDIR(source.st_mode)) return error(Code::invalid, "{}: this is a folder; -i takes a file of requests", in);
  const bool same = ::stat(out.c_str(), &target) == 0 && S_ISREG(source.st_mode) && source.st_dev == target.st_dev &&
                    source.st_ino == target.st_ino;
  if (same) return error(Code::invalid, "{} and {} are the same file: give the answers another with -o", in, out);
  std::ifstream input(in, std::ios::binary);
  if (!input) return error(Code::io, "{}: cannot be read: {}", in, std::strerror(errno));
  return input;
}

// How many bytes the input has, 0 if it is a pipe.
uint64_t bytes_of(std::ifstream& input) {
  input.seekg(0, std::ios::end);
  const auto bytes = static_cast<uint64_t>(std::max<std::streamoff>(input.tellg(), 0));
  input.clear();
  input.seekg(0);
  input.clear();
  return bytes;
}

// The service goes before anything it answers into does.
Result<int> answer_all(const Arguments& arguments, std::ifstream& input, Output& output, BatchRecord record) {
  const Terminal& terminal = arguments.terminal();
  Interruptible scope;
  TRY(ServedModel model, served_model(arguments, [] { return !Interruptible::interrupted(); }));
  const int places = model.engine ? model.engine->facts().limits.max_sequences
                                  : model.embeds->embedder().encoder().options().sequences;
  ServiceOptions options{.version = std::string(kBuildInfo.version)};
  const size_t at_once = std::min(options.most_preparing, static_cast<size_t>(places) * 4);
  Service service(std::move(options));
  service.serve(std::move(model));
  const auto start = std::chrono::steady_clock::now();
  Progress progress(terminal, "batch", std::max<uint64_t>(bytes_of(input), 1), Progress::Unit::bytes);
  Batch batch(service, output, std::move(record), at_once);
  auto position = [&] { return static_cast<uint64_t>(std::max<std::streamoff>(input.tellg(), 0)); };
  auto done = batch.run(input, progress, position);
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
  TRY(std::ifstream input, open_input(in, out));
  BatchRecord record;
  TRY(Output output, Output::open(out, record));
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
