// Adapters of an engine: read where they are asked for, put in place between steps on the engine thread, and taken out
// when the last request that has them has ended.
#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "model/adapter.h"

namespace millrace {
namespace {

constexpr size_t kLongestName = 256;

Result<void> check_ask(const AdapterAsk& ask) {
  if (ask.name.empty() || ask.name.size() > kLongestName)
    return error(Code::invalid, "an adapter needs a name of 1 to {} bytes; this one has {}", kLongestName,
                 ask.name.size());
  if (!std::isfinite(ask.strength)) return error(Code::invalid, "the adapter's strength is {}", ask.strength);
  return {};
}

}  // namespace

std::vector<AdapterInfo> Engine::adapters() const {
  std::lock_guard lock(mutex_);
  std::vector<AdapterInfo> all;
  for (const Loaded& each : adapters_) all.push_back(each.info);
  return all;
}

Result<AdapterInfo> Engine::install(const AdapterAsk& ask, const Adapter& adapter) {
  TRY_VOID(check_ask(ask));
  if (ask.content && *ask.content != adapter.content)
    return error(Code::io, "{}: the adapter '{}' is not what it was when it was first loaded", ask.path, ask.name);
  for (const Loaded& each : adapters_) {
    if (each.info.name == ask.name)
      return error(Code::invalid, "an adapter '{}' is loaded already; unload it first, or give this one another name",
                   ask.name);
  }
  auto place = parts_.executor->load_adapter(adapter);
  if (!place.ok()) return within(ask.path, place.error());
  const AdapterInfo info = {.name = ask.name,
                            .path = ask.path,
                            .strength = ask.strength,
                            .rank = adapter.rank(),
                            .bytes = parts_.executor->adapter_bytes(*place),
                            .content = adapter.content};
  std::lock_guard lock(mutex_);
  adapters_.push_back({info, *place});
  return info;
}

Result<void> Engine::remove(const std::string& name) {
  std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(adapters_, name, [](const Loaded& each) { return each.info.name; });
  if (found == adapters_.end()) return error(Code::not_found, "no adapter '{}' is loaded", name);
  leaving_.push_back(found->place);
  adapters_.erase(found);
  return {};
}

Result<void> Engine::choose_adapter(Request& request) const {
  request.adapter_place = -1;
  if (request.adapter.empty()) return {};
  if (!std::isfinite(request.adapter_strength))
    return error(Code::invalid, "the adapter's strength is {}", request.adapter_strength);
  for (const Loaded& each : adapters_) {
    if (each.info.name != request.adapter) continue;
    request.adapter_place = each.place;
    return {};
  }
  return error(Code::not_found, "no adapter '{}' is loaded", request.adapter);
}

void Engine::leave(int adapter) {
  if (adapter >= 0) --users_[adapter];
}

// A step under way may have rows of a request that has just ended.
void Engine::clear_places() {
  auto free = [&](int place) { return users_[place] == 0; };
  if (std::ranges::none_of(leaving_, free)) return;
  settle();
  for (const int place : leaving_)
    if (free(place)) parts_.executor->unload_adapter(place);
  std::erase_if(leaving_, free);
}

void Engine::settle() {
  if (before_ == nullptr) return;
  await(*before_);
  Flight* landed = std::exchange(before_, nullptr);
  land(*landed);
}

void Engine::post_change(std::function<void()> change) {
  {
    std::lock_guard lock(mutex_);
    Inbox::Item item;
    item.change = std::move(change);
    inbox_.items.push_back(std::move(item));
  }
  arrived_.notify_one();
}

void Engine::load_adapter(AdapterAsk ask, std::function<void(Result<AdapterInfo>)> done) {
  auto read = read_adapter(ask.path, parts_.executor->model().spec());
  if (!read.ok()) return done(read.error());
  auto adapter = std::make_shared<const Adapter>(std::move(*read));
  post_change([this, ask = std::move(ask), adapter, done = std::move(done)] { done(install(ask, *adapter)); });
}

void Engine::unload_adapter(std::string name, std::function<void(Result<void>)> done) {
  post_change([this, name = std::move(name), done = std::move(done)] { done(remove(name)); });
}

}  // namespace millrace
