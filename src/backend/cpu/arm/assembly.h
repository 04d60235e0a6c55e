// Words that several kernels written as assembly share: each is the text of an instruction, for an asm statement whose
// operands have the names used here.
#pragma once

// clang-format off
#define MILLRACE_MMLA(sum, row, weight) "smmla v" #sum ".4s, v" #row ".16b, v" #weight ".16b\n"
#define MILLRACE_FETCH(offset) "prfm pldl2keep, [%[ahead], #" #offset "]\n"
#define MILLRACE_LOAD(from, offset, to) "ldr q" #to ", [%[" #from "], #" #offset "]\n"
#define MILLRACE_LOAD2(from, offset, to, and_to) "ldp q" #to ", q" #and_to ", [%[" #from "], #" #offset "]\n"
#define MILLRACE_CLEAR(sum) "movi v" #sum ".4s, #0\n"
#define MILLRACE_CLEAR4(a, b, c, d) \
  "movi v" #a ".4s, #0\nmovi v" #b ".4s, #0\nmovi v" #c ".4s, #0\nmovi v" #d ".4s, #0\n"
// What a kernel of two pairs of rows has and one of a single pair leaves out.
#define MILLRACE_TWO_PAIRS(text) text
#define MILLRACE_ONE_PAIR(text)
// clang-format on
