// What is planned is what is taken, purpose by purpose, for every kind of layer there is.
#include "model/rig.h"
#include "plan/capacity.h"

namespace millrace {
namespace {

class PlannedKinds : public ::testing::TestWithParam<std::string> {};

TEST_P(PlannedKinds, TakeWhatIsPlanned) {
  const Checkpoint checkpoint = Checkpoint::open(test::golden_path(GetParam())).value();
  const ModelSpec spec = ModelSource::open(checkpoint, 96).value().spec();
  for (const DType type : {DType::bf16, DType::q8_0}) {
    auto backend = make_cpu_backend({.threads = 1}).value();
    auto trace = make_trace_backend(backend.get());
    const auto made = Model::random(spec, type, 1, *backend);
    if (!made.ok() && type == DType::q8_0) continue;  // rows that do not fill its groups
    ASSERT_TRUE(made.ok()) << made.error().message;
    auto outline = Model::outline(spec, type, *trace).value();
    Hardware hardware = find_hardware("epyc").value();
    hardware.reserve = 0;
    Planner planner = Planner::create(*outline, *trace, hardware, {.chunk = 32}).value();
    const MemoryPlan plan = planner.memory(3, 96).value();

    auto executor = Executor::create(**made, *backend, {.context = 96, .rows = 32, .sequences = 3}).value();
    EXPECT_EQ(plan.weights, backend->used(Purpose::weights));
    EXPECT_EQ(plan.kv, backend->used(Purpose::kv));
    EXPECT_EQ(plan.workspace, backend->used(Purpose::workspace));
    EXPECT_EQ(plan.staging, backend->used(Purpose::staging));
    EXPECT_GT(plan.kv, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, PlannedKinds, ::testing::ValuesIn(test::golden_names()), test::test_name);

}  // namespace
}  // namespace millrace
