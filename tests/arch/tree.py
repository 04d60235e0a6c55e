"""Checks this repository against the rules in rules.py; prints one line per rule for ./test."""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rules  # noqa: E402


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    tree = rules.Tree(os.path.realpath(root))
    broken = False
    for name, rule in rules.RULES.items():
        found = list(rule(tree))
        title = name.replace("_", " ")
        if found and found[0].startswith("SKIP "):
            print(f"skip - {title}: {found[0][5:]}")
            continue
        print(f"{'not ok' if found else 'ok'} - {title}")
        for sentence in found[:40]:
            print(f"  {sentence}")
        broken |= bool(found)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
