"""What ./test may skip is looked up by processor, and a skip that nobody expects fails."""
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
AMX = "release-backend: Isa.RunsHere/amx: this machine has no amx"
LIST = "# words\nany cuda: no nvcc*\nx86_64 *: Isa.RunsHere/amx: this machine has no amx\n\n"
CASES = [
    ("what is expected everywhere", "aarch64", LIST, ["cuda: no nvcc here"], 0),
    ("what is expected on this processor", "x86_64", LIST, [AMX], 0),
    ("what is expected on another one", "aarch64", LIST, [AMX], 1),
    ("what nobody expects", "aarch64", LIST, ["cuda: no nvcc here", "release-model: Golden.All: no folder"], 1),
    ("a list that is none", "aarch64", "arm cuda*\n", ["cuda: no nvcc here"], 1),
]


def main():
    broken = 0
    for title, processor, text, names, code in CASES:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(text)
            file.flush()
            done = subprocess.run([sys.executable, os.path.join(HERE, "skips.py"), processor, file.name],
                                  input="\n".join(names), capture_output=True, text=True)
        good = done.returncode == code
        broken += 0 if good else 1
        print(f"{'ok' if good else 'not ok'} - {title} {'fails' if code else 'passes'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
