// NVFP4: 64 codes of four bits as MXFP4 has them, and for each 16 of them a scale of eight bits (E4M3). As GGUF files
// have it, the scale 127 counts as zero and a sign has no meaning.
#include "tensor/formats/formats.h"
#include "tensor/formats/groups.h"

namespace millrace::formats {

void nvfp4_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::NVFP4, 64>(in, out, values, [](const layout::NVFP4& group, float* x) {
    for (int s = 0; s < 4; ++s) {
      const uint8_t scale = group.scales[s];
      // 255 is not a number in E4M3, but its bits without the sign are a number here.
      const float size = (scale & 127) == 127 ? 480.0f : f8_e4m3_to_f32(scale & 127);
      const float step = scale == 127 ? 0.0f : size * 0.5f;
      for (int i = 0; i < 8; ++i) {
        const uint8_t both = group.codes[8 * s + i];
        x[16 * s + i] = step * static_cast<float>(layout::kFP4Values[both & 15]);
        x[16 * s + 8 + i] = step * static_cast<float>(layout::kFP4Values[both >> 4]);
      }
    }
  });
}

}  // namespace millrace::formats
