"""Compiles every header of src/ on its own, so that each includes what it needs, and the programs of lab/.

Usage: headers.py COMPILE_COMMANDS... Compiler and flags are those of the sources nearest to the header, so kernels of
another processor are compiled if one of the databases is of a build for it, and skipped otherwise; so are headers of a
CUDA toolkit that is not there. Programs of lab/ are in no build: arm_ and x86_ have the flags of that processor's
kernels, cuda_ needs nvcc.
"""
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys


def plain(command):
    """Compiler and flags of a command, without what belongs to its file."""
    words, kept, skip = shlex.split(command), [], False
    if os.path.basename(words[0]) == "ccache":
        words = words[1:]
    for word in words:
        if skip:
            skip = False
        elif word in ("-o", "-c", "-MF", "-MT", "-MQ"):
            skip = True
        elif word not in ("-MD", "-MMD"):
            kept.append(word)
    return kept


def commands_by_folder(databases):
    """Per folder of src/ that has sources, the command of one of them; the first database that knows the folder."""
    commands = {}
    for path in databases:
        with open(path, encoding="utf-8") as file:
            entries = json.load(file)
        found = {os.path.relpath(os.path.dirname(entry["file"]), os.path.join(ROOT, "src")): entry for entry in entries}
        for folder, entry in found.items():
            if not folder.startswith(".."):
                commands.setdefault(folder, plain(entry["command"]))
    return commands


def command_for(header, commands):
    """That of the nearest folder, of several the one with most flags; none for kernels of a foreign processor."""
    def shared(folder):
        return len(os.path.commonprefix([folder.split("/"), os.path.dirname(header).split("/")]))

    nearest = max(shared(folder) for folder in commands)
    if nearest == 0 or (re.match("backend/cpu/(arm|x86)/", header) and nearest < 3):
        return None
    near = [command for folder, command in commands.items() if shared(folder) == nearest]
    return max(near, key=lambda command: len(" ".join(command)))


def compile_alone(header, command):
    """Whether it compiled, or None if it could not be tried, and what was said."""
    if command is None:
        return None, "no compiler for that processor"
    said = subprocess.run([*command, "-fsyntax-only", "-x", "c++", "-"], input=f'#include "{header}"\n',
                          capture_output=True, text=True, cwd=ROOT)
    missing = re.search(r"fatal error: (cuda\w*\.h): No such file", said.stderr)
    if missing and header.startswith("backend/cuda/"):
        return None, f"no {missing.group(1)}"
    return said.returncode == 0, said.stderr


def compile_program(name, commands):
    """The same of a program of lab/."""
    kind = name.split("_")[0]
    nvcc = shutil.which("nvcc", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")
    if kind == "cuda" and nvcc is None:
        return None, "no nvcc"
    command = commands.get({"arm": "backend/cpu/arm/i8mm", "x86": "backend/cpu/x86/amx"}.get(kind, "base"))
    if command is None:
        return None, "no compiler for that processor"
    command = [*command, "-Itests", "-fsyntax-only"]
    if name.endswith(".cu"):
        command = [nvcc, "-std=c++20", "-arch=compute_90a", "-code=sm_90a", "-Isrc", "-c", "-o", os.devnull]
    elif kind == "cuda":
        command.append(f"-I{os.path.dirname(nvcc)}/../include")
    said = subprocess.run([*command, f"lab/{name}"], capture_output=True, text=True, cwd=ROOT)
    return said.returncode == 0, said.stderr


def main():
    commands = commands_by_folder(sys.argv[1:])
    headers = []
    for folder, _, names in os.walk(os.path.join(ROOT, "src")):
        headers += [os.path.relpath(os.path.join(folder, name), os.path.join(ROOT, "src")) for name in names
                    if name.endswith(".h")]
    programs = [name for name in os.listdir(os.path.join(ROOT, "lab")) if name.endswith((".cpp", ".cu"))]
    tasks = [(name, " compiles on its own", compile_alone, name, command_for(name, commands))
             for name in sorted(headers)]
    tasks += [(f"lab/{name}", "", compile_program, name, commands) for name in sorted(programs)]
    broken = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        results = pool.map(lambda task: task[2](*task[3:]), tasks)
        for (name, means, *_), (good, said) in zip(tasks, results):
            if good is None:
                print(f"skip - {name}: {said}")
                continue
            print(f"{'ok' if good else 'not ok'} - {name}{means}")
            if not good:
                broken += 1
                print("".join(f"  {line}\n" for line in said.splitlines()[:6]), end="")
    return 1 if broken else 0


ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

if __name__ == "__main__":
    sys.exit(main())
