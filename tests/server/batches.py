"""`millrace batch` under kills, signals, full disks and files that are not what they should be. Part of faults.py."""
import fcntl
import json
import os
import resource
import select
import signal
import subprocess
import tempfile
import time


def line(name, tokens=20, **more):
    return json.dumps({"custom_id": name, "method": "POST", "url": "/v1/completions",
                       "body": {"prompt": [1, 403 + len(name)], "max_tokens": tokens, "temperature": 0,
                                "ignore_eos": True}, **more})


def rows_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(row) for row in file]


def once_each(rows, expected):
    """What is wrong with the ids of the rows; None if each of the expected is there once."""
    ids = sorted(row["custom_id"] for row in rows)
    return None if ids == sorted(expected) else f"{len(ids)} rows, {ids[:50]}"


class Batch:
    """A folder with a file of requests, and the command that answers it."""

    def __init__(self, program, folder, lines, patience):
        self.source, self.target = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
        with open(self.source, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        self.program, self.patience = program, patience

    def command(self, target=None):
        return [self.program, "batch", "-i", self.source, "-o", target or self.target, "-c", "512"]

    def run(self, target=None, **how):
        return subprocess.run(self.command(target), capture_output=True, timeout=self.patience, **how)

    def stop_midway(self, how, size=2000):
        """Starts it, and sends the signal once so many bytes are written. Exit code and what it said."""
        process = subprocess.Popen(self.command(), stderr=subprocess.PIPE)
        deadline = time.monotonic() + self.patience
        while process.poll() is None and time.monotonic() < deadline:
            if os.path.exists(self.target) and os.path.getsize(self.target) > size:
                process.send_signal(how)
                break
            time.sleep(0.005)
        _, said = process.communicate(timeout=self.patience)
        return process.returncode, said.decode()


def killed(program, report, patience):
    """Every line answered once, mistakes named, and a killed run gone on with."""
    with tempfile.TemporaryDirectory() as folder:
        lines = [line(f"r{i}") for i in range(40)]
        lines.insert(3, "no json")
        lines.insert(9, json.dumps({"custom_id": "bad", "url": "/v1/completions", "body": {"prompt": [1], "n": -1}}))
        one = Batch(program, folder, lines, patience)
        one.stop_midway(signal.SIGKILL)
        with open(one.target, "a", encoding="utf-8") as file:
            file.write('{"id":"batch_req_4","custom_id":"half of a li')
        done = one.run()
        rows = rows_of(one.target)
        wrong = once_each(rows, [f"r{i}" for i in range(40)] + ["bad", "line-4"])
        report.say("batch: after a kill every line is answered once",
                   wrong or (None if done.returncode == 0 else f"{done.stderr[-300:]!r}"))
        by_id = {row["custom_id"]: row for row in rows}
        good = (by_id["bad"]["response"]["status_code"] == 400 and by_id["line-4"]["error"] is not None and
                all(by_id[f"r{i}"]["response"]["body"]["usage"]["completion_tokens"] == 20 for i in range(40)))
        report.say("batch: mistakes are errors of their own line", None if good else str(by_id["bad"])[:300])


def interrupted(program, report, patience):
    """A signal ends it with a sentence and the shell's exit code while answers are open; the next run completes it."""
    for how in (signal.SIGINT, signal.SIGTERM):
        with tempfile.TemporaryDirectory() as folder:
            names = [f"r{i}" for i in range(60)]
            # The first are short, so that something is written while most of the others have long to go.
            lines = [line(name, 10 if i < 10 else 400) for i, name in enumerate(names)]
            one = Batch(program, folder, lines, patience)
            code, said = one.stop_midway(how)
            wrong = None if code == 128 + how and "the same command goes on" in said else f"code {code}: {said[-300:]}"
            rows = rows_of(one.target) if wrong is None else []
            if wrong is None and not all(row["response"]["status_code"] == 200 for row in rows):
                wrong = "what was cut off was written as an answer"
            if wrong is None and len(rows) >= len(names):
                wrong = "it was not midway"
            report.say(f"batch: {how.name} ends it in order", wrong)
            done = one.run()
            wrong = once_each(rows_of(one.target), names) if done.returncode == 0 else f"{done.stderr[-300:]!r}"
            report.say(f"batch: and the next run after {how.name} completes it", wrong)


def small_disk():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))


def full(program, report, patience):
    with tempfile.TemporaryDirectory() as folder:
        names = [f"r{i}" for i in range(60)]
        one = Batch(program, folder, [line(name, 60) for name in names], patience)
        done = one.run("/dev/full")
        told = done.returncode == 1 and b"No space left on device" in done.stderr
        report.say("batch: a full device is an error", None if told else f"{done.returncode} {done.stderr[-300:]!r}")
        done = one.run(preexec_fn=small_disk)
        told = (done.returncode == 1 and b"cannot write the answers" in done.stderr and
                one.target.encode() in done.stderr and b"Make room" in done.stderr)
        report.say("batch: so is a disk that fills up", None if told else f"{done.returncode} {done.stderr[-300:]!r}")
        done = one.run()
        wrong = once_each(rows_of(one.target), names) if done.returncode == 0 else f"{done.stderr[-300:]!r}"
        report.say("batch: with room again it is completed", wrong)


def files(program, report, patience):
    """Nothing is overwritten that is not a batch's own."""
    with tempfile.TemporaryDirectory() as folder:
        one = Batch(program, folder, [line("a")], patience)
        with open(one.source, "rb") as file:
            before = file.read()
        soft, hard, poem, verse = (os.path.join(folder, name) for name in ("soft", "hard", "poem", "verse"))
        os.symlink(one.source, soft)
        os.link(one.source, hard)
        with open(poem, "w", encoding="utf-8") as file:
            file.write("the only copy")
        with open(verse, "w", encoding="utf-8") as file:
            file.write('{"name": "the only copy"}')
        wrong = None
        for target, sentence in ((one.source, b"same file"), (soft, b"same file"), (hard, b"same file"),
                                 (poem, b"no answer of a batch"), (verse, b"no answer of a batch")):
            done = one.run(target)
            if done.returncode != 1 or sentence not in done.stderr:
                wrong = f"-o {os.path.basename(target)}: {done.returncode} {done.stderr[-300:]!r}"
        with open(one.source, "rb") as source, open(poem, "rb") as other, open(verse, "rb") as third:
            if source.read() != before or other.read() != b"the only copy" or b"only copy" not in third.read():
                wrong = "a file that is no batch's was changed"
        report.say("batch: files that are not its own are refused", wrong)


def together(program, report, patience):
    """Two batches on one file of answers: the second is refused, the first loses nothing."""
    with tempfile.TemporaryDirectory() as folder:
        names = [f"r{i}" for i in range(60)]
        one = Batch(program, folder, [line(name, 200) for name in names], patience)
        first = subprocess.Popen(one.command(), stderr=subprocess.PIPE)
        deadline = time.monotonic() + patience
        while not (os.path.exists(one.target) and os.path.getsize(one.target)) and time.monotonic() < deadline:
            time.sleep(0.01)
        second = one.run()
        _, said = first.communicate(timeout=patience)
        wrong = None if second.returncode == 1 and b"another batch" in second.stderr else f"{second.stderr[-300:]!r}"
        wrong = wrong or (once_each(rows_of(one.target), names) if first.returncode == 0 else f"{said[-300:]!r}")
        report.say("batch: two at once do not write to one file", wrong)


def pipes(program, report, patience):
    """Lines that come slowly are answered as they come; a signal and a reader that goes away end it."""
    with tempfile.TemporaryDirectory() as folder:
        one = Batch(program, folder, [line("a")], patience)
        command = [program, "batch", "-i", "/dev/stdin", "-o", one.target, "-c", "512"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write("".join(line(f"s{i}") + "\n" for i in range(3)).encode())
        process.stdin.flush()
        deadline, rows = time.monotonic() + patience, []
        while len(rows) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
            rows = rows_of(one.target) if os.path.exists(one.target) and os.path.getsize(one.target) else []
        process.send_signal(signal.SIGINT)  # the pipe stays open
        code = process.wait(timeout=patience)
        process.stdin.close()
        process.stderr.close()
        report.say("batch: answers are written while the next line is awaited, and SIGINT ends it",
                   once_each(rows, ["s0", "s1", "s2"]) or (None if code == 130 else f"code {code}"))
        with open(one.source, "w", encoding="utf-8") as file:
            file.write("".join(line(f"r{i}", 200) + "\n" for i in range(40)))
        reader, writer = os.pipe()
        process = subprocess.Popen([*one.command(f"/dev/fd/{writer}")], stderr=subprocess.PIPE, pass_fds=[writer])
        os.close(writer)
        os.read(reader, 100)
        os.close(reader)
        process.communicate(timeout=patience)
        gone = process.returncode in (1, -signal.SIGPIPE)
        report.say("batch: a reader that goes away ends it", None if gone else f"code {process.returncode}")
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        process = subprocess.Popen([*one.command(f"/dev/fd/{writer}")], stderr=subprocess.PIPE, pass_fds=[writer])
        os.close(writer)
        select.select([reader], [], [], patience)
        time.sleep(1)  # until the pipe is full, most likely; SIGINT ends it either way
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=patience)
        os.close(reader)
        report.say("batch: SIGINT ends it while nobody reads the answers",
                   None if process.returncode == 130 else f"code {process.returncode}")


def doubles(program, report, patience):
    """An id that comes twice: the first line is answered, the second told so, whatever was written before a kill."""
    with tempfile.TemporaryDirectory() as folder:
        one = Batch(program, folder, [line("a"), line("a"), line("b", method="GET")], patience)
        wrong = None
        for round_ in range(3):
            done = one.run()
            rows = rows_of(one.target)
            ends = sorted((row["custom_id"], row["response"] is not None) for row in rows)
            if done.returncode != 0 or ends != [("a", False), ("a", True), ("b", False)]:
                wrong = wrong or f"run {round_}: {done.stderr[-300:]!r} {ends}"
            # As if it was killed with the error rows written and the answer not.
            with open(one.target, "w", encoding="utf-8") as file:
                file.write("".join(json.dumps(row) + "\n" for row in rows if row["response"] is None))
        report.say("batch: an id that comes twice loses no answer", wrong)


def check(program, report, patience):
    for part in (killed, interrupted, full, files, together, pipes, doubles):
        try:
            part(program, report, patience)
        except subprocess.TimeoutExpired as late:
            report.say(f"batch: {part.__name__}", f"it does not end: {late}")
