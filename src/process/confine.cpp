#include "process/confine.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

namespace millrace {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kMachine = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kMachine = AUDIT_ARCH_AARCH64;
#else
#error "which calls of the system there are is not known for this processor"
#endif

// Calls that are refused whatever they are given.
constexpr int kRefused[] = {
    SYS_socket,      SYS_connect,   SYS_bind,
    SYS_listen,      SYS_accept,    SYS_accept4,
    SYS_execve,      SYS_execveat,  SYS_ptrace,
    SYS_unlinkat,    SYS_renameat2, SYS_linkat,
    SYS_symlinkat,   SYS_mkdirat,   SYS_mknodat,
    SYS_fchmodat,    SYS_fchownat,  SYS_truncate,
    SYS_mount,       SYS_umount2,   SYS_setns,
    SYS_unshare,     SYS_bpf,       SYS_userfaultfd,
    SYS_init_module, SYS_openat2,   SYS_process_vm_writev,
    SYS_renameat,
#if defined(__x86_64__)
    SYS_unlink,      SYS_rename,    SYS_link,
    SYS_symlink,     SYS_mkdir,     SYS_rmdir,
    SYS_mknod,       SYS_creat,     SYS_chmod,
    SYS_chown,       SYS_lchown,    SYS_fork,
    SYS_vfork,
#endif
};

sock_filter load(size_t offset) { return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
sock_filter unless_equal(uint32_t value, uint8_t skip) { return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip); }
sock_filter answer(uint32_t what) { return BPF_STMT(BPF_RET | BPF_K, what); }

// Opening is allowed for reading only. The flags are an argument's lower half; both processors have it first.
void refuse_writing(std::vector<sock_filter>& program, int call, int argument) {
  constexpr uint32_t kWrites = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;
  program.push_back(load(offsetof(seccomp_data, nr)));
  program.push_back(unless_equal(static_cast<uint32_t>(call), 3));
  program.push_back(load(offsetof(seccomp_data, args) + static_cast<size_t>(argument) * sizeof(uint64_t)));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kWrites, 0, 1));
  program.push_back(answer(SECCOMP_RET_ERRNO | EPERM));
}

}  // namespace

Result<void> confine(bool network) {
  std::vector<sock_filter> program;
  program.push_back(load(offsetof(seccomp_data, arch)));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kMachine, 1, 0));
  program.push_back(answer(SECCOMP_RET_KILL_PROCESS));
  refuse_writing(program, SYS_openat, 2);
#if defined(__x86_64__)
  refuse_writing(program, SYS_open, 1);
#endif
  program.push_back(load(offsetof(seccomp_data, nr)));
  for (int call : kRefused) {
    if (network && (call == SYS_socket || call == SYS_connect)) continue;
    program.push_back(unless_equal(static_cast<uint32_t>(call), 1));
    program.push_back(answer(SECCOMP_RET_ERRNO | EPERM));
  }
  program.push_back(answer(SECCOMP_RET_ALLOW));
  const sock_fprog filter = {.len = static_cast<unsigned short>(program.size()), .filter = program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    return error(Code::unsupported, "the system does not let a process give up its rights: {}", std::strerror(errno));
  return {};
}

void end_first() {
  const int file = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  static_cast<void>(!::write(file, "500", 3));
  ::close(file);
}

}  // namespace millrace
