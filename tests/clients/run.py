"""Runs the npm clients of this folder against a server of its own: run.py MILLRACE [NODE]. Prints a line per check.

Standard library only. Needs node_modules, which scripts/groups.sh installs from the lockfile.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
KEY = "sk-clients-0123456789"


def start(program, log, flags):
    """A server on a free port, once it is ready; its process and its address."""
    server = subprocess.Popen([program, "serve", "--port", "0", *flags], stderr=log, stdin=subprocess.DEVNULL,
                              env={**os.environ, "MILLRACE_API_KEY": KEY})
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and server.poll() is None:
        with open(log.name, encoding="utf-8", errors="replace") as said:
            address = next((line.split()[1] for line in said if line.startswith("serving ")), None)
        if address is not None:
            try:
                urllib.request.urlopen(address + "/ready", timeout=10).close()
                return server, address
            except OSError:
                pass
        time.sleep(0.1)
    return server, None


def run(program, node, script, flags, more=()):
    """A script of this folder, with what more it wants to know, against a server with these flags."""
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        server, address = start(program, log, flags)
        try:
            if address is None:
                print("not ok - the server starts")
                return False
            done = subprocess.run([node, script, address + "/v1", KEY, *more], cwd=HERE, timeout=300)
        finally:
            server.send_signal(signal.SIGTERM)
            code = server.wait(timeout=60)
        print("ok - the server drains" if code == 0 else f"not ok - the server drains: exit code {code}")
        if code != 0 or done.returncode != 0:
            with open(log.name, encoding="utf-8", errors="replace") as said:
                print(said.read())
        return code == 0 and done.returncode == 0


def vectors(program, node):
    """An encoder with the vectors that are stored beside it; its makers stored no words, so it gets a list of them."""
    stored = os.path.join(HERE, "..", "eval", "embed", "bert-mean-dense")
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "encoder")
        shutil.copytree(stored, model)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "fast", "fox"]
        with open(os.path.join(model, "vocab.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"{word}\n" for word in words + [f"word{i}" for i in range(len(words), 320)])
        return run(program, node, "vectors.mjs", ["-m", model], [os.path.join(model, "golden.safetensors")])


def main():
    program, node = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "node"
    chat_template = os.path.join(HERE, "..", "session", "data", "calls", "tags.jinja")
    fine = run(program, node, "clients.mjs", [])
    fine &= run(program, node, "tools.mjs", ["--chat-template", chat_template])
    return 0 if vectors(program, node) and fine else 1


if __name__ == "__main__":
    sys.exit(main())
