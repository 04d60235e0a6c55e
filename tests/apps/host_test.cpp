#include "apps/cli/host.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

// A machine made of files, as /proc, /sys and /dev would show it.
class FakeHost : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("millrace-host-" + std::to_string(::getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void put(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  fs::path root_;
};

TEST_F(FakeHost, AnEmptyOneIsUnknown) {
  Host host = probe_host(root_);
  EXPECT_EQ(host.processors, 0);
  EXPECT_EQ(host.memory, 0u);
  EXPECT_EQ(host.transparent_huge_pages, "unknown");
  EXPECT_FALSE(host.memory_limit);
  EXPECT_FALSE(host.cpu_quota);
  EXPECT_TRUE(host.gpus.empty());
}

TEST_F(FakeHost, AnArmServerInAControlGroupOfVersion2) {
  put("proc/cpuinfo",
      "processor\t: 0\nFeatures\t: fp asimd asimddp i8mm crc32\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n\n"
      "processor\t: 1\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n");
  put("proc/meminfo", "MemTotal:       16384 kB\nMemAvailable:    8192 kB\nSwapTotal: 0 kB\n");
  put("proc/self/cgroup", "0::/pod/inner\n");
  put("sys/fs/cgroup/pod/memory.max", "4194304\n");
  put("sys/fs/cgroup/pod/inner/memory.max", "max\n");
  put("sys/fs/cgroup/pod/inner/cpu.max", "150000 100000\n");
  put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  put("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n");
  put("sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages", "0\n");
  Host host = probe_host(root_);
  EXPECT_EQ(host.processors, 2);
  EXPECT_EQ(host.cpu_features, (std::vector<std::string>{"asimd", "asimddp", "i8mm"}));
  EXPECT_EQ(host.cores, std::nullopt);
  EXPECT_EQ(host.memory, 16384u * 1024);
  EXPECT_EQ(host.memory_available, 8192u * 1024);
  EXPECT_EQ(host.memory_limit, 4194304u);
  EXPECT_EQ(host.cpu_quota, 1.5);
  EXPECT_EQ(host.transparent_huge_pages, "madvise");
  EXPECT_EQ(host.huge_page_sizes, (std::vector<uint64_t>{65536, 2097152}));
}

TEST_F(FakeHost, AnX86ServerWithGpusInControlGroupsOfVersion1) {
  put("proc/cpuinfo",
      "processor : 0\nmodel name : Some Processor @ 2 GHz\nflags : fpu avx2 fma avx512_vnni amx_int8\n");
  for (int i = 0; i < 4; ++i) {
    put("sys/devices/system/cpu/cpu" + std::to_string(i) + "/topology/thread_siblings_list",
        i % 2 == 0 ? "0,2\n" : "1,3\n");
  }
  put("proc/meminfo", "MemTotal: 100000 kB\n");
  put("proc/self/cgroup", "4:memory:/jobs/7\n2:cpu,cpuacct:/jobs\n");
  put("sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "1048576\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu/jobs/cpu.cfs_period_us", "100000\n");
  put("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 12\n");
  put("proc/driver/nvidia/version",
      "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sat Jul 1\nGCC version\n");
  Host host = probe_host(root_);
  EXPECT_EQ(host.cpu_features, (std::vector<std::string>{"avx2", "fma", "avx512_vnni", "amx_int8"}));
  EXPECT_EQ(host.cores, 2);
  EXPECT_EQ(host.memory_limit, 1048576u);
  EXPECT_FALSE(host.cpu_quota);
  ASSERT_EQ(host.gpus.size(), 1u);
  EXPECT_EQ(host.gpus[0].name, "NVIDIA H200");
  EXPECT_TRUE(host.gpus[0].supported);
  EXPECT_EQ(host.gpu_driver, "580.65.06");
}

TEST_F(FakeHost, AContainerShowsGpusAsDevicesOnly) {
  put("dev/nvidia0", "");
  put("dev/nvidia1", "");
  put("dev/kfd", "");
  Host host = probe_host(root_);
  ASSERT_EQ(host.gpus.size(), 3u);
  EXPECT_TRUE(host.gpus[1].supported);
  EXPECT_FALSE(host.gpus[2].supported);
}

}  // namespace
}  // namespace millrace::apps
