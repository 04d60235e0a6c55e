#include "server/embed_queue.h"

#include <utility>

namespace millrace {

EmbedQueue::EmbedQueue(std::unique_ptr<Embedder> embedder, size_t most_waiting)
    : embedder_(std::move(embedder)), most_waiting_(most_waiting), thread_([this] { loop(); }) {}

EmbedQueue::~EmbedQueue() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_one();
  thread_.join();
  for (const Task& task : waiting_) task.done(error(Code::cancelled, "the server is shutting down"));
}

bool EmbedQueue::post(Task task) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || waiting_texts_ + task.inputs.size() > most_waiting_) return false;
    waiting_texts_ += task.inputs.size();
    waiting_.push_back(std::move(task));
  }
  arrived_.notify_one();
  return true;
}

int64_t EmbedQueue::texts() const {
  std::lock_guard lock(mutex_);
  return texts_;
}

// Takes what waits, up to about a step's worth, so that one large request does not make others wait for all of it and
// small ones share a step.
void EmbedQueue::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    std::vector<Task> tasks;
    size_t texts = 0;
    const auto most = static_cast<size_t>(embedder_->encoder().options().sequences);
    while (!waiting_.empty() && (tasks.empty() || texts + waiting_.front().inputs.size() <= most)) {
      texts += waiting_.front().inputs.size();
      tasks.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    waiting_texts_ -= texts;
    lock.unlock();
    run(std::move(tasks));
    lock.lock();
    texts_ += static_cast<int64_t>(texts);
  }
}

void EmbedQueue::run(std::vector<Task> tasks) {
  std::vector<EncodeInput> inputs;
  for (Task& task : tasks)
    for (EncodeInput& each : task.inputs) inputs.push_back(std::move(each));
  Rows rows = embedder_->rows(inputs);
  size_t next = 0;
  for (const Task& task : tasks) {
    if (!rows.ok()) {
      task.done(rows.error());
      continue;
    }
    std::vector<std::vector<float>> own;
    for (size_t i = 0; i < task.inputs.size(); ++i) own.push_back(std::move((*rows)[next++]));
    task.done(std::move(own));
  }
}

}  // namespace millrace
