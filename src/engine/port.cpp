#include "engine/port.h"

namespace millrace {

void EnginePort::load_adapter(AdapterAsk, std::function<void(Result<AdapterInfo>)> done) {
  done(error(Code::unsupported, "this engine takes no adapters"));
}

void EnginePort::unload_adapter(std::string name, std::function<void(Result<void>)> done) {
  done(error(Code::not_found, "no adapter '{}' is loaded", name));
}

}  // namespace millrace
