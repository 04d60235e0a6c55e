"""The program as a person meets it in a shell: help, suggestions, exit codes, streams, colours, bad input.

Usage: command_line.py PROGRAM. Prints one line per test for ./test. Standard library only.
"""
import http.server
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fixtures  # noqa: E402

PROGRAM = os.path.realpath(sys.argv[1])
ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
SHIPPED = os.path.join(ROOT, "models", "stories-14m-q8_0.gguf")


class Run:
    """One call of the program: its streams and exit code, with an environment that has nothing of the caller's."""

    def __init__(self, *words, stdin=b"", env=None, cwd=None):
        clean = {"PATH": os.environ.get("PATH", ""), "HOME": "/nonexistent", **(env or {})}
        done = subprocess.run([PROGRAM, *words], input=stdin, capture_output=True, env=clean, cwd=cwd, timeout=60)
        self.words, self.code = words, done.returncode
        self.raw = done.stdout
        self.out, self.err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")

    def __str__(self):
        return f"{' '.join(self.words)} -> {self.code}\nstdout: {self.out[:500]}\nstderr: {self.err[:500]}"


def check(condition, what):
    if not condition:
        raise AssertionError(str(what))


def fails_with_one_line(run, *parts, code=1):
    check(run.code == code, f"exit code {code} expected: {run}")
    check(run.out == "", f"nothing belongs on stdout: {run}")
    check(run.err.startswith("millrace: ") and run.err.count("\n") == 1, f"one line on stderr expected: {run}")
    for part in parts:
        check(re.search(part, run.err), f"'{part}' expected in: {run}")


def verbs():
    """The verbs as the overview lists them, two-word ones included."""
    return re.findall(r"^  (?:\x1b\[\d+m)?([a-z]+(?: [a-z0-9]+)?)  ", Run().out, re.M)


def test_no_arguments_print_help_with_examples():
    for words in ((), ("--help",), ("-h",), ("help",)):
        run = Run(*words)
        check(run.code == 0 and run.err == "", run)
        check(run.out.index("Examples") < run.out.index("Usage"), "examples come first")
        check("millrace inspect" in run.out and "Look at models" in run.out, run)


def test_every_verb_has_help_with_examples_first():
    names = verbs()
    check({"inspect", "doctor", "version", "completion"} <= set(names), names)
    for name in names:
        run = Run(*name.split(), "--help")
        check(run.code == 0 and run.err == "", run)
        check(run.out.startswith(f"millrace {name}: "), run)
        check(run.out.index("Examples") < run.out.index("Usage"), f"examples come first: {run}")
        check("--help" in run.out and "--color" in run.out, run)
        check(Run("help", *name.split()).out == run.out, f"help {name} is {name} --help")
        check(max(len(line) for line in run.out.splitlines()) <= 120, f"lines too long: {run}")


def test_unknown_verbs_suggest_the_nearest():
    fails_with_one_line(Run("inspetc"), "unknown verb 'inspetc'", "did you mean `millrace inspect`", code=2)
    fails_with_one_line(Run("frobnicate"), "unknown verb", "millrace --help", code=2)
    fails_with_one_line(Run("--frobnicate"), code=2)
    fails_with_one_line(Run("bench", "tokenise"), "did you mean `millrace bench tokenize`", code=2)


def test_unknown_flags_suggest_the_nearest():
    fails_with_one_line(Run("run", "-ngl", "99"), "there is no -ngl", "--device cuda", code=2)
    fails_with_one_line(Run("inspect", "--tensosr"), "unknown flag --tensosr; did you mean --tensors", code=2)
    fails_with_one_line(Run("inspect", "--qwerty"), "unknown flag --qwerty", "millrace inspect --help", code=2)


def test_wrong_use_is_exit_code_2():
    fails_with_one_line(Run("inspect", "a", "b"), "'b'", code=2)
    fails_with_one_line(Run("inspect", "--model"), "needs a value: PATH", code=2)
    fails_with_one_line(Run("completion"), "SHELL", code=2)
    fails_with_one_line(Run("completion", "bahs"), "did you mean bash", code=2)
    fails_with_one_line(Run("version", "--color", "sometimes"), "auto, always, never", code=2)
    fails_with_one_line(Run("version", env={"MILLRACE_COLOR": "sometimes"}), "MILLRACE_COLOR", code=2)


def test_version_in_words_and_json():
    run = Run("version")
    check(run.code == 0 and re.fullmatch(r"millrace \d+\.\d+\.\d+ \(.+\)\n", run.out), run)
    check(Run("--version").out == run.out, "--version is version")
    info = json.loads(Run("version", "--json").out)
    check(re.fullmatch(r"\d+\.\d+\.\d+", info["version"]) and info["target"], info)
    check(json.loads(Run("version", env={"MILLRACE_JSON": "1"}).out) == info, "MILLRACE_JSON is the twin of --json")


def test_doctor_reports_every_part():
    run = Run("doctor")
    check(run.code == 0 and run.err == "", run)
    rows = json.loads(Run("doctor", "--json").out)
    check({"cpu", "memory", "gpu", "build"} <= {row["part"] for row in rows}, rows)
    for row in rows:
        check(row["found"] and row["what"] in run.out, row)
    check(sum(line == "gpu" for line in run.out.splitlines()) == 1, run)
    check(sum("cuda" in row["what"] for row in rows) == 1, rows)


def test_color_is_for_terminals():
    def colored(**env):
        return "\x1b[" in Run("doctor", env=env).out

    check(not colored(), "a pipe gets no colours")
    check(colored(CLICOLOR_FORCE="1") and colored(FORCE_COLOR="1"), "unless forced")
    check(not colored(CLICOLOR_FORCE="1", NO_COLOR="1"), "NO_COLOR wins over that")
    check("\x1b[" in Run("doctor", "--color", "always", env={"NO_COLOR": "1"}).out, "the flag wins over both")
    check("\x1b[" not in Run("doctor", "--color=never", env={"CLICOLOR_FORCE": "1"}).out, "both ways")


def on_terminal(*words, **env):
    """What the program writes to a terminal."""
    controller, terminal = pty.openpty()
    child = subprocess.Popen([PROGRAM, *words], stdin=terminal, stdout=terminal, stderr=terminal,
                             env={"TERM": "xterm", "PATH": os.environ.get("PATH", ""), **env})
    os.close(terminal)
    said = b""
    while True:
        try:
            part = os.read(controller, 65536)
        except OSError:  # Linux says so when the other side is closed
            break
        if not part:
            break
        said += part
    child.wait(timeout=60)
    os.close(controller)
    return said.decode("utf-8", "replace")


def test_a_terminal_gets_colors_unless_refused():
    check("\x1b[" in on_terminal("doctor"), "colours on a terminal")
    check("\x1b[" not in on_terminal("doctor", NO_COLOR="1"), "not with NO_COLOR")
    check("\x1b[" not in on_terminal("doctor", TERM="dumb"), "not on a dumb one")


def test_inspect_reads_gguf():
    path = os.path.join(FOLDER, "small.gguf")
    run = Run("inspect", path)
    check(run.code == 0 and run.err == "", run)
    for part in ("GGUF v3", "llama", "context +64 tokens", "vocabulary +3 tokens", "F32 +1 "):
        check(re.search(part, run.out), f"{part}: {run}")
    data = json.loads(Run("inspect", path, "--json").out)
    check(data["parameters"] == 64 and data["context"] == 64 and data["types"][0]["type"] == "F32", data)
    check("tensors" not in data, "tensors only when asked")
    data = json.loads(Run("inspect", "--tensors", "--json", "--metadata", "-m", path).out)
    check(data["tensors"] == [{"name": "token_embd.weight", "type": "F32", "shape": [2, 32], "bytes": 256}], data)
    check(data["metadata"]["general.architecture"] == "llama", data)
    check("token_embd.weight" in Run("inspect", path, "--tensors").out, "listed")


def test_inspect_reads_hugging_face_and_safetensors():
    data = json.loads(Run("inspect", os.path.join(FOLDER, "hf"), "--json").out)
    check(data["architecture"] == "LlamaForCausalLM" and data["layers"] == 1 and data["vocabulary"] == 3, data)
    data = json.loads(Run("inspect", os.path.join(FOLDER, "hf", "model.safetensors"), "--json").out)
    check(data["format"] == "safetensors" and data["parameters"] == 6, data)
    data = json.loads(Run("inspect", os.path.join(FOLDER, "fp8.safetensors"), "--json").out)
    check(data["parameters"] == 6 and "unusable" not in data, data)  # scales do not count


def test_inspect_shows_no_escape_sequences_of_a_file():
    run = Run("inspect", os.path.join(FOLDER, "escape.gguf"), "--metadata", "--tensors")
    check(run.code == 0 and "\x1b" not in run.out and "\\x1b[31m" in run.out, run)


def test_bad_input_says_what_it_is_and_what_to_do():
    def inspect(name):
        return Run("inspect", name, cwd=FOLDER)

    fails_with_one_line(inspect("absent.gguf"), "absent.gguf: does not exist", "check the path")
    fails_with_one_line(inspect("empty_folder"), "no config.json", "give a directory with config.json")
    fails_with_one_line(inspect("cut.safetensors"), "incomplete", "download it again")
    fails_with_one_line(inspect("cut.gguf"), "cut.gguf", "download it again")
    fails_with_one_line(inspect("pointer.safetensors"), "Git LFS pointer", "git lfs pull")
    fails_with_one_line(inspect("pickle.bin"), "pickle", "use the model's safetensors")
    fails_with_one_line(inspect("zipped.bin"), "pickle", "use the model's safetensors")
    fails_with_one_line(inspect("empty.gguf"), "is empty", "download it again")
    fails_with_one_line(inspect("page.gguf"), "web page|HTML", "download")
    fails_with_one_line(inspect("words.txt"), "words.txt", "text file")


def test_a_full_disk_is_noticed():
    if not os.path.exists("/dev/full"):
        return
    with open("/dev/full", "wb") as full:
        done = subprocess.run([PROGRAM, "doctor"], stdout=full, stderr=subprocess.PIPE, timeout=60)
    check(done.returncode == 1 and b"cannot write the output" in done.stderr, done)


def test_a_closed_pipe_is_quiet():
    command = f"set -o pipefail; {PROGRAM} completion zsh | head -c 1 >/dev/null"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, timeout=60)
    check(done.stderr == b"", done)


def test_interrupt_is_exit_code_130():
    # A full pipe that nobody reads keeps the program busy writing.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 65536)
    except BlockingIOError:
        os.set_blocking(writer, True)
    child = subprocess.Popen([PROGRAM, "doctor"], stdout=writer, stderr=subprocess.PIPE)
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    check(child.wait(timeout=60) == 130, f"exit code {child.returncode}")
    os.close(reader)
    os.close(writer)


def test_completions_are_valid_and_complete():
    for shell in ("bash", "zsh", "fish"):
        script = Run("completion", shell)
        check(script.code == 0, script)
        for name in verbs():
            check(all(word in script.out for word in name.split()), f"{shell} lacks {name}")
    script = Run("completion", "bash").out

    def complete(*words):
        quoted = " ".join(f"'{word}'" for word in words)
        typed = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}"
        text = f"{script}\n{typed}; _millrace; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        return subprocess.run(["bash"], input=text, capture_output=True, text=True, timeout=60).stdout.split()

    check(complete("millrace", "ins") == ["inspect"], complete("millrace", "ins"))
    check(complete("millrace", "inspect", "--ten") == ["--tensors"], "flags of a verb")
    check(complete("millrace", "inspect", "--color", "") == ["auto", "always", "never"], "choices of a flag")
    check("bash" in complete("millrace", "completion", "b"), "choices of an operand")
    check("tokenize" in complete("millrace", "bench", "to"), "the second word of a verb")


def test_tokens_and_back():
    text = "Once upon a time, there was a na\u00efve \U0001f438.\n"
    ids = json.loads(Run("tokenize", "--text", text, "--json").out)
    check(len(ids) > 5 and all(isinstance(item, int) for item in ids), ids)
    check(Run("detokenize", "--ids", ",".join(map(str, ids))).raw == text.encode(), "exactly the text comes back")
    check(Run("detokenize", stdin=json.dumps(ids).encode()).raw == text.encode(), "from a pipe too")
    check(json.loads(Run("detokenize", "--json", "--ids", ",".join(map(str, ids))).out) == text, "as JSON")
    check(json.loads(Run("tokenize", "--json", stdin=text.encode()).out) == ids, "text from a pipe")
    check(json.loads(Run("tokenize", "--text", "", "--json").out) == [], "no text, no tokens")
    plain = Run("tokenize", "--text", "Once upon")
    check(re.match(r" *\d+  \"Once", plain.out) and plain.err.strip().endswith("tokens"), plain)


def test_tokenize_takes_lines_of_json():
    texts = ["a dragon", "", "two\nlines", "<|user|>hi"]
    path = os.path.join(FOLDER, "texts.jsonl")
    with open(path, "w") as file:
        file.write("".join(json.dumps(text) + "\n" for text in texts))
    lines = Run("tokenize", "--file", path, "--json").out.splitlines()
    check(len(lines) == len(texts), lines)
    for text, line in zip(texts, lines):
        check(json.loads(line) == json.loads(Run("tokenize", "--json", "--text", text).out), text)
    special = json.loads(Run("tokenize", "--file", path, "--json", "--special").out.splitlines()[3])
    check(len(special) < len(json.loads(lines[3])), "--special reads <|user|> as one token")
    begun = json.loads(Run("tokenize", "--json", "--add-special", "--text", "a").out)
    check(begun[1:] == json.loads(Run("tokenize", "--json", "--text", "a").out), "--add-special puts one in front")
    with open(path, "w") as file:
        file.write('"good"\n{"not": "a string"}\n')
    fails = Run("tokenize", "--file", path, "--json")
    check(fails.code == 1 and "line 2" in fails.err, fails)


def test_tokenize_refuses_contradictions():
    fails_with_one_line(Run("tokenize", "--text", "a", "--file", "b"), "exclude each other", code=2)
    fails_with_one_line(Run("tokenize", "--file", "absent.txt", cwd=FOLDER), "absent.txt")
    fails_with_one_line(Run("tokenize", "-m", "hf", "--text", "a", cwd=FOLDER), "tokenizer")
    fails_with_one_line(Run("detokenize", "--ids", "999999"), "999999 is no token")
    fails_with_one_line(Run("detokenize", "--ids", "1,x"), "whole number", code=2)


def test_template_prints_exactly_the_text():
    files = {"t.jinja": "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{{ extra | upper }}",
             "chat.json": json.dumps({"messages": [{"role": "user", "content": "hi"}], "extra": "end"}),
             "loop.jinja": "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
             "bad.jinja": "{% for %}", "list.json": "[]"}
    for name, text in files.items():
        with open(os.path.join(FOLDER, name), "w") as file:
            file.write(text)

    def template(*words, **more):
        return Run("template", *words, cwd=FOLDER, **more)

    check(template("--template", "t.jinja", "--input", "chat.json").raw == b"[user] hi\nEND", "rendered")
    from_pipe = template("--template", "t.jinja", stdin=files["chat.json"].encode())
    check(from_pipe.raw == b"[user] hi\nEND", from_pipe)
    own = template("--input", "chat.json")
    check(own.code == 0 and "<|user|>hi<|end|>" in own.out, own)
    fails_with_one_line(template("--template", "bad.jinja", "--input", "chat.json"), "bad.jinja", "line 1")
    fails_with_one_line(template("--template", "t.jinja", "--input", "list.json"), "JSON object")
    fails_with_one_line(template("--template", "loop.jinja", "--input", "chat.json"), "loop.jinja")
    fails_with_one_line(template("-m", "small.gguf", "--input", "chat.json"), "no chat template", "--template")


def test_convert_writes_a_whole_file_or_none():
    target = os.path.join(FOLDER, "out.gguf")
    run = Run("convert", SHIPPED, target, "--type", "Q4_0")
    check(run.code == 0 and run.out == "" and "parameters" in run.err, run)
    before, after = (json.loads(Run("inspect", path, "--json").out) for path in (SHIPPED, target))
    check(after["parameters"] == before["parameters"] and after["file_bytes"] < before["file_bytes"] * 0.8, after)
    check("Q4_0" in [row["type"] for row in after["types"]], after)
    check(after["chat_template"] and after["tokenizer"] == before["tokenizer"], after)
    check([name for name in os.listdir(FOLDER) if ".tmp" in name] == [], "nothing temporary is left")
    fails_with_one_line(Run("convert", SHIPPED, target), "already Q8_0", "--type")
    stamp = os.stat(target).st_mtime_ns
    fails_with_one_line(Run("convert", SHIPPED, target, "--type", "Q4_0"), "is there already", "--force")
    check(os.stat(target).st_mtime_ns == stamp, "it was left alone")
    check(Run("convert", SHIPPED, target, "--type", "Q4_0", "--force").code == 0, "with --force")
    check(os.stat(target).st_mtime_ns != stamp, "it was replaced")
    fails_with_one_line(Run("convert", SHIPPED, SHIPPED, "--type", "F16"), "another name")
    fails_with_one_line(Run("convert", SHIPPED, FOLDER, "--type", "F16"), "is a directory")
    fails_with_one_line(Run("convert", SHIPPED, target, "--type", "Q9"), "'Q9'", "Q4_K_M")
    fails_with_one_line(Run("convert", "pointer.safetensors", "x.gguf", cwd=FOLDER), "git lfs pull")


def test_convert_keeps_how_tokens_are_chosen():
    folder = os.path.join(FOLDER, "with_sampling")
    shutil.copytree(os.path.join(ROOT, "tests", "model", "golden", "llama-mha"), folder)
    with open(os.path.join(folder, "generation_config.json"), "w") as file:
        json.dump({"temperature": 0.6, "top_k": 20, "top_p": 7}, file)
    run = Run("convert", folder, folder + ".gguf")
    check(run.code == 0 and "top_p of the model is not used" in run.err, run)
    keys = json.loads(Run("inspect", folder + ".gguf", "--json", "--metadata").out)["metadata"]
    check(abs(keys["general.sampling.temp"] - 0.6) < 1e-6 and keys["general.sampling.top_k"] == 20, keys)
    check("general.sampling.top_p" not in keys, keys)


def test_convert_writes_directories_for_other_engines():
    source = os.path.join(ROOT, "tests", "model", "golden", "llama-mha")
    for to, endings in (("gptq", {"qweight", "qzeros", "scales", "g_idx"}), ("awq", {"qweight", "qzeros", "scales"}),
                        ("compressed-tensors", {"weight_packed", "weight_scale", "weight_shape", "weight_zero_point"})):
        target = os.path.join(FOLDER, "to-" + to)
        run = Run("convert", source, target, "--to", to, "--group", "32")
        check(run.code == 0 and "matrices packed" in run.err, f"{to}: {run.err}")
        with open(os.path.join(target, "config.json")) as file:
            check(json.load(file)["quantization_config"]["quant_method"] == to, to)
        with open(os.path.join(target, "model.safetensors"), "rb") as file:
            names = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        stem = "model.layers.0.self_attn.q_proj."
        check({name[len(stem):] for name in names if name.startswith(stem)} == endings, f"{to}: {sorted(names)[:9]}")
        check(Run("inspect", target).code == 0, f"{to} is read again")
        fails_with_one_line(Run("convert", source, target, "--to", to, "--group", "32"), "is there already", "--force")
        check(Run("convert", source, target, "--to", to, "--group", "32", "--force").code == 0, "with --force")
    target = os.path.join(FOLDER, "to-none")
    fails_with_one_line(Run("convert", SHIPPED, target, "--to", "awq"), "Hugging Face directory")
    fails_with_one_line(Run("convert", source, target, "--to", "awq", "--bits", "8"), "4 bits")
    fails_with_one_line(Run("convert", source, target, "--to", "gptq", "--group", "1000"), "whole groups of 1000")
    check(not os.path.exists(target), "nothing is left of what was refused")


def test_an_interrupted_convert_leaves_nothing():
    target = os.path.join(FOLDER, "interrupted.gguf")
    command = [PROGRAM, "convert", SHIPPED, target, "--type", "Q2_K", "--threads", "1"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while child.poll() is None and time.monotonic() < deadline:
        if any(name.startswith("interrupted.gguf.") for name in os.listdir(FOLDER)):
            child.send_signal(signal.SIGINT)
            break
        time.sleep(0.001)
    code = child.wait(timeout=60)
    left = [name for name in os.listdir(FOLDER) if name.startswith("interrupted.gguf")]
    # On a fast machine it may have been done before the signal came.
    check((code == 130 and left == []) or (code == 0 and left == ["interrupted.gguf"]), (code, left))
    if left:
        os.remove(target)


def test_bench_tokenize_measures():
    rows = json.loads(Run("bench", "tokenize", "--size", "64K", "--run", "16K", "--hostile", "-r", "1", "--json").out)
    check(len(rows) > 5 and all(row["megabytes_per_second"] > 0 and row["tokens"] > 0 for row in rows), rows)
    check(rows[0]["bytes"] == 65536 and rows[0]["times_prose"] == 1, rows[0])


class FakeOpenAi(http.server.BaseHTTPRequestHandler):
    """Answers every completion with as many tokens as were asked for, and refuses every prompt of seven tokens."""
    protocol_version = "HTTP/1.1"
    bodies = []

    def log_message(self, *_):
        pass

    def reply(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(200, "application/json", b'{"data": [{"id": "fake/one", "meta": {"n_vocab": 50}}]}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bodies.append(body)
        if len(body["prompt"]) == 7:
            return self.reply(429, "application/json", b'{"error": {"message": "too many"}}')
        count = body["max_tokens"]
        parts = [{"choices": [{"text": " a", "finish_reason": None}]}] * count
        parts.append({"choices": [], "usage": {"prompt_tokens": len(body["prompt"]), "completion_tokens": count}})
        text = "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"
        return self.reply(200, "text/event-stream", text.encode())


def test_bench_serve_measures_any_server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeOpenAi)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    load = ("bench", "serve", "--base-url", url, "--num-prompts", "6", "--random-output-len", "5")
    FakeOpenAi.bodies.clear()
    run = Run(*load, "--random-input-len", "9", "--goodput", "ttft:60000", "e2el:60000")
    check(run.code == 0 and "Serving Benchmark Result" in run.out, run)
    for line in (r"Successful requests: +6 ", r"Total input tokens: +54 ", r"Total generated tokens: +30 ",
                 r"Request goodput \(req/s\): +\d", r"P99 ITL \(ms\): +\d"):
        check(re.search(line, run.out), f"'{line}' expected in: {run}")
    body = FakeOpenAi.bodies[0]
    check(body["model"] == "fake/one" and body["ignore_eos"] and body["stream"], body)
    check(all(0 <= token < 50 for token in body["prompt"]), body["prompt"])
    run = Run(*load, "--random-input-len", "9", "--save-result", "--save-detailed", "--result-dir", FOLDER,
              "--result-filename", "serve.json", "--metadata", "run=1", "--max-concurrency", "2")
    saved = json.load(open(os.path.join(FOLDER, "serve.json"), encoding="utf-8"))
    check(run.code == 0 and saved["completed"] == 6 and saved["run"] == "1" and saved["request_rate"] == "inf", saved)
    check(saved["output_lens"] == [5] * 6 and len(saved["itls"][0]) == 4 and saved["max_concurrency"] == 2, saved)
    run = Run(*load, "--random-input-len", "7")
    check(run.code == 1 and "429: too many" in run.err and "Failed requests:                         6" in run.out, run)
    server.shutdown()
    server.server_close()


def test_bench_serve_refuses_what_makes_no_sense():
    fails_with_one_line(Run("bench", "serve", "--sweep"), "--goodput", code=2)
    fails_with_one_line(Run("bench", "serve", "ttft:3"), "ttft:3", code=2)
    fails_with_one_line(Run("bench", "serve", "--dataset-name", "timed_trace"), "--dataset-path", code=2)
    fails_with_one_line(Run("bench", "serve", "--request-rate", "fast"), "fast")
    fails_with_one_line(Run("bench", "serve", "--base-url", "https://127.0.0.1"), "plain HTTP")


def test_plan_answers_and_refuses():
    words = ("plan", "--shape", "llama-2-7b", "--hw", "h100")
    report = json.loads(Run(*words, "--weights", "F16", "--ctx", "2048", "--json").out)
    check(report["memory"]["kv"] == 1 << 30 and abs(report["memory"]["weights"] / 13.5e9 - 1) < 0.01, report["memory"])
    check(report["decode"]["bound"] == "memory" and report["frontier"][-1]["batch"] > 8, report["frontier"])
    fails_with_one_line(Run("plan", "--shape", "llama-2-7b", "--hw", "h900"), "h100", "json")
    fails_with_one_line(Run("plan", "--shape", "lama", "--hw", "h100"), "llama-2-7b")
    fails_with_one_line(Run(*words, "--kv-heads", "0"), "at least 1")
    fails_with_one_line(Run(*words, "--kv-heads", "7"), "divisor of 32")
    fails_with_one_line(Run(*words, "--tp", "3"), "divisor")
    fails_with_one_line(Run(*words, "--batch", "-1"), "between 1 and", code=2)
    fails_with_one_line(Run(*words, "--ctx", "10", "--prompt", "9", "--output", "2"), "--ctx 11")
    split = json.loads(Run(*words, "--ranks", "2,4", "--json").out)["ranks"]
    check([line["ranks"] for line in split] == [1, 2, 4], split)
    check(split[0]["sent_bytes_per_token"] == 0 and split[2]["decode_seconds"] < split[0]["decode_seconds"], split)
    check(0.49 < split[1]["weights"] / split[0]["weights"] < 0.51 and split[1]["exchanges_per_step"] > 5 * 32, split)
    layers = json.loads(Run(*words, "--ranks", "2", "--pipeline", "--json").out)["ranks"][1]
    check(layers["pipeline"] and 0 < layers["sent_bytes_per_token"] < split[1]["sent_bytes_per_token"], layers)
    fails_with_one_line(Run(*words, "--ranks", "2", "--tp", "2"), "not both")
    fails_with_one_line(Run(*words, "--ranks", "33", "--pipeline"), "32 layers on 33 ranks")
    fails_with_one_line(Run("plan", "--shape", "llama-2-7b", "--hw", "epyc", "--ranks", "2"), "no link")
    fails_with_one_line(Run("plan", "--check", "--ranks", "1"), "2 or more")
    fails_with_one_line(Run("plan", "--cluster", "--shape", "llama-2-7b", "--hw", "h100", "--ranks", "2"), "--tp")
    page = os.path.join(FOLDER, "plan.html")
    check(Run(*words, "--price", "2", "--html", page).code == 0, "a page")
    text = open(page, encoding="utf-8").read()
    check(text.startswith("<!doctype html>") and text.count("<svg") >= 4 and "http" not in text, "in one file")
    check(not re.search(r"\b(nan|inf)\b", text), "only numbers")


def test_guesses_change_no_answer():
    asked = ("run", "-p", "Once upon a time", "-n", "60", "--seed", "5", "--json")
    for temperature in ("0", "1"):
        plain = json.loads(Run(*asked, "--temp", temperature).out)
        for guesses in ("ngram", "suffix", SHIPPED, f"ngram,{SHIPPED}"):
            run = Run(*asked, "--temp", temperature, "--speculate", guesses)
            check(run.code == 0, run.err)
            answer = json.loads(run.out)
            check(answer["tokens"] == plain["tokens"], f"{guesses} at temperature {temperature}")
            if guesses == SHIPPED:  # it agrees with itself
                usage = answer["usage"]
                check(usage["drafted_tokens"] == usage["accepted_tokens"] > 0, usage)
    fails_with_one_line(Run("run", "-p", "x", "--speculate", "no-such-thing", "-q"), "no-such-thing", "ngram")
    # The names llama.cpp and vLLM have for the same, and more guesses than a step takes.
    plain = json.loads(Run(*asked, "--temp", "0").out)
    for names in (("-md", "--draft"), ("--model-draft", "--draft-n"),
                  ("--speculative-model", "--num-speculative-tokens")):
        run = Run(*asked, "--temp", "0", names[0], SHIPPED, names[1], "2")
        check(run.code == 0, run.err)
        answer = json.loads(run.out)
        check(answer["tokens"] == plain["tokens"] and answer["usage"]["accepted_tokens"] > 0, names)
    too_many = Run("run", "-p", "x", "--speculate", "ngram", "--draft-max", "17", "-q")
    fails_with_one_line(too_many, "17", "16", code=2)


def test_verify_speculate_shows_that_guesses_change_nothing():
    few = ("--requests", "10", "--parallel", "4", "--prompt", "32", "-n", "16", "-t", "1")
    run = Run("verify", "speculate", *few, "--json")
    check(run.code == 0, run.err)
    answer = json.loads(run.out)
    check(answer["differences"] == 0 and answer["right"] > 0 and len(answer["ways"]) == 36, run.out)


def test_verify_crowd_finds_what_differs_and_says_what_it_cannot_show():
    few = ("verify", "crowd", "--requests", "10", "--parallel", "4", "--prompt", "48", "-n", "24", "--json")
    run = Run(*few)
    check(run.code == 0, run)
    found = json.loads(run.out)
    check(found["differences"] == 0 and len(found["ways"]) == 7 and found["answers"] >= 10, run)
    check(sum(way["preemptions"] for way in found["ways"]) > 0, run)
    run = Run(*few, "--plant")
    check(run.code == 1 and json.loads(run.out)["differences"] == 1, run)
    run = Run("verify", "crowd", "--requests", "2", "--parallel", "4", "--prompt", "8", "-n", "2", "-q")
    check(run.code == 1 and "nobody was put off" in run.err, run)
    fails_with_one_line(Run("verify", "crowd", "--prompt", "100000", "-q"), "100000", "--prompt")


def test_verify_ops_checks_a_device_and_sees_a_changed_number():
    run = Run("verify", "ops", "--device", "cpu", "--only", "rope", "--json")
    check(run.code == 0, run)
    found = json.loads(run.out)
    check(found["checks"] == 1 and found["wrong"] == 0 and found["lines"][0]["compared"] > 0, run)
    run = Run("verify", "ops", "--device", "cpu", "--only", "rope", "--json", "--plant")
    check(run.code == 1 and json.loads(run.out)["wrong"] == 1, run)
    fails_with_one_line(Run("verify", "ops", "--device", "cpu", "--only", "abacus", "-q"), "abacus")


def test_eval_compares_files_line_by_line():
    paths = [os.path.join(FOLDER, name) for name in ("one.txt", "two.txt", "short.txt")]
    texts = ("The dog bit the man.\nA cat sat.\n", "The dog had bit the man.\nA cat sat.\n", "x\n")
    for path, text in zip(paths, texts):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    for verb in ("bleu", "chrf", "rouge", "f1", "em"):
        same = json.loads(Run("eval", verb, paths[0], paths[0], "--json").out)
        other = json.loads(Run("eval", verb, paths[0], paths[1], "--json").out)
        if verb == "rouge":
            same, other = same["rouge2"], other["rouge2"]
        check(abs(same["score"] - (100 if verb in ("bleu", "chrf") else 1)) < 1e-9, same)
        check(other["score"] < same["score"] and other["low"] <= other["score"] <= other["high"], other)
        fails_with_one_line(Run("eval", verb, paths[0], paths[2]), "1 line,", "has 2")


def test_documents_name_only_verbs_that_exist():
    known = {word for name in verbs() for word in (name, name.split()[0])} | {"help", "VERB", "ARGS"}
    for name in ("README.md", "CONTRIBUTING.md", "docs/tour.md", "docs/architecture.md"):
        path = os.path.join(ROOT, name)
        text = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
        for word in re.findall(r"(?:`|\./|^ *)millrace ([a-zA-Z]+)", text, re.M):
            check(word in known, f"{name} names a verb '{word}'")


def run_all(tests):
    """Runs the functions of a module that are named test_..., each with FOLDER and SHIPPED of this one."""
    global FOLDER, SHIPPED
    SHIPPED = json.loads(Run("inspect", "--json").out)["path"]  # the model that is used when none is named
    broken = 0
    with tempfile.TemporaryDirectory() as FOLDER:
        fixtures.write_all(FOLDER)
        for name, test in list(tests.items()):
            if not name.startswith("test_"):
                continue
            title = name[len("test_"):].replace("_", " ")
            try:
                test()
                print(f"ok - {title}")
            except Exception:  # noqa: BLE001 - whatever it is, this test failed
                broken += 1
                print(f"not ok - {title}")
                print("".join(f"  {line}\n" for line in traceback.format_exc().splitlines()[-8:]), end="")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(run_all(globals()))
