"""Every rule of rules.py can fail: a small clean tree keeps all, and each planted mistake is caught by its rule."""
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rules  # noqa: E402

PURPOSE = "// What this header is for, who calls it from which thread, and what always holds.\n"
INSIDE = "namespace millrace {{\n{}\n}}  // namespace millrace\n"
HELPER = "namespace {\n\nconst int* count(const char* text) { return nullptr; }\n\n}  // namespace"
AGAIN = INSIDE.format(HELPER)
TYPE = PURPOSE + "#pragma once\n\n" + INSIDE.format("\nstruct Word {\n  int id = 0;\n};\n")
CLEAN = {
    "src/base/CMakeLists.txt": "millrace_library(base SYSTEM fmt::fmt)\n",
    "src/base/size.h": PURPOSE + "#pragma once\n\nint size();\n",
    "src/text/CMakeLists.txt": "millrace_library(text\n  LINK base # the lowest\n  OPTIONAL extra)\n",
    "src/text/words.h": PURPOSE + '#pragma once\n\n#include "base/size.h"\n',
    "src/text/words.cpp": '#include "text/words.h"\n\n#include <pcre2.h>\n\n' + INSIDE.format(HELPER),
    "src/text/word.h": PURPOSE + "#pragma once\n\n" + INSIDE.format("\nstruct Word {\n  int id = 0;\n};\n"),
    "tests/text/CMakeLists.txt": "millrace_test(text LINK text)\n",
    "tests/text/words_test.cpp": '#include "text/words.h"\n\n#include "base/size.h"\n',
    "docs/tour.md": "[the sizes](../src/base/size.h) and `src/text/words.cpp`\n",
    "README.md": "A tree. See [the tour](docs/tour.md) and [elsewhere](https://example.org/x).\n"
                 "<https://example.org/" + "x" * 120 + ">\n",
    "millrace": "#!/usr/bin/env bash\necho run\n",
    ".clang-format": "BasedOnStyle: Google\nColumnLimit: 120\n",
}
LONG_FUNCTION = "int f() {\n" + "  g();\n" * 70 + "  return 0;\n}\n"
# rule -> (file, its text): the one change that must make this rule, and no other, complain.
PLANTED = {
    "links_point_one_way": ("src/base/CMakeLists.txt", "millrace_library(base LINK text)\n"),
    "includes_follow_links": ("src/base/size.cpp", '#include "text/words.h"\n'),
    "batches_share_no_names": ("src/text/more.cpp", AGAIN),
    "types_have_one_definition": ("src/text/more.h", TYPE),
    "vendors_stay_in_their_rooms": ("src/base/size.cpp", "#include <pcre2.h>\n"),
    "files_are_short": ("src/base/size.cpp", "int a;\n" * 601),
    "functions_fit_a_screen": ("src/base/size.cpp", LONG_FUNCTION),
    "headers_say_what_they_are_for": ("src/base/other.h", "#pragma once\n"),
    "no_marks_left": ("src/base/size.cpp", "// TO" + "DO: later\n"),
    "no_paths_of_one_machine": ("src/base/size.cpp", "// see /ho" + "me/somebody/notes\n"),
    "lines_are_not_too_long": ("scripts/long.sh", "# " + "a " * 80 + "\n"),
    "prose_is_wrapped": ("docs/long.md", "a " * 80 + "\n"),
    "code_is_formatted": ("src/base/size.cpp", "int   a ;\n"),
    "tree_is_lean": ("models/large.bin", "a" * (rules.MAX_TREE_BYTES + 1)),
    "tests_mirror_the_source": ("tests/nothing/some_test.cpp", "int a;\n"),
    "documents_name_what_exists": ("docs/tour.md", "[gone](../src/base/gone.h)\n"),
    "shell_scripts_parse": ("scripts/broken.sh", "if true; then\n"),
}
# More ways to break a rule than its first.
ALSO = [
    ("includes_follow_links", "src/text/words.cpp", '#include "words.h"\n'),
    ("includes_follow_links", "tests/base/CMakeLists.txt", "millrace_test(base LINK base)\n", "tests/base/a_test.cpp",
     '#include "text/words.h"\n'),
    ("links_point_one_way", "src/base/CMakeLists.txt", "millrace_library(base LINK nowhere)\n"),
    ("batches_share_no_names", "src/text/count.h", PURPOSE + "#pragma once\n\n" + INSIDE.format("\nint count();\n")),
    ("documents_name_what_exists", "README.md", "`src/base/gone.cpp`\n"),
    ("headers_say_what_they_are_for", "src/base/other.h", PURPOSE + "int a;\n"),
    ("lines_are_not_too_long", "bench/long.py", "# " + "a " * 80 + "\n"),
    ("lines_are_not_too_long", "docs/examples/long.py", "# " + "a " * 80 + "\n"),
    ("lines_are_not_too_long", "lab/long.cpp", "// " + "a " * 80 + "\n"),
    ("lines_are_not_too_long", "test", "# " + "a " * 80 + "\n"),
    ("vendors_stay_in_their_rooms", "src/base/size.cpp", "#include <boost/asio.hpp>\n"),
    ("vendors_stay_in_their_rooms", "src/bench/CMakeLists.txt", "millrace_library(bench LINK base)\n",
     "src/bench/load.cpp", "#include <openssl/ssl.h>\n"),
    ("prose_is_wrapped", "docs/wide.md", "| a | b |\n|---|---|\n| 1 | " + "b " * 60 + "|\n"),
    ("prose_is_wrapped", "docs/long.md", "a " * 80 + "https://example.org/x\n"),
    ("shell_scripts_parse", "test", "#!/usr/bin/env bash\necho not executable\n"),
]


def broken_rules(changes):
    with tempfile.TemporaryDirectory() as root:
        for name, text in {**CLEAN, **changes}.items():
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
            if name == "millrace":
                os.chmod(path, 0o755)
        tree = rules.Tree(root)
        return {name for name, rule in rules.RULES.items()
                if any(not sentence.startswith("SKIP ") for sentence in rule(tree))}


def main():
    broken = 0

    def check(title, good, said=""):
        nonlocal broken
        broken += 0 if good else 1
        print(f"{'ok' if good else 'not ok'} - {title}{'' if good else ': ' + said}")

    found = broken_rules({})
    check("a clean tree keeps every rule", not found, str(found))
    for name in rules.RULES:
        if name == "code_is_formatted" and rules.clang_format() is None:
            print("skip - clang-format is not here")
            continue
        if name not in PLANTED:
            check(f"{name} has a planted mistake", False, "add one to tree_test.py")
            continue
        file, text = PLANTED[name]
        found = broken_rules({file: text})
        check(f"a planted mistake breaks '{name.replace('_', ' ')}' only", found == {name}, str(found))
    for name, *changes in ALSO:
        found = broken_rules(dict(zip(changes[::2], changes[1::2])))
        check(f"{changes[-1].strip()!r} breaks '{name.replace('_', ' ')}'", name in found, str(found))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
