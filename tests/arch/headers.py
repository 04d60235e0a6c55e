"""Compiles every header of src/ on its own, so that each includes what it needs.

Usage: headers.py COMPILE_COMMANDS. The flags are those of the header's own library.
"""
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys


def flags_by_folder(database):
    """The compile flags of one source file of each folder of src/."""
    flags = {}
    for entry in database:
        parts = os.path.relpath(entry["file"], ROOT).split(os.sep)
        if parts[0] != "src" or len(parts) < 3:
            continue
        words = shlex.split(entry["command"])
        kept, skip = [], False
        for word in words[1:]:
            if skip:
                skip = False
            elif word in ("-o", "-c", "-MF", "-MT", "-MQ"):
                skip = True
            elif word not in ("-MD", "-MMD") and not os.path.isabs(word):
                kept.append(word)
        flags.setdefault(parts[1], kept)
    return flags


def compile_alone(header, flags):
    source = f'#include "{header}"\n'
    command = ["g++", *flags, "-fsyntax-only", "-x", "c++", "-"]
    said = subprocess.run(command, input=source, capture_output=True, text=True, cwd=ROOT)
    return said.returncode == 0, said.stderr


def main():
    with open(sys.argv[1]) as file:
        flags = flags_by_folder(json.load(file))
    headers = []
    for folder, _, names in os.walk(os.path.join(ROOT, "src")):
        headers += [os.path.relpath(os.path.join(folder, name), os.path.join(ROOT, "src")) for name in names
                    if name.endswith(".h")]
    headers = sorted(name for name in headers if name.split("/")[0] in flags)
    broken = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        results = pool.map(lambda name: compile_alone(name, flags[name.split("/")[0]]), headers)
        for name, (good, said) in zip(headers, results):
            print(f"{'ok' if good else 'not ok'} - {name} compiles on its own")
            if not good:
                broken += 1
                print("".join(f"  {line}\n" for line in said.splitlines()[:6]), end="")
    return 1 if broken else 0


ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

if __name__ == "__main__":
    sys.exit(main())
