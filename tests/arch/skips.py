"""Checks what ./test skipped (a line each on stdin) against skips.txt: what is not expected on this processor fails.

Usage: skips.py PROCESSOR [LIST]. Prints one line per skip for ./test.
"""
import fnmatch
import os
import sys


def expected(path, processor):
    """The patterns that hold on this processor."""
    patterns = []
    with open(path) as file:
        for line in file:
            words = line.split("#", 1)[0].split(None, 1) if not line.startswith("#") else []
            if not words:
                continue
            if words[0] not in ("any", "aarch64", "x86_64") or len(words) != 2:
                raise ValueError(f"{path}: a processor and a pattern expected: {line.strip()}")
            if words[0] in ("any", processor):
                patterns.append(words[1].strip())
    return patterns


def main():
    processor = sys.argv[1]
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "skips.txt")
    patterns = expected(sys.argv[2] if len(sys.argv) > 2 else own, processor)
    broken = False
    for name in filter(None, (line.strip() for line in sys.stdin)):
        good = any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        broken |= not good
        print(f"{'ok' if good else 'not ok'} - left out on {processor}: {name}")
        if not good:
            print("  tests/arch/skips.txt does not expect that here")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
