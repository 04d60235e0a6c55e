#include "engine/port.h"

namespace millrace {

void EnginePort::load_adapter(AdapterAsk, std::function<void(Result<AdapterInfo>)> done) {
  done(error(Code::unsupported, "this engine takes no adapters"));
}

void EnginePort::unload_adapter(std::string name, std::function<void(Result<void>)> done) {
  done(error(Code::not_found, "no adapter '{}' is loaded", name));
}

void EnginePort::save_cache(int, CacheDone done) {
  done(error(Code::unsupported, "this engine's cache cannot be saved"));
}

void EnginePort::reset_cache(CacheDone done) {
  done(error(Code::unsupported, "this engine's cache cannot be emptied"));
}

Result<void> EnginePort::pause() {
  return error(Code::unsupported, "an engine in the server's own process (--in-process) does not stop in the middle");
}

Result<void> EnginePort::sleep() {
  return error(Code::unsupported, "an engine in the server's own process (--in-process) cannot sleep");
}

Result<void> EnginePort::become(std::shared_ptr<EnginePort>) {
  return error(Code::unsupported, "an engine in the server's own process (--in-process) cannot be changed");
}

}  // namespace millrace
