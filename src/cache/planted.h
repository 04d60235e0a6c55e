// Planted bugs: mistakes the simulator must find. They exist only in the program that tests the simulator, which
// compiles the cache and the engine with MILLRACE_PLANTED_BUGS; everywhere else PLANTED(x) is the constant false.
#pragma once

namespace millrace {

enum class Bug {
  none,
  page_freed_early,       // a page goes back to the pool while another sequence still reads it
  reference_missed,       // a page found in the tree is used without being counted
  page_leaked,            // a released sequence forgets its last page
  partial_page_shared,    // the last partial page is shared instead of copied
  chunk_skips_a_token,    // after a chunk of a prompt one token too many counts as computed
  tenant_ignored,         // every tenant looks under the same root
  tokens_not_compared,    // a node is taken for a match by its first token only
  draft_kept,             // a rejected draft stays in the cache as if accepted
  copies_out_of_order,    // the page copies of a step run in the wrong order
  budget_exceeded,        // a step takes one token more than its budget
  failed_copy_ignored,    // a page that did not come back from the second store counts as there
  unsettled_found,        // a page whose copy is not known to have worked is shared
  offered_too_much,       // a sequence that leaves offers one token more than it computed
  pending_forgotten,      // a token that lands after its sequence was preempted still counts as on its way
  cancelled_keeps_pages,  // cancelling a running sequence gives its slot back but not its pages
  newest_starves,         // the last waiting request is never chosen
  window_too_short,       // a windowed page goes back one page too early
  state_moved_twice,      // choosing a token again moves the sampler's state again
  state_of_wrong_row,     // a guess's row is chosen from with the state before the first guess
  planned_past_drafts,    // a sequence is planned again while nobody knows how many of its guesses were kept
  branch_without_past,    // another way to go on is computed without what its first page held before
  branch_left_behind,     // another way to go on was right, and its pages do not become the sequence's
  entries_assumed,        // tokens are offered though what a head keeps of them is not made yet
  look_back_forgotten,    // a prefix is gone on from at its end, where a head lacks the stream before it
  guess_counts_as_made,   // what a head keeps of its guesses while it guesses counts as made of the real ones
  count,
};

#ifdef MILLRACE_PLANTED_BUGS
inline thread_local Bug planted_bug = Bug::none;
#define PLANTED(bug) (::millrace::planted_bug == ::millrace::Bug::bug)
#else
#define PLANTED(bug) false
#endif

}  // namespace millrace
