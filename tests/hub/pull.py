"""`millrace pull|list|show|rm` against a hub and a registry of our own: whole, cut, damaged, hostile.

Usage: pull.py PROGRAM. Prints one line per test for ./test. Standard library only, and openssl for a certificate.
"""
import hashlib
import http.server
import json
import os
import re
import resource
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.realpath(os.path.join(HERE, "..", ".."))
sys.path.insert(0, os.path.join(HERE, "..", "apps"))
import fixtures  # noqa: E402

PROGRAM = os.path.realpath(sys.argv[1])
SHIPPED = os.path.join(ROOT, "models", "stories-14m-q8_0.gguf")
COMMIT = "c" * 40


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_name(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """A hub and a registry on one port. Repositories are dictionaries of files; faults are set by the tests."""

    def __init__(self, certificate=None):
        self.repositories, self.blobs, self.manifests = {}, {}, {}
        self.log, self.heads = [], []
        self.page = 1000          # entries of a list's page
        self.cut = None           # bytes after which a file's body breaks off
        self.cuts = 1 << 30       # how often
        self.ranges = True        # whether Range is heeded
        self.damage = False       # one byte of every file's body is wrong
        self.longer = False       # bodies go on for ever
        self.lie = {}             # path -> size to list
        self.redirect = None      # another server that files are at
        self.linked = None        # digest that redirects state instead of the true one
        self.status = {}          # path prefix -> status
        self.stall = None         # an event to wait for before a file's body
        self.listed = None        # entries to list instead of the true ones
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                hub.log.append(self.path)
                hub.heads.append(dict(self.headers))
                try:
                    hub.answer(self)
                except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
                    self.close_connection = True

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.scheme = "https"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.port = self.server.server_address[1]
        self.url = f"{self.scheme}://127.0.0.1:{self.port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def send(self, handler, status, body, headers=()):
        handler.send_response(status)
        for name, value in headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def answer(self, handler):
        path, _, query = handler.path.partition("?")
        for prefix, status in self.status.items():
            if path.startswith(prefix):
                return self.send(handler, status, b'{"error":"no"}')
        tree = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        blob = re.fullmatch(r"/v2/([^/]+/[^/]+)/blobs/sha256:([0-9a-f]{64})", path)
        manifest = re.fullmatch(r"/v2/([^/]+/[^/]+)/manifests/([^/]+)", path)
        if tree and tree[1] in self.repositories:
            if tree[2] == "revision":
                body = {"id": tree[1], "sha": COMMIT, "gated": False, "cardData": {"license": "apache-2.0"}}
                return self.send(handler, 200, json.dumps(body).encode())
            return self.list(handler, tree[1], query)
        if file and file[2] == COMMIT and file[3] in self.repositories.get(file[1], {}):
            data = self.repositories[file[1]][file[3]]
            if self.redirect:
                head = [("Location", f"{self.redirect.url}/blob/{sha256(data)}"), ("X-Linked-Size", str(len(data))),
                        ("X-Linked-Etag", f'"{self.linked or sha256(data)}"')]
                return self.send(handler, 302, b"elsewhere", head)
            return self.body(handler, data)
        if path.startswith("/blob/") and path[6:] in self.blobs:
            return self.body(handler, self.blobs[path[6:]])
        if blob and blob[2] in self.blobs:
            return self.body(handler, self.blobs[blob[2]])
        if manifest and (manifest[1], manifest[2]) in self.manifests:
            return self.send(handler, 200, json.dumps(self.manifests[manifest[1], manifest[2]]).encode())
        return self.send(handler, 404, b'{"error":"Repository not found"}')

    def list(self, handler, name, query):
        entries = []
        for path, data in sorted(self.repositories[name].items()):
            entry = {"type": "file", "path": path, "size": self.lie.get(path, len(data)), "oid": git_name(data)}
            if path.endswith((".gguf", ".safetensors")):
                entry["lfs"] = {"oid": sha256(data), "size": entry["size"], "pointerSize": 130}
                entry["oid"] = "0" * 40
            entries.append(entry)
        entries = self.listed or entries
        start = int(dict(part.split("=") for part in query.split("&")).get("cursor", "0"))
        head = []
        if start + self.page < len(entries):
            head = [("Link", f'<{self.url}{handler.path.split("?")[0]}?cursor={start + self.page}>; rel="next"')]
        self.send(handler, 200, json.dumps(entries[start:start + self.page]).encode(), head)

    def body(self, handler, data):
        start, match = 0, re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        if match and self.ranges:
            start = int(match[1])
            if start >= len(data):
                return self.send(handler, 416, b"")
        if self.damage:
            data = data[:-1] + bytes([data[-1] ^ 1])
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if self.longer:
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            while True:
                handler.wfile.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        handler.send_header("Content-Length", str(len(data) - start))
        handler.end_headers()
        body = data[start:]
        if self.cut is not None and self.cuts > 0:
            self.cuts -= 1
            handler.wfile.write(body[:self.cut])
            handler.wfile.flush()
            if self.stall:
                self.stall.wait(30)
            handler.close_connection = True
            handler.connection.close()
            return
        handler.wfile.write(body)


class World:
    """A hub with two repositories, an empty models folder, and a way to call the program with both."""

    def __init__(self, **kwargs):
        self.folder = tempfile.mkdtemp(prefix="millrace-pull-")
        self.models = os.path.join(self.folder, "models")
        self.hub = Hub(**kwargs)
        self.small = fixtures.gguf()
        self.env = {"PATH": os.environ.get("PATH", ""), "HOME": self.folder, "HF_ENDPOINT": self.hub.url,
                    "MILLRACE_MODELS_DIR": self.models}
        self.hub.repositories["own/tiny-GGUF"] = {
            "tiny-Q4_K_M.gguf": self.small, "tiny-Q8_0.gguf": fixtures.gguf("larger"), "README.md": b"# read me",
            "mmproj-F16.gguf": b"no"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hub.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *words, env=None, **kwargs):
        kwargs.setdefault("timeout", 120)
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, env={**self.env, **(env or {})},
                              stdin=subprocess.DEVNULL, **kwargs)
        done.shown = f"{' '.join(words)} -> {done.returncode}\nstdout: {done.stdout[:600]}\nstderr: {done.stderr[:900]}"
        return done

    def good(self, *words, **kwargs):
        done = self.run(*words, **kwargs)
        check(done.returncode == 0, done.shown)
        return done

    def bad(self, *words, said=(), code=1, **kwargs):
        done = self.run(*words, **kwargs)
        check(done.returncode == code, done.shown)
        last = done.stderr.rstrip("\n").split("\n")[-1]
        check(last.startswith("millrace: "), done.shown)
        for part in said:
            check(re.search(part, last), f"'{part}' expected in: {done.shown}")
        return done

    def place(self, *parts):
        return os.path.join(self.models, f"127.0.0.1_{self.hub.port}", *parts)

    def parts(self):
        return sorted(os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(self.models, ".partial"))
                      for name in names)

    def name(self, rest):
        return f"127.0.0.1:{self.hub.port}/{rest}"


def check(condition, what):
    if not condition:
        raise AssertionError(str(what))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def test_pull_list_show_run_and_rm():
    with World() as world:
        name = world.name("own/tiny-GGUF:Q4_K_M")
        done = world.good("pull", "own/tiny-GGUF")
        check(done.stdout == name + "\n", done.shown)
        check(read(world.place("own", "tiny-GGUF", "Q4_K_M", "tiny-Q4_K_M.gguf")) == world.small, "the bytes")
        check(not any("README" in line or "mmproj" in line or "Q8_0" in line for line in world.hub.log), world.hub.log)
        check(world.parts() == [], world.parts())
        check("already" in world.good("pull", "own/tiny-GGUF:q4_k_m").stderr, "a second pull has nothing to do")
        world.good("pull", "own/tiny-GGUF:Q8_0")
        rows = json.loads(world.good("list", "--json").stdout)["models"]
        check([row["name"] for row in rows] == [name, world.name("own/tiny-GGUF:Q8_0")], rows)
        check(rows[0]["used"] is None and rows[0]["size"] > len(world.small) and "GGUF" in rows[0]["format"], rows)
        table = world.good("list").stdout
        check(name in table and "just now" in table and "never" in table, table)
        shown = json.loads(world.good("show", "tiny-GGUF:Q4_K_M", "--json").stdout)
        check(shown["name"] == name and shown["license"] == "apache-2.0" and shown["revision"] == COMMIT, shown)
        check("context" in shown and "sampling" in shown and shown["source"].endswith("/own/tiny-GGUF"), shown)
        check("apache-2.0" in world.good("show", name).stdout, "words say it too")
        check(json.loads(world.good("list", "--json").stdout)["models"][0]["used"] is not None, "now it was used")
        world.bad("show", "tiny-GGUF", said=["may mean", "Q4_K_M", "Q8_0"])
        world.good("rm", "own/tiny-GGUF:Q4_K_M")
        check(not os.path.exists(world.place("own", "tiny-GGUF", "Q4_K_M")), "gone")
        world.bad("rm", "own/tiny-GGUF:Q4_K_M", said=["there is no model"])
        world.good("rm", "tiny-GGUF")
        check("no models in" in world.good("list").stderr and not os.listdir(world.models), "empty again")


def test_a_name_goes_where_a_path_does():
    with World() as world:
        world.hub.repositories["own/stories"] = {"stories-Q8_0.gguf": read(SHIPPED)}
        words = ("-n", "8", "--temp", "0", "--threads", "1")
        wanted = world.good("run", "-p", "Once upon a time", *words).stdout
        world.bad("run", "own/stories", "Once upon", said=["no model of that name", "millrace pull own/stories"])
        fetched = world.good("run", "-hf", "own/stories", "-p", "Once upon a time", *words)
        check(fetched.stdout == wanted, fetched.shown)
        check(world.good("run", "stories", "Once", "upon", "a", "time", *words).stdout == wanted, "NAME PROMPT")
        check(world.good("run", "-m", "own/stories:Q8_0", "-p", "Once upon a time", *words).stdout == wanted, "-m NAME")
        check("own/stories" in world.good("inspect", "stories").stdout, "inspect NAME")
        count = len(world.hub.log)
        world.good("run", "-hf", "own/stories:Q8_0", "-p", "x", *words)
        check(len(world.hub.log) == count, "what is here is not asked for again")
        os.rename(world.place("own", "stories", "Q8_0", "stories-Q8_0.gguf"), os.path.join(world.models, "mine.gguf"))
        check(world.good("run", "mine", "Once upon a time", *words).stdout == wanted, "put there by hand")
        check("mine" in world.good("list").stdout, "and listed")


def test_serve_by_name_and_its_name():
    with World() as world:
        world.hub.repositories["own/stories"] = {"stories-Q8_0.gguf": read(SHIPPED)}
        world.good("pull", "own/stories")
        process = subprocess.Popen([PROGRAM, "serve", "stories", "--port", "0", "--threads", "1"], env=world.env,
                                   stderr=subprocess.PIPE, text=True)
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if line.startswith("ready"):
                    break
            check(lines and world.name("own/stories:Q8_0") in lines[-1], lines)
        finally:
            process.send_signal(signal.SIGTERM)
            process.stderr.read()
            check(process.wait(60) == 0, "drained")


def test_safetensors_with_what_they_need_and_pages():
    with World() as world:
        world.hub.page = 2
        weights = fixtures.safetensors()
        files = {"config.json": b'{"model_type": "none"}', "model.safetensors": weights, "tokenizer.json": b"{}",
                 "pytorch_model.bin": b"evil", "onnx/model.onnx": b"x", "README.md": b"x",
                 "1_Pooling/config.json": b"{}"}
        world.hub.repositories["own/st"] = files
        world.run("pull", "own/st")
        place = world.place("own", "st", "latest")
        found = sorted(os.path.relpath(os.path.join(folder, name), place)
                       for folder, _, names in os.walk(place) for name in names)
        check(found == ["1_Pooling/config.json", "config.json", "millrace.json", "model.safetensors", "tokenizer.json"],
              found)
        check(read(os.path.join(place, "model.safetensors")) == weights, "the bytes")
        del files["model.safetensors"]
        world.bad("pull", "own/st", said=["pickles"])


def test_resume_after_a_cut():
    with World() as world:
        data = read(SHIPPED)
        world.hub.repositories["own/big"] = {"big-Q8_0.gguf": data}
        world.hub.cut, world.hub.cuts = 5_000_000, 1
        world.bad("pull", "own/big", "--retries", "0", said=["broke off|of .* came"])
        check([os.path.getsize(part) for part in world.parts()] == [5_000_000], world.parts())
        check(not os.path.exists(world.place("own")), "nothing is published")
        world.good("pull", "own/big")
        check(world.hub.heads[-1].get("Range") == "bytes=5000000-", world.hub.heads[-1])
        check(read(world.place("own", "big", "Q8_0", "big-Q8_0.gguf")) == data, "the bytes")
        # Within one call too, and where the server knows no ranges.
        world.good("rm", "big")
        world.hub.cut, world.hub.cuts, world.hub.ranges = 4_000_000, 1, False
        done = world.good("pull", "own/big", "--retries", "2")
        check("trying again" in done.stderr, done.shown)
        check(read(world.place("own", "big", "Q8_0", "big-Q8_0.gguf")) == data, "the bytes, from the beginning")


def test_another_content_does_not_go_on_from_a_part():
    with World() as world:
        data = read(SHIPPED)
        world.hub.repositories["own/big"] = {"big-Q8_0.gguf": data[:-1] + b"x"}
        world.hub.cut, world.hub.cuts = 5_000_000, 1
        world.bad("pull", "own/big", "--retries", "0")
        world.hub.repositories["own/big"] = {"big-Q8_0.gguf": data}
        world.good("pull", "own/big")
        check("Range" not in world.hub.heads[-1], world.hub.heads[-1])
        check(read(world.place("own", "big", "Q8_0", "big-Q8_0.gguf")) == data, "the bytes")


def test_interrupting_keeps_what_came():
    with World() as world:
        data = read(SHIPPED)
        world.hub.repositories["own/big"] = {"big-Q8_0.gguf": data}
        world.hub.cut, world.hub.cuts, world.hub.stall = 3_000_000, 1, threading.Event()
        process = subprocess.Popen([PROGRAM, "pull", "own/big"], env=world.env, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not any(os.path.getsize(part) == 3_000_000 for part in world.parts()):
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        check(process.returncode == 130 and "what came is kept" in said, said)
        world.hub.stall.set()
        check([os.path.getsize(part) for part in world.parts()] == [3_000_000], world.parts())
        world.good("pull", "own/big")
        check(world.hub.heads[-1].get("Range") == "bytes=3000000-", world.hub.heads[-1])


def test_damaged_and_wrong_sizes_are_refused():
    with World() as world:
        world.hub.damage = True
        world.bad("pull", "own/tiny-GGUF", said=["came damaged", "SHA-256", "pull it again"])
        check(world.parts() == [] and not os.path.exists(world.place("own")), "thrown away")
        world.hub.damage = False
        size = len(world.small)
        world.hub.lie["tiny-Q4_K_M.gguf"] = size - 1
        world.bad("pull", "own/tiny-GGUF", said=["longer than the"])
        world.hub.lie["tiny-Q4_K_M.gguf"] = size + 1
        world.bad("pull", "own/tiny-GGUF", "--retries", "0", said=[f"{size} bytes of {size + 1} bytes came"])
        world.hub.lie = {}
        world.good("pull", "own/tiny-GGUF")


def test_small_files_are_checked_too():
    with World() as world:
        files = {"config.json": b'{"model_type": "none"}', "model.safetensors": fixtures.safetensors()}
        world.hub.repositories["own/st"] = files
        true = git_name(files["config.json"])
        world.hub.listed = [
            {"type": "file", "path": "config.json", "size": len(files["config.json"]), "oid": "1" * 40},
            {"type": "file", "path": "model.safetensors", "size": len(files["model.safetensors"]), "oid": "2" * 40,
             "lfs": {"oid": sha256(files["model.safetensors"]), "size": len(files["model.safetensors"])}}]
        world.bad("pull", "own/st", said=["git name", true])


def test_endless_bodies_are_bounded():
    with World() as world:
        world.hub.longer = True
        world.bad("pull", "own/tiny-GGUF", said=["longer than the"])
        check(all(os.path.getsize(part) <= len(world.small) for part in world.parts()), world.parts())


def test_hostile_names_write_nothing_outside():
    with World() as world:
        evil = {"type": "file", "size": 5, "oid": "1" * 40}
        world.hub.listed = [{**evil, "path": path} for path in
                            ("../../evil-Q8_0.gguf", "/tmp/evil-Q8_0.gguf", "a/../../evil.gguf", "x\\..\\evil.gguf",
                             ".ssh/evil.gguf", "a\0b.gguf", "new\nline.gguf")]
        done = world.bad("pull", "own/tiny-GGUF", said=["neither safetensors"])
        check("7 files with names that could leave their folder" in done.stderr, done.shown)
        world.hub.listed = [{**evil, "path": "a-Q8_0.gguf"}, {**evil, "path": "a-Q8_0.gguf"}]
        world.bad("pull", "own/tiny-GGUF", said=["twice"])
        for name in ("../x", "own/../x", "own/x:../y", "own/x@../y"):
            world.bad("pull", name)
        found = [name for _, _, names in os.walk(world.folder) for name in names]
        check(found == [], found)


def test_statuses_become_sentences():
    with World() as world:
        world.bad("pull", "own/nothing", said=["not there", "404", "spelling"])
        world.hub.status["/api/models/own/tiny-GGUF"] = 401
        world.bad("pull", "own/tiny-GGUF", said=["wants a key", "HF_TOKEN"])
        world.hub.status = {"/api": 503}
        world.bad("pull", "own/tiny-GGUF", said=["cannot answer now", "503"])
        world.hub.status = {"/own/tiny-GGUF/resolve": 403}
        world.bad("pull", "own/tiny-GGUF", said=["wants a key"])
        world.hub.status = {}
        world.bad("pull", "own/tiny-GGUF:Q2_K", said=["no GGUF file 'Q2_K'", "Q4_K_M", "Q8_0"])
        world.bad("pull", "own/tiny-GGUF", env={"HF_ENDPOINT": "http://127.0.0.1:9"},
                  said=["cannot be reached", "by hand", re.escape(world.models)])


def test_the_key_goes_to_the_hub_only():
    with World() as world, World() as other:
        data = world.small
        world.hub.redirect = other.hub
        other.hub.blobs[sha256(data)] = data
        world.good("pull", "own/tiny-GGUF", env={"HF_TOKEN": "secret"})
        check(all(head.get("Authorization") == "Bearer secret" for head in world.hub.heads), world.hub.heads)
        check(other.hub.heads and not any("Authorization" in head for head in other.hub.heads), other.hub.heads)
        # Nor to a hub that someone's address names.
        other.hub.heads.clear()
        world.run("pull", f"{other.hub.url}/own/tiny-GGUF", env={"HF_TOKEN": "secret"})
        check(other.hub.heads and not any("Authorization" in head for head in other.hub.heads), other.hub.heads)
        # A redirect that says it leads to other content than was listed.
        world.good("rm", world.name("own/tiny-GGUF"))
        world.hub.linked = "0" * 64
        world.bad("pull", "own/tiny-GGUF", said=["other content"])


def test_over_https_with_a_certificate_of_our_own():
    folder = tempfile.mkdtemp(prefix="millrace-cert-")
    try:
        certificate = os.path.join(folder, "both.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=hub",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", os.path.join(folder, "key.pem"),
                        "-out", os.path.join(folder, "cert.pem")], check=True, capture_output=True)
        with open(certificate, "wb") as file:
            file.write(read(os.path.join(folder, "key.pem")) + read(os.path.join(folder, "cert.pem")))
        with World(certificate=certificate) as world, World() as plain:
            world.bad("pull", "own/tiny-GGUF", said=["not trusted", "--ca-file"])
            world.good("pull", "own/tiny-GGUF", "--ca-file", os.path.join(folder, "cert.pem"))
            world.good("rm", "tiny-GGUF")
            env = {"SSL_CERT_FILE": os.path.join(folder, "cert.pem")}
            world.good("pull", "own/tiny-GGUF", env=env)
            world.good("rm", "tiny-GGUF")
            # The names of a registry, which are without a scheme, mean HTTPS.
            add_registry_model(world)
            world.good("pull", world.name("library/tiny:1b"), env=env)
            # Never from encrypted to plain.
            world.hub.redirect = plain.hub
            plain.hub.blobs[sha256(world.small)] = world.small
            world.bad("pull", "own/tiny-GGUF", env=env, said=["without encryption"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def add_registry_model(world, params=b'{"temperature": 0.25, "top_k": 7, "stop": ["x"]}'):
    layers = {"model": world.small, "template": b"{{ .Prompt }}", "params": params, "license": b"free"}
    for data in layers.values():
        world.hub.blobs[sha256(data)] = data
    world.hub.manifests["library/tiny", "1b"] = {
        "schemaVersion": 2, "config": {"digest": "sha256:" + "0" * 64, "size": 1},
        "layers": [{"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{sha256(data)}",
                    "size": len(data)} for kind, data in layers.items()]}


def test_registries():
    with World() as world:
        add_registry_model(world)
        url = f"{world.hub.url}/v2/library/tiny/manifests/1b"
        done = world.good("pull", url)
        check(done.stdout == world.name("library/tiny:1b") + "\n", done.shown)
        place = world.place("library", "tiny", "1b")
        check(read(os.path.join(place, "model.gguf")) == world.small, "the bytes")
        check(read(os.path.join(place, "LICENSE")) == b"free", "the licence")
        shown = json.loads(world.good("show", "tiny:1b", "--json").stdout)
        check(shown["sampling"]["temperature"] == 0.25 and shown["sampling"]["top_k"] == 7, shown["sampling"])
        world.bad("pull", f"{world.hub.url}/v2/library/tiny/manifests/9b", said=["not there", "404"])
        world.good("rm", "tiny")
        world.hub.blobs[sha256(world.small)] = world.small[:-1] + b"?"
        world.bad("pull", url, said=["came damaged"])


def test_no_room():
    with World() as world:
        world.hub.lie["tiny-Q4_K_M.gguf"] = 1 << 49
        world.bad("pull", "own/tiny-GGUF", said=["512 TiB more are needed", "are free at", "millrace rm"])
        world.hub.lie["tiny-Q4_K_M.gguf"] = 1 << 60
        world.bad("pull", "own/tiny-GGUF", said=["which cannot be"])
        check(world.parts() == [], world.parts())
        # A disk that fills up on the way: here a limit on the size of files.
        data = read(SHIPPED)
        world.hub.repositories["own/big"] = {"big-Q8_0.gguf": data}

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))

        world.bad("pull", "own/big", said=["cannot write", "too large"], preexec_fn=limit, restore_signals=False)
        check([os.path.getsize(part) for part in world.parts()] == [2_000_000], world.parts())
        world.good("pull", "own/big")


def test_no_bar_where_nobody_watches():
    with World() as world:
        done = world.good("pull", "own/tiny-GGUF", "--quiet")
        check(done.stderr == "", done.shown)
        world.good("rm", "tiny-GGUF")
        done = world.good("pull", "own/tiny-GGUF")
        check("\r" not in done.stderr and "%" not in done.stderr and done.stderr.count("\n") <= 3, done.shown)


def main():
    tests = [(name, test) for name, test in sorted(globals().items()) if name.startswith("test_")]
    failed = 0
    for name, test in tests:
        try:
            test()
            print(f"ok - {name[5:].replace('_', ' ')}", flush=True)
        except Exception:  # noqa: BLE001 - every failure is reported and the next test runs
            failed += 1
            print(f"not ok - {name[5:].replace('_', ' ')}")
            print("".join(f"  {line}\n" for line in traceback.format_exc().splitlines()[-8:]), end="", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    if "without" in subprocess.run([PROGRAM, "pull", "a/b"], capture_output=True, text=True,
                                   env={"HF_ENDPOINT": "http://127.0.0.1:9", "HOME": "/nonexistent"}).stderr:
        print("skip - this program was built without libcurl")
        sys.exit(0)
    main()
