"""Agents (Codex, Claude Code, opencode, Continue, those of libraries in agents.mjs and libraries.mjs) against a server
that says what a script has: agents.py MILLRACE. Each hears a plain answer as it comes, runs a tool and goes on with
what it gave, is stopped in the middle, and is told of an error. Prints a line per check. Standard library only; needs
node_modules, which scripts/groups.sh installs from the lockfile.
"""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, ".."))
import run as clients  # noqa: E402

# The newest versions want a newer Node than systems have: npm has it as a package.
NODES = sorted(glob.glob(os.path.join(HERE, "node_modules", "node-linux-*", "bin", "node")))
NODE = NODES[0] if NODES else "node"
TEMPLATE = os.path.join(HERE, "..", "..", "session", "data", "calls", "tags.jinja")


def call(name, **arguments):
    """A call as tags.jinja writes it."""
    text = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"\n<call>\n<function={name}>\n{text}</function>\n</call>"


# What the tool gives is not in the command's words, so it is there only once the tool has run.
COMMAND = "echo the-tool-says-$((40 + 2))"
SCRIPT = [
    {"when": ["never stop"], "say": " word", "times": 100000, "pause_ms": 20},
    {"when": ["the-tool-says-42"], "say": "It gave forty-two."},
    {"when": ["sunny"], "say": "It is sunny in Paris."},
    {"when": ["What is the weather?", '"get_weather"'], "say": call("get_weather", city="Paris")},
    {"when": ["run the tool", '"exec_command"'], "say": call("exec_command", cmd=COMMAND)},
    {"when": ["run the tool", '"shell_command"'], "say": call("shell_command", command=COMMAND)},
    {"when": ["run the tool", '"Bash"'], "say": call("Bash", command=COMMAND, description="Says a number")},
    {"when": ["run the tool", '"bash"'], "say": call("bash", command=COMMAND, description="Says a number")},
    {"unless": ["fail please", "run the tool"], "say": "Hello there."},
]


class Agent:
    """A folder of its own as home and as work, and the agent's program."""

    def __init__(self, address):
        self.address = address
        self.home = tempfile.mkdtemp(prefix="agent", dir="/var/tmp")
        self.work = os.path.join(self.home, "work")
        os.makedirs(self.work)
        self.prepare()

    def start(self, prompt):
        environment = {"PATH": os.environ["PATH"], "HOME": self.home, "TERM": "dumb", **self.environment()}
        return subprocess.Popen(self.words(prompt), cwd=self.work, env=environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def ask(self, prompt):
        process = self.start(prompt)
        said, _ = process.communicate(timeout=240)
        return process.returncode, said

    def close(self):
        shutil.rmtree(self.home, ignore_errors=True)

    def prepare(self):
        pass

    def environment(self):
        return {}


class Codex(Agent):
    name = "codex"

    @staticmethod
    def program():
        found = os.path.join(HERE, "node_modules", "@openai", "codex", "bin", "codex.js")
        return found if os.path.exists(found) else None

    def prepare(self):
        os.makedirs(os.path.join(self.home, ".codex"))
        with open(os.path.join(self.home, ".codex", "config.toml"), "w", encoding="utf-8") as file:
            file.write(f'''model = "script"
model_provider = "millrace"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.millrace]
name = "millrace"
base_url = "{self.address}/v1"
env_key = "MILLRACE_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
''')

    def environment(self):
        return {"CODEX_HOME": os.path.join(self.home, ".codex"), "MILLRACE_KEY": clients.KEY}

    def words(self, prompt):
        return [NODE, self.program(), "exec", "--json", "--skip-git-repo-check", prompt]


class Claude(Agent):
    name = "claude-code"

    @staticmethod
    def program():
        found = glob.glob(os.path.join(HERE, "node_modules", "@anthropic-ai", "claude-code-linux-*", "claude"))
        return found[0] if found else None

    def environment(self):
        return {"ANTHROPIC_BASE_URL": self.address, "ANTHROPIC_API_KEY": clients.KEY, "ANTHROPIC_MODEL": "script",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_RETRIES": "0",
                "DISABLE_AUTOUPDATER": "1"}

    def words(self, prompt):
        return [self.program(), "-p", prompt, "--output-format", "stream-json", "--verbose",
                "--include-partial-messages", "--allowedTools", "Bash"]


class Opencode(Agent):
    name = "opencode"

    @staticmethod
    def program():
        found = glob.glob(os.path.join(HERE, "node_modules", "opencode-linux-*", "bin", "opencode"))
        return found[0] if found else None

    def prepare(self):
        with open(os.path.join(self.work, "opencode.json"), "w", encoding="utf-8") as file:
            json.dump({"autoupdate": False, "share": "disabled", "model": "millrace/script",
                       "small_model": "millrace/script", "permission": {"*": "allow"},
                       "provider": {"millrace": {
                           "npm": "@ai-sdk/openai-compatible",
                           "options": {"baseURL": self.address + "/v1", "apiKey": clients.KEY},
                           "models": {"script": {"name": "script", "tool_call": True}}}}}, file)

    def environment(self):
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1", "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1"}

    def words(self, prompt):
        return [self.program(), "run", "--format", "json", prompt]


class Continue(Agent):
    name = "continue"

    @staticmethod
    def program():
        found = os.path.join(HERE, "node_modules", "@continuedev", "cli", "dist", "cn.js")
        return found if os.path.exists(found) else None

    def prepare(self):
        with open(os.path.join(self.home, "config.yaml"), "w", encoding="utf-8") as file:
            file.write(f'''name: test
version: 0.0.1
schema: v1
models:
  - name: script
    provider: openai
    model: script
    apiBase: {self.address}/v1
    apiKey: {clients.KEY}
    roles: [chat]
    capabilities: [tool_use]
''')

    def environment(self):
        return {"CONTINUE_TELEMETRY_ENABLED": "0"}

    def words(self, prompt):
        return [NODE, self.program(), "--config", os.path.join(self.home, "config.yaml"), "--auto", "-p", prompt]


def check(condition, what):
    if not condition:
        raise AssertionError(str(what)[-3000:])


def plain(agent, _):
    code, said = agent.ask("hello")
    check(code == 0 and "Hello there." in said, said)


def with_a_tool(agent, _):
    code, said = agent.ask("please run the tool")
    # The script says so only to a prompt with what the tool gave; not every agent shows that itself.
    check(code == 0 and "It gave forty-two." in said, said)


def stopped(agent, log):
    """Ends the agent while its answer comes: the server has nothing open any more."""
    def ended():
        with open(log, encoding="utf-8", errors="replace") as file:
            return sum(" 499 " in line for line in file)

    before = ended()
    process = agent.start("never stop talking")
    try:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and not open_streams(agent.address):
            time.sleep(0.1)
        check(open_streams(agent.address), "the answer has begun")
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and ended() == before:
        time.sleep(0.1)
    check(ended() > before, "the server has noticed")


def open_streams(address):
    request = urllib.request.Request(address + "/metrics", headers={"Authorization": f"Bearer {clients.KEY}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    values = [line.split()[-1] for line in lines if line.startswith("millrace_http_generations")]
    return bool(values) and float(values[0]) > 0


def told_of_an_error(agent, _):
    code, said = agent.ask("fail please")
    check(code != 0 or "error" in said.lower(), said)
    check("nothing to say to this prompt" in said, said)


def main():
    program = os.path.realpath(sys.argv[1])
    failures = 0
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        script = os.path.join(folder, "script.jsonl")
        with open(script, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in SCRIPT)
        server, address = clients.start(program, log, ["--script", script, "--chat-template", TEMPLATE])
        try:
            if address is None:
                print("not ok - the server starts")
                return 1
            for libraries in ("agents.mjs", "libraries.mjs"):
                words = [NODE, libraries, address + "/v1", clients.KEY]
                failures += subprocess.run(words, cwd=HERE, timeout=240).returncode != 0
            for kind in (Codex, Claude, Opencode, Continue):
                if kind.program() is None:
                    print(f"skip - {kind.name}: npm has no program of it for this machine")
                    continue
                for test in (plain, with_a_tool, stopped, told_of_an_error):
                    title = f"{kind.name}: {test.__name__.replace('_', ' ')}"
                    agent = kind(address)
                    try:
                        test(agent, log.name)
                        print(f"ok - {title}", flush=True)
                    except Exception:  # noqa: BLE001 - whatever it is, this check failed
                        failures += 1
                        lines = traceback.format_exc().splitlines()[-12:]
                        print(f"not ok - {title}\n" + "\n".join(f"  {line}" for line in lines), flush=True)
                    finally:
                        agent.close()
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
