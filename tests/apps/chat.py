"""`millrace chat` on a real terminal (a pty): keys, pastes, history, wrapping, commands, calls of tools.

Usage: chat.py PROGRAM. Prints one line per test for ./test. Standard library only.
"""
import fcntl
import json
import os
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback

sys.dont_write_bytecode = True
PROGRAM = os.path.realpath(sys.argv[1])
ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
TAGS = os.path.join(ROOT, "tests", "session", "data", "calls", "tags.jinja")
FEW = ("-n", "6", "--temp", "0", "--threads", "1")
CTRL_C = b"\x03"
UP = b"\x1b[A"


def check(condition, what):
    if not condition:
        raise AssertionError(str(what))


class Chat:
    """A chat whose terminal we are. What it shows gathers in `text`."""

    def __init__(self, home, *words, columns=100, env=None):
        self.text = ""
        self.code = None
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": home, "TERM": "xterm-256color", **(env or {})}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
            os.execve(PROGRAM, [PROGRAM, "chat", *words], environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def read(self, seconds):
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the other end is closed
            return False
        self.text += data.decode("utf-8", "replace")
        return bool(data)

    def until(self, pattern, start=0):
        """Waits for what it shows from `start` on; gives where that ends."""
        deadline = time.monotonic() + 60
        while True:
            found = re.search(pattern, self.text[start:])
            if found:
                return start + found.end()
            check(time.monotonic() < deadline, f"'{pattern}' did not come: {self.text[-800:]!r}")
            if not self.read(1) and self.gone():
                found = re.search(pattern, self.text[start:])
                check(found, f"'{pattern}' did not come before the end: {self.text[-800:]!r}")
                return start + found.end()

    def gone(self):
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def keys(self, data):
        os.write(self.fd, data if isinstance(data, bytes) else data.encode())

    def prompt(self, start=0):
        """The prompt, on a line of its own, after everything before it."""
        return self.until(r"(?:^|[\r\n])(?:\x1b\[[?\d]*[a-zA-Z])*> ", start)

    def ended(self):
        deadline = time.monotonic() + 60
        while not self.gone():
            check(time.monotonic() < deadline, f"it does not end: {self.text[-800:]!r}")
            self.read(0.1)
        while self.read(0):
            pass
        return self.code


def saved(chat, folder, name="chat.json"):
    """The messages, by /save, at a prompt."""
    path = os.path.join(folder, name)
    start = len(chat.text)
    chat.keys(f"/save --force {path}\r")
    chat.until(r"saved \d+ messages?", start)
    chat.prompt(start)
    with open(path, encoding="utf-8") as file:
        return json.load(file)["messages"]


def test_ctrl_c_clears_the_line():
    with tempfile.TemporaryDirectory() as home, Chat(home, *FEW) as chat:
        at = chat.prompt()
        chat.keys("half a thought")
        chat.until("half a thought", at)
        chat.keys(CTRL_C)
        at = chat.prompt(at)
        check(saved(chat, home) == [], "nothing was said")
        chat.keys("/exit\r")
        check(chat.ended() == 0, chat.text)


def test_ctrl_c_twice_leaves():
    with tempfile.TemporaryDirectory() as home, Chat(home, *FEW) as chat:
        at = chat.prompt()
        chat.keys(CTRL_C)
        at = chat.until("once more", at)
        chat.prompt(at)
        chat.keys(CTRL_C)
        check(chat.ended() == 0, chat.text)


def test_ctrl_c_while_it_answers_stops_the_answer():
    with tempfile.TemporaryDirectory() as home, Chat(home, "-n", "100000", "-c", "4000", "--ignore-eos", "--temp", "0",
                                                     "--threads", "1") as chat:
        at = chat.prompt()
        chat.keys("Write a story about a dragon.\r")
        at = chat.until("Once upon", at)
        chat.keys(CTRL_C)
        at = chat.until(r"\(stopped\)", at)
        chat.prompt(at)
        messages = saved(chat, home)
        check([message["role"] for message in messages] == ["user", "assistant"], messages)
        chat.keys("/exit\r")
        check(chat.ended() == 0, chat.text)


def test_end_of_input_leaves():
    with tempfile.TemporaryDirectory() as home, Chat(home, *FEW) as chat:
        chat.prompt()
        chat.keys(b"\x04")
        check(chat.ended() == 0, chat.text)


def test_a_paste_is_one_thing():
    with tempfile.TemporaryDirectory() as home, Chat(home, *FEW) as chat:
        at = chat.prompt()
        check("\x1b[?2004h" in chat.text, "pastes are asked for with brackets")
        chat.keys(b"say: \x1b[200~line one\r\tline two\r\x1b[31mthree\x03\x1b[201~ end")
        at = chat.until("end", at)
        said = saved_after(chat, home)
        check(said == "say: line one\n line two\n [31mthree  end", repr(said))


def saved_after(chat, home):
    """What was said, once what stands on the line is."""
    start = len(chat.text)
    chat.keys("\r")
    chat.prompt(chat.until("ended by", start))
    return saved(chat, home)[0]["content"]


def test_characters_of_several_bytes():
    with tempfile.TemporaryDirectory() as home, Chat(home, *FEW) as chat:
        at = chat.prompt()
        chat.keys("größe 日本x")
        chat.until("日本x", at)
        chat.keys(b"\x7f")  # takes one character
        check(saved_after(chat, home) == "größe 日本", "typed as they are")


def test_history_across_runs():
    with tempfile.TemporaryDirectory() as home:
        file = os.path.join(home, ".local/state/millrace/chat_history")
        with Chat(home, *FEW) as chat:
            at = chat.prompt()
            chat.keys("hello there\r")
            at = chat.until("ended by length", at)
            chat.prompt(at)
            chat.keys("/exit\r")
            check(chat.ended() == 0, chat.text)
        check(stat.S_IMODE(os.stat(file).st_mode) == 0o600, oct(os.stat(file).st_mode))
        with Chat(home, *FEW) as chat:
            at = chat.prompt()
            chat.keys(UP)  # /exit
            at = chat.until("/exit", at)
            chat.keys(UP)
            chat.until("hello there", at)
            check(saved_after(chat, home) == "hello there", "said again")
        before = os.path.getsize(file)
        with Chat(home, "--no-history", *FEW) as chat:
            chat.prompt()
            chat.keys("/exit\r")
            check(chat.ended() == 0, chat.text)
        check(os.path.getsize(file) == before, "nothing is kept")


def plain(text):
    return re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", text).replace("\r", "")


def test_words_are_not_broken():
    words = ("-n", "80", "--temp", "0", "--threads", "1", "-p", "Write a story about a dragon.")
    with tempfile.TemporaryDirectory() as home:
        whole = subprocess.run([PROGRAM, "chat", *words], input=b"", capture_output=True, timeout=60,
                               env={"HOME": home}).stdout.decode()
        with Chat(home, *words, columns=40) as chat:
            at = chat.prompt(chat.until("ended by"))
            shown = plain(chat.text[:at])
            shown = shown[shown.index("Once upon"):shown.index("(ended by")]
    check(shown.split() == whole.split(), f"{shown!r} against {whole!r}")
    lines = shown.splitlines()
    check(len(lines) > 4 and max(len(line) for line in lines) <= 40, lines)
    # Every line takes as many words as fit.
    for line, after in zip(lines, lines[1:]):
        if line.strip() and after.strip() and whole.count(line.strip() + " " + after.split()[0]):
            check(len(line) + 1 + len(after.split()[0]) > 40, f"{line!r} had room for {after.split()[0]!r}")


def test_commands():
    with tempfile.TemporaryDirectory() as home, Chat(home, *FEW) as chat:
        chat.prompt()

        def say(line, answer):
            at = len(chat.text)
            chat.keys(line + "\r")
            chat.prompt(chat.until(answer, at))
            return plain(chat.text[at:])

        check("/regen" in say("/help", "/exit"), "help")
        say("/system You tell stories.", "another one")
        say("Write a story about a dragon.", "ended by")
        messages = saved(chat, home)
        check([message["role"] for message in messages] == ["system", "user", "assistant"], messages)
        check(messages[0]["content"] == "You tell stories.", messages)
        say("/set temperature 0.5", "temperature is 0.5")
        say("/set seed 7", "seed is 7")
        say("/set max_tokens 9", "max_tokens is 9")
        say("/set temprature 1", "did you mean temperature")
        say("/set temperature hot", "expected a number")
        say("/set top_p 7", "between")
        shown = say("/set", "max_tokens")
        check(re.search(r"temperature +0.5", shown) and re.search(r"seed +7", shown), shown)
        say("/regen", "ended by")
        again = saved(chat, home, "again.json")
        check(again[:2] == messages[:2] and len(again) == 3 and len(again[2]["content"]) > 0, again)
        check(re.search(r"seed +8", say("/set", "max_tokens")), "another seed")
        say("/reset", "forgotten")
        say("/regen", "no answer yet")
        say(f"/load {home}/chat.json", "loaded 3 messages")
        check(saved(chat, home, "third.json") == messages, "as it was saved")
        say("/load /nonexistent", "warning")
        with open(f"{home}/taken.json", "w", encoding="utf-8") as file:
            file.write("mine")
        say(f"/save {home}/taken.json", r"taken.json: is there already.*/save --force FILE replaces")
        with open(f"{home}/taken.json", encoding="utf-8") as file:
            check(file.read() == "mine", "as it was")
        say(f"/save {home}/new.json", "saved 3 messages")
        say("/save --force", "needs a file name")
        say("/system", "no system message")
        check(saved(chat, home)[0]["role"] == "user", "no system message")
        say("/nonsense", "no command /nonsense")
        chat.keys("/bye\r")
        check(chat.ended() == 0, chat.text)


def test_calls_are_shown_and_answered():
    tool = {"type": "function", "function": {"name": "get_weather", "description": "Weather.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
    formats = json.loads(subprocess.run([PROGRAM, "template", "--template", TAGS, "--calls"], capture_output=True,
                                        check=True).stdout)
    equals = formats["equals"] if isinstance(formats["equals"], str) else formats["equals"]["text"]
    call = formats["begin"] + "get_weather" + formats["open"] + "city" + equals + "Paris" + formats["end"]
    with tempfile.TemporaryDirectory() as home:
        path = os.path.join(home, "tools.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump([tool], file)
        words = ("--tools", path, "--chat-template", TAGS, "--choice", call, "--threads", "1")
        with Chat(home, *words) as chat:
            at = chat.prompt()
            chat.keys("Weather?\r")
            at = chat.until(r'-> get_weather\(\{"city": ?"Paris"\}\)', at)
            at = chat.until("get_weather gives> ", at)
            chat.keys("sunny\r")
            at = chat.until(r"-> get_weather\(", at)  # it can say nothing else
            chat.until("get_weather gives> ", at)
            chat.keys(b"\x04")
            check(chat.ended() == 0, chat.text)
        # Where nobody watches: as JSON.
        done = subprocess.run([PROGRAM, "chat", *words, "--json", "-p", "Weather?"], input=b"", capture_output=True,
                              timeout=60, env={"HOME": home})
        answer = json.loads(done.stdout.splitlines()[0])
        check(answer["calls"] == [{"name": "get_weather", "arguments": '{"city": "Paris"}'}] or
              json.loads(answer["calls"][0]["arguments"]) == {"city": "Paris"}, answer)
        bad = subprocess.run([PROGRAM, "chat", "--tools", path], input=b"", capture_output=True, timeout=60,
                             env={"HOME": home})
        check(bad.returncode == 1 and b"not understood" in bad.stderr, bad.stderr)


def test_reasoning_is_dim():
    template = ("{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}"
                "</think>{% endif %}{{ m.content }}\n{% endfor %}"
                "{% if add_generation_prompt %}<|assistant|>{% endif %}")
    with tempfile.TemporaryDirectory() as home:
        path = os.path.join(home, "think.jinja")
        with open(path, "w", encoding="utf-8") as file:
            file.write(template)
        words = ("--chat-template", path, "--choice", "<think>let me see</think>yes", "--threads", "1")
        with Chat(home, *words, env={"COLORTERM": "truecolor"}) as chat:
            at = chat.prompt()
            chat.keys("Well?\r")
            at = chat.until("yes", at)
            chat.prompt(at)
            shown = chat.text
            check("<think>" not in plain(shown), shown)
            check(re.search(r"\x1b\[2m[^\x1b]*let", shown), repr(shown[-600:]))
            messages = saved(chat, home)
            check(messages[1]["reasoning_content"] == "let me see" and messages[1]["content"] == "yes", messages)
        done = subprocess.run([PROGRAM, "chat", *words, "-p", "Well?"], input=b"", capture_output=True, timeout=60,
                              env={"HOME": home})
        check(done.stdout == b"yes\n", done.stdout)


def main():
    broken = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        title = name[len("test_"):].replace("_", " ")
        try:
            test()
            print(f"ok - {title}", flush=True)
        except Exception:  # noqa: BLE001 - whatever it is, this test failed
            broken += 1
            print(f"not ok - {title}")
            print("".join(f"  {line}\n" for line in traceback.format_exc().splitlines()[-8:]), end="", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
