#include "server/chosen_adapter.h"

#include <algorithm>

#include "server/service.h"

namespace millrace {

std::optional<ApiError> choose_adapter(const ServedModel& served, RequestBody& asked, std::string& root) {
  const bool named = !asked.model.empty() && asked.model != served.name;
  std::erase_if(asked.adapters, [](const AskedAdapter& each) { return each.scale == 0; });
  if (!named && asked.adapters.empty()) return {};
  const std::vector<AdapterInfo> loaded = served.engine->adapters();
  const AdapterInfo* chosen = nullptr;
  float strength = 1;
  if (named) {
    const auto found = std::ranges::find(loaded, asked.model, &AdapterInfo::name);
    if (found == loaded.end()) return Service::no_such_model(asked.model);
    chosen = &*found;
    strength = chosen->strength;
  }
  if (asked.adapters.size() > 1)
    return not_built("lora", fmt::format("'lora' has {} adapters with a scale: one request uses one at most",
                                         asked.adapters.size()));
  if (!asked.adapters.empty()) {
    const AskedAdapter& one = asked.adapters.front();
    if (one.id >= std::ssize(loaded))
      return bad_field("lora",
                       fmt::format("there is no adapter {}: {} are loaded, counted from 0", one.id, loaded.size()));
    const AdapterInfo* other = &loaded[static_cast<size_t>(one.id)];
    if (chosen != nullptr && chosen != other)
      return bad_field("lora", fmt::format("'model' names the adapter '{}', and 'lora' the adapter '{}': give one",
                                           shortened(chosen->name), shortened(other->name)));
    chosen = other;
    strength = static_cast<float>(one.scale);
  }
  asked.request.adapter = chosen->name;
  asked.request.adapter_strength = strength;
  root = fmt::format("{:02x} {:a}", fmt::join(chosen->content.bytes, ""), strength);
  return {};
}

}  // namespace millrace
