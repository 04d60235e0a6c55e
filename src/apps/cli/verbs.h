// The registry of verbs. A verb is one file that defines `Verb NAME_verb()` and one line VERB(NAME) in verbs.inc; its
// words are Verb::name, so `bench tokenize` is VERB(bench_tokenize) with the name "bench tokenize". Immutable; any
// thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/cli/cli.h"

namespace millrace::apps {

std::span<const Verb> verbs();

struct FoundVerb {
  const Verb* verb = nullptr;  // null if the words name none
  size_t words = 0;            // how many words the name took
};

// The verb with the longest name that the words begin with.
FoundVerb find_verb(std::span<const std::string> words);

// "bench" is the first word of verbs without being one itself.
bool is_family(std::string_view word);

// What to say when the words name no verb.
Error unknown_verb(std::span<const std::string> words);

// What a verb returns when its flags contradict each other: prints the message and gives kExitUsage.
int wrong_use(const Arguments& arguments, std::string_view message);

// Help, as `millrace --help`, `millrace FAMILY` and `millrace VERB --help` print it.
std::string overview_help(const Terminal& terminal);
std::string family_help(const Terminal& terminal, std::string_view family);
std::string verb_help(const Terminal& terminal, const Verb& verb);

#define VERB(name) Verb name##_verb();
#include "apps/cli/verbs.inc"
#undef VERB

}  // namespace millrace::apps
