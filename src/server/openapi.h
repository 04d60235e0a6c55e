// /openapi.json: the interface as a program can read it, made from the tables of routes and fields. Pure; any thread.
#pragma once

#include <string_view>

#include "base/json.h"

namespace millrace {

Json openapi_json(std::string_view version);

}  // namespace millrace
