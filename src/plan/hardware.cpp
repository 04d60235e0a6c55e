#include "plan/hardware.h"

#include <array>

#include "base/file.h"
#include "base/json.h"

namespace millrace {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr double kTera = 1e12, kGiga = 1e9;

// As a data sheet has it: TFLOP/s (TOP/s) dense, GB/s.
struct Sheet {
  std::string_view name, description;
  bool accelerator;
  double memory_gb, read, int8, f8, half, f32;
  double link;  // one direction
};

// GPUs multiply weights of fewer bits in half precision, so that is the rate of grouped formats there; processors
// multiply them in int8. Memory of a GPU in 10^9 bytes as sold, of a server as usually fitted.
// Processors: cores x operations a cycle x base clock. Graviton3 64 x 256 (SMMLA) x 2.6 GHz, Graviton4 96 x 256 x 2.8,
// Xeon 8480+ 56 x 2048 (AMX) x 2.0, EPYC 9654 96 x 128 (VNNI) x 2.4; memory: channels x 8 bytes x transfers.
constexpr auto kSheets = std::to_array<Sheet>({
    {"h100", "NVIDIA H100 SXM, 80 GB", true, 80, 3350, 1979, 1979, 989.4, 66.9, 450},
    {"h200", "NVIDIA H200 SXM, 141 GB", true, 141, 4800, 1979, 1979, 989.4, 66.9, 450},
    {"a100", "NVIDIA A100 SXM, 80 GB", true, 80, 2039, 624, 312, 312, 19.5, 300},
    {"l40s", "NVIDIA L40S, 48 GB", true, 48, 864, 733, 733, 362, 91.6, 32},
    {"rtx4090", "NVIDIA GeForce RTX 4090, 24 GB", true, 24, 1008, 660.6, 330.3, 165.2, 82.6, 32},
    {"graviton3", "AWS Graviton3, 64 Neoverse-V1, 8 x DDR5-4800", false, 128, 307.2, 42.6, 5.3, 21.3, 5.3, 0},
    {"graviton4", "AWS Graviton4, 96 Neoverse-V2, 12 x DDR5-5600", false, 192, 537.6, 68.8, 8.6, 34.4, 8.6, 0},
    {"spr", "Intel Xeon Platinum 8480+, 56 cores, 8 x DDR5-4800", false, 256, 307.2, 229.4, 7.2, 114.7, 7.2, 0},
    {"epyc", "AMD EPYC 9654, 96 cores, 12 x DDR5-4800", false, 384, 460.8, 29.5, 7.4, 14.7, 7.4, 0},
});

Hardware from_sheet(const Sheet& sheet) {
  Hardware hardware = {.name = std::string(sheet.name),
                       .description = std::string(sheet.description),
                       .source = "data sheet",
                       .accelerator = sheet.accelerator};
  hardware.memory =
      sheet.accelerator ? static_cast<int64_t>(sheet.memory_gb * 1e9) : static_cast<int64_t>(sheet.memory_gb) * kGiB;
  hardware.reserve = kGiB;
  hardware.ceilings = {.read_bytes = sheet.read * kGiga,
                       .grouped = (sheet.accelerator ? sheet.half : sheet.int8) * kTera,
                       .f8 = sheet.f8 * kTera,
                       .f16 = (sheet.accelerator ? sheet.half : sheet.f32) * kTera,
                       .bf16 = sheet.half * kTera,
                       .f32 = sheet.f32 * kTera,
                       .attend = (sheet.accelerator ? sheet.half : sheet.f32) * kTera};
  hardware.link_bytes = sheet.link * kGiga;
  hardware.link_seconds = sheet.link > 0 ? (sheet.link > 100 ? 5e-6 : 15e-6) : 0;
  return hardware;
}

Result<double> positive(const Json& json, std::string_view key, double otherwise) {
  TRY(const double value, get_number(json, key, otherwise));
  if (value > 0) return value;
  if (find(json, key) == nullptr) return error(Code::invalid, "'{}' is missing; give it as a number above 0", key);
  return error(Code::invalid, "'{}' is {}; it must be above 0", key, value);
}

}  // namespace

std::vector<Hardware> known_hardware() {
  std::vector<Hardware> all;
  for (const Sheet& sheet : kSheets) all.push_back(from_sheet(sheet));
  return all;
}

Result<Hardware> parse_hardware(std::string_view text, std::string source) {
  TRY(const Json json, parse_json(text, {.max_bytes = 1 << 16}));
  if (!json.is_object()) return error(Code::invalid, "it must be a JSON object");
  Hardware hardware = {.source = std::move(source)};
  TRY(hardware.name, get_string(json, "name", "custom"));
  TRY(hardware.description, get_string(json, "description", hardware.name));
  TRY(hardware.accelerator, get_bool(json, "accelerator", false));
  TRY(const double memory, positive(json, "memory_bytes", 0));
  TRY(const double reserve, get_number(json, "reserve_bytes", static_cast<double>(kGiB)));
  if (memory > 1e18 || reserve < 0 || reserve >= memory)
    return error(Code::invalid, "'memory_bytes' is {:.0f} and 'reserve_bytes' {:.0f}; the reserve must be the smaller",
                 memory, reserve);
  hardware.memory = static_cast<int64_t>(memory);
  hardware.reserve = static_cast<int64_t>(reserve);
  Ceilings& c = hardware.ceilings;
  TRY(c.read_bytes, positive(json, "read_bytes_per_second", 0));
  TRY(c.f32, positive(json, "f32_operations_per_second", 0));
  TRY(c.bf16, positive(json, "bf16_operations_per_second", c.f32));
  TRY(c.f16, positive(json, "f16_operations_per_second", c.bf16));
  TRY(c.f8, positive(json, "f8_operations_per_second", c.bf16));
  TRY(c.grouped, positive(json, "quantised_operations_per_second", c.bf16));
  TRY(c.attend, positive(json, "attention_operations_per_second", hardware.accelerator ? c.bf16 : c.f32));
  TRY(hardware.link_bytes, get_number(json, "link_bytes_per_second", 0));
  TRY(hardware.link_seconds, get_number(json, "link_seconds", 0));
  if (hardware.link_bytes < 0 || hardware.link_seconds < 0)
    return error(Code::invalid, "'link_bytes_per_second' and 'link_seconds' must not be negative");
  return hardware;
}

Result<Hardware> find_hardware(std::string_view name) {
  if (name.ends_with(".json")) {
    TRY(const std::string text, read_file(std::string(name), 1 << 16));
    auto parsed = parse_hardware(text, std::string(name));
    if (!parsed.ok()) return within(std::string(name), std::move(parsed).error());
    return parsed;
  }
  std::vector<std::string_view> known = {"this"};
  for (const Sheet& sheet : kSheets) {
    if (sheet.name == name) return from_sheet(sheet);
    known.push_back(sheet.name);
  }
  return error(Code::not_found, "there is no hardware named '{}'; there are {}, or give a .json file", name,
               fmt::join(known, ", "));
}

Hardware hardware_of(const Machine& machine, int64_t memory) {
  return {.name = "this",
          .description = fmt::format("{}, {} threads, {}", machine.processor, machine.threads, machine.isa),
          .source = "measured",
          .memory = memory,
          .reserve = 0,
          .ceilings = ceilings_of(machine, true)};
}

}  // namespace millrace
