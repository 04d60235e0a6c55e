// A checkpoint to spoil: a golden's configuration and tensors, changed by a test and written elsewhere.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "model/rig.h"
#include "tensor/files.h"

namespace millrace::test {

struct EditedTensor {
  std::string name;
  DType type;
  std::vector<int64_t> shape;
  std::string bytes;
};

class Edited {
 public:
  explicit Edited(const std::string& golden) : checkpoint_(Checkpoint::open(golden_path(golden)).value()) {
    config = checkpoint_.config().get_object();
    for (const StoredTensor& tensor : checkpoint_.tensors()) {
      const auto* data = reinterpret_cast<const char*>(tensor.bytes.data());
      tensors.push_back({tensor.name, tensor.type, tensor.shape, std::string(data, tensor.bytes.size())});
    }
  }

  EditedTensor& tensor(std::string_view name) {
    for (EditedTensor& each : tensors) {
      if (each.name == name) return each;
    }
    ADD_FAILURE() << "no tensor " << name;
    return tensors.front();
  }
  void remove(std::string_view name) {
    std::erase_if(tensors, [&](const EditedTensor& each) { return each.name == name; });
  }
  void rename(const std::function<std::string(const std::string&)>& change) {
    for (EditedTensor& each : tensors) each.name = change(each.name);
  }

  // Writes what it has become and opens it.
  Result<Checkpoint> open() const {
    std::string data;
    JsonObject header;
    for (const EditedTensor& each : tensors) {
      JsonArray shape;
      for (int64_t extent : each.shape) shape.emplace_back(extent);
      header[each.name] = {{"dtype", std::string(format(each.type).name)},
                           {"shape", shape},
                           {"data_offsets", JsonArray{data.size(), data.size() + each.bytes.size()}}};
      data += each.bytes;
    }
    std::string text = to_text(header);
    text.append((8 - text.size() % 8) % 8, ' ');
    const uint64_t size = text.size();
    folder_.write("model.safetensors", std::string(reinterpret_cast<const char*>(&size), 8) + text + data);
    folder_.write("config.json", to_text(config));
    return Checkpoint::open(folder_.path());
  }
  Result<ModelSource> source(int64_t context = 0) {
    opened_ = std::make_unique<Checkpoint>(open().value());
    return ModelSource::open(*opened_, context);
  }
  const std::filesystem::path& folder() const { return folder_.path(); }

  JsonObject config;
  std::vector<EditedTensor> tensors;

 private:
  Checkpoint checkpoint_;
  test::Folder folder_;
  std::unique_ptr<Checkpoint> opened_;
};

}  // namespace millrace::test
