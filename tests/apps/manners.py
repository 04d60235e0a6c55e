"""What the program says of flags it does not have, at the end of an answer, and of files that are there already.

Usage: manners.py PROGRAM. Prints one line per test for ./test. Standard library only.
"""
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import command_line as shell  # noqa: E402
from command_line import Run, check, fails_with_one_line  # noqa: E402


def test_short_flags_suggest_only_swapped_letters():
    for verb, flag in (("run", "-ts"), ("run", "-sm"), ("run", "-mg"), ("run", "-z"), ("tokenize", "-p"),
                       ("run", "-cb"), ("serve", "-nkvo"), ("serve", "-dev")):
        fails_with_one_line(Run(verb, flag, "1"), f"(there is no|unknown flag) {flag};", code=2)
        check("did you mean" not in Run(verb, flag, "1").err, f"{verb} {flag} is near to nothing")
    fails_with_one_line(Run("run", "-fh", "x"), "did you mean -hf", code=2)


def test_pages_are_not_written_over_unasked():
    page = os.path.join(shell.FOLDER, "taken.html")
    with open(page, "w", encoding="utf-8") as file:
        file.write("mine")
    for words in (("explain", "--html", page), ("explain", "--trace", page),
                  ("eval", "report", shell.SHIPPED, "-f", page, "--html", page),
                  ("eval", "kl", "--variant-kv", "bf16", "-f", page, "--html", page),
                  ("calibrate", "-f", page, "-o", page)):
        fails_with_one_line(Run(*words), "taken.html: is there already", "--force replaces it")
    words = ("plan", "--shape", "llama-2-7b", "--hw", "h100", "--html", page)
    fails_with_one_line(Run(*words), "taken.html: is there already", "--force replaces it")
    check(open(page, encoding="utf-8").read() == "mine", "as it was")
    check(Run(*words, "--force").code == 0, "asked for")
    check(open(page, encoding="utf-8").read().startswith("<!doctype html>"), "a page")


def test_what_was_not_measured_is_not_said():
    ended = r"(?m)^out     1 token; ended by: length"
    run = Run("run", "-p", "Once", "-n", "1", "--temp", "0")
    check(run.code == 0 and re.search(ended + "$", run.err), run)
    run = Run("run", "-p", "Once", "-n", "2", "--temp", "0")
    check(re.search(r"(?m)^out     2 tokens, .* a token, .* tok/s; ended by: length", run.err), run)
    run = Run("run", "-p", "Once", "-n", "0")
    check(re.search(r"(?m)^in      \d+ tokens?$", run.err) and "out     0 tokens; ended by" in run.err, run)
    check("all turns" not in Run("chat", "-p", "Hello", "-n", "1").err, "chat says how it ended")
    run = Run("chat", "-p", "Hello", "-n", "1", "--temp", "0")
    check("chat    1 turn, " in run.err and "out     1 token; the last answer ended by: length" in run.err, run)
    check("ended by" not in Run("chat").err, "nothing was said")


if __name__ == "__main__":
    sys.exit(shell.run_all(globals()))
