#include "apps/run/transport.h"

#include "session/device.h"

namespace millrace::apps {

bool over_nccl(const Arguments& arguments) {
  return arguments.knows("transport") && arguments.text("transport") == "nccl";
}

Result<std::string> rank_device(const Arguments& arguments) {
  const std::string device = arguments.text("device");
  if (!over_nccl(arguments)) return device;
  if (device != "cuda" && device != kNcclDevice)
    return error(Code::invalid,
                 "--transport nccl moves rows between GPUs, of which the first rank has the first: use --device cuda, "
                 "not {}",
                 device);
  return std::string(kNcclDevice);
}

}  // namespace millrace::apps
