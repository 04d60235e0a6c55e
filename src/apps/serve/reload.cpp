// Other weights for a server that runs: the same flags with another path.
#include "apps/run/flags.h"
#include "apps/serve/flags.h"
#include "model/slots.h"

namespace millrace::apps {
namespace {

// Every matrix and vector is there, of the same size; how its numbers are stored may differ.
Result<void> check_shapes(const ModelSpec& old, const ModelSpec& fresh) {
  const std::vector<Slot> before = slots(old), after = slots(fresh);
  if (before.size() != after.size() || old.vocab != fresh.vocab)
    return error(Code::invalid, "has {} tensors and {} tokens in its vocabulary, the model that is served {} and {}",
                 after.size(), fresh.vocab, before.size(), old.vocab);
  for (size_t i = 0; i < before.size(); ++i) {
    const Slot &a = before[i], &b = after[i];
    if (a.name != b.name || a.rows != b.rows || a.cols != b.cols || a.experts != b.experts || a.bias != b.bias)
      return error(Code::invalid, "{} is {} x {}, in the model that is served {} is {} x {}", b.name, b.rows, b.cols,
                   a.name, a.rows, a.cols);
  }
  return {};
}

}  // namespace

Result<ServedModel> reloaded_model(const Arguments& arguments, const std::string& path, const ServedModel& old,
                                   const std::function<bool()>& go_on) {
  TRY(const Arguments changed, arguments.with({"--hf-repo=", "--model", path}));
  TRY(LoadChoice choice, load_choice(changed));
  choice.weights = choice.fingerprint = false;
  TRY(const auto outline, LoadedModel::load(choice));
  const ModelSpec& served = old.loaded->model().spec();
  if (auto same = check_shapes(served, outline->model().spec()); !same.ok()) return within(path, same.error());
  // What is kept of a cache is of the weights there were.
  std::vector<std::string> first = {"--quiet"};
  if (arguments.given("cache-file")) first.emplace_back("--no-cache-restore");
  TRY(ServedModel fresh, served_model(changed, go_on, true, first));
  if (fresh.engine == nullptr || fresh.context() != old.context())
    return error(Code::invalid, "{}: has a context of {} tokens, the model that is served {}", path, fresh.context(),
                 old.context());
  TRY_VOID(outline->check_same_files(fresh.loaded->checkpoint().states()));  // whose shapes were compared
  return fresh;
}

// Memory of a GPU is asked for by size, so there the old engine makes room first.
bool fits_beside(const Arguments& arguments, const ServedModel& old) {
  if (const std::string device = arguments.text("device"); device != "cpu" && device != "reference") return false;
  return old.engine->facts().bytes <= memory_limit(arguments) / 2;
}

}  // namespace millrace::apps
