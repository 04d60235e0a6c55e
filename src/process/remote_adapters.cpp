// Adapters of an engine in a process of its own: asked for by frames, and brought back when the process is replaced.
#include <algorithm>

#include "process/remote_engine.h"

namespace millrace {

std::vector<AdapterInfo> RemoteEngine::adapters() const {
  std::lock_guard lock(mutex_);
  return adapters_;
}

void RemoteEngine::load_adapter(AdapterAsk ask, std::function<void(Result<AdapterInfo>)> done) {
  {
    std::lock_guard lock(mutex_);
    if (process_.ready) {
      const int64_t ticket = next_ticket_++;
      adapter_waits_[ticket] = {.name = ask.name, .loaded = std::move(done), .unloaded = {}};
      append_frame(LoadAdapterFrame{ticket, std::move(ask)}, out_);
      done = nullptr;
    }
  }
  if (done) return done(error(Code::overloaded, "the engine is being started again; try in a moment"));
  wake();
}

void RemoteEngine::unload_adapter(std::string name, std::function<void(Result<void>)> done) {
  {
    std::lock_guard lock(mutex_);
    if (process_.ready) {
      const int64_t ticket = next_ticket_++;
      adapter_waits_[ticket] = {.name = name, .loaded = {}, .unloaded = std::move(done)};
      append_frame(UnloadAdapterFrame{ticket, std::move(name)}, out_);
      done = nullptr;
    }
  }
  if (done) return done(error(Code::overloaded, "the engine is being started again; try in a moment"));
  wake();
}

// Answers without a ticket are about adapters that were brought back.
void RemoteEngine::take(const AdapterFrame& frame) {
  AdapterWait wait;
  {
    std::lock_guard lock(mutex_);
    const auto found = adapter_waits_.find(frame.ticket);
    if (found == adapter_waits_.end()) {
      if (frame.error && log_) log_(fmt::format("an adapter is not what it was: {}", frame.error->message));
      return;
    }
    wait = std::move(found->second);
    adapter_waits_.erase(found);
    if (!frame.error && wait.loaded) adapters_.push_back(frame.info);
    if (!frame.error && wait.unloaded)
      std::erase_if(adapters_, [&](const AdapterInfo& info) { return info.name == wait.name; });
  }
  if (wait.loaded) wait.loaded(frame.error ? Result<AdapterInfo>(*frame.error) : frame.info);
  if (wait.unloaded) wait.unloaded(frame.error ? Result<void>(*frame.error) : Result<void>());
}

// The process has those that it was started with; it is to have those that the one before it had. Sent before any
// request, so that requests find theirs. One whose file has changed meanwhile is refused, and requests for it fail.
void RemoteEngine::restore_adapters(const ReadyFrame& frame) {
  auto same = [](const AdapterInfo& a, const AdapterInfo& b) { return a.name == b.name && a.content == b.content; };
  for (const AdapterInfo& there : frame.adapters) {
    if (std::ranges::none_of(adapters_, [&](const AdapterInfo& wanted) { return same(wanted, there); }))
      append_frame(UnloadAdapterFrame{0, there.name}, out_);
  }
  for (const AdapterInfo& wanted : adapters_) {
    if (std::ranges::any_of(frame.adapters, [&](const AdapterInfo& there) { return same(wanted, there); })) continue;
    append_frame(LoadAdapterFrame{0, {wanted.name, wanted.path, wanted.strength, wanted.content}}, out_);
  }
}

std::optional<AdapterInfo> RemoteEngine::adapter_named(const std::string& name) const {
  const auto found = std::ranges::find(adapters_, name, &AdapterInfo::name);
  return name.empty() || found == adapters_.end() ? std::nullopt : std::optional(*found);
}

// An answer goes on with the adapter it began with, though that was unloaded since: the process has it for as long as
// the request takes to find it. Frames are carried out in order.
void RemoteEngine::append_submit(const SubmitFrame& frame, const Open& open) {
  const auto now = open.adapter ? adapter_named(open.adapter->name) : std::nullopt;
  if (!open.adapter || (now && now->content == open.adapter->content)) return append_frame(frame, out_);
  auto load = [&](const AdapterInfo& info) {
    append_frame(LoadAdapterFrame{0, {info.name, info.path, info.strength, info.content}}, out_);
  };
  if (now) append_frame(UnloadAdapterFrame{0, now->name}, out_);
  load(*open.adapter);
  append_frame(frame, out_);
  append_frame(UnloadAdapterFrame{0, open.adapter->name}, out_);
  if (now) load(*now);
}

void RemoteEngine::fail_adapter_waits(const Error& why) {
  std::map<int64_t, AdapterWait> waits;
  {
    std::lock_guard lock(mutex_);
    waits.swap(adapter_waits_);
  }
  for (const auto& [ticket, wait] : waits) {
    if (wait.loaded) wait.loaded(why);
    if (wait.unloaded) wait.unloaded(why);
  }
}

}  // namespace millrace
