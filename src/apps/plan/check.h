// `plan --check`: the model is run here and every prediction stands beside its measurement. Main thread.
#pragma once

#include <memory>
#include <string>

#include "apps/cli/cli.h"
#include "backend/backend.h"
#include "model/model.h"
#include "tensor/checkpoint.h"

namespace millrace::apps {

// What is run: a file, or random weights of a shape.
struct CheckSubject {
  std::string name;
  Checkpoint checkpoint;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
};
Result<std::unique_ptr<CheckSubject>> open_check_subject(const Arguments& arguments);

// Bytes of a table for people, or a difference of such: "64 MiB", "-1.50 KiB".
std::string memory_text(int64_t bytes);

Result<int> run_plan_check(const Arguments& arguments);

}  // namespace millrace::apps
