"""What deploy/ says, held against itself and the program: deploy.py MILLRACE. Prints a line per check.

Manifests are read as YAML, their parts must fit together, and the program is started with the flags that the
Deployment gives it: its probes, port and metrics must be there. The Containerfile copies what exists and installs every
library that the program needs. Then mistakes are planted, which the checks must find. HAProxy and kubectl look at their
files where they are installed. Needs python3-yaml.
"""
import asyncio
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import faults  # noqa: E402

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
DEPLOY = os.path.join(ROOT, "deploy")
# What every Debian has, however slim.
BASE = {"libc6", "libgcc-s1", "libstdc++6"}

# A file, what is changed in it, and what must then be said.
PLANTED = (
    ("kubernetes/deployment.yaml", "terminationGracePeriodSeconds: 45", "terminationGracePeriodSeconds: 20", "grace"),
    ("kubernetes/deployment.yaml", "path: /health", "path: /healthz", "/healthz"),
    ("kubernetes/deployment.yaml", "--open-metrics", "--opened-metrics", "flags"),
    ("kubernetes/deployment.yaml", "containerPort: 8080", "containerPort: 8081", "port"),
    ("kubernetes/service.yaml", "targetPort: http", "targetPort: web", "port"),
    ("kubernetes/disruption.yaml", "app: millrace", "app: mill", "labels"),
    ("kubernetes/disruption.yaml", "maxUnavailable: 1", "maxUnavailable: 3", "disruption"),
    ("kubernetes/autoscaler.yaml", "vllm:num_requests_waiting", "vllm:requests_waiting", "metric"),
    ("kubernetes/autoscaler.yaml", "    kind: Deployment\n    name: millrace", "    kind: Deployment\n    name: mill",
     "scales"),
    ("kubernetes/inferencepool.yaml", "- number: 8080", "- number: 8000", "port"),
    ("kubernetes/kustomization.yaml", "  - service.yaml\n", "", "service.yaml"),
    ("kubernetes/kustomization.yaml", "keys.txt=", "key.txt=", "keys.txt"),
    ("kubernetes/kustomization.yaml", "  - name: millrace\n    newTag", "  - name: mill\n    newTag", "image"),
    ("Containerfile", "COPY models ", "COPY model ", "model"),
    ("Containerfile", "EXPOSE 8080", "EXPOSE 80", "port"),
    ("Containerfile", "libfmt9 ", "", "libfmt9"),
    ("Containerfile", "stories-14m-q8_0.gguf", "stories.gguf", "stories.gguf"),
)


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()


def manifests(folder):
    """By kind; every file of the folder has one."""
    found = {}
    for name in sorted(os.listdir(os.path.join(folder, "kubernetes"))):
        one = yaml.safe_load(read(folder, f"kubernetes/{name}"))
        found[one["kind"]] = one
    return found


def check_manifests(folder, program):
    """What is wrong with the manifests."""
    wrong, all_kinds = [], manifests(folder)
    deployment, kustomization = all_kinds["Deployment"], all_kinds["Kustomization"]
    pod = deployment["spec"]["template"]
    container = pod["spec"]["containers"][0]
    labels = pod["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}

    optional = {"kustomization.yaml", "inferencepool.yaml"}
    for name in set(os.listdir(os.path.join(folder, "kubernetes"))) - optional - set(kustomization["resources"]):
        wrong.append(f"{name} is no resource of kustomization.yaml")
    for kind in ("Deployment", "PodDisruptionBudget", "InferencePool"):
        if not all_kinds[kind]["spec"]["selector"]["matchLabels"].items() <= labels:
            wrong.append(f"{kind}: no pod has these labels")
    if not all_kinds["Service"]["spec"]["selector"].items() <= labels:
        wrong.append("Service: no pod has these labels")

    served = int(re.search(r"^EXPOSE (\d+)", read(folder, "Containerfile"), re.M).group(1))
    said = [ports.get("http"), served, int(pod["metadata"]["annotations"]["prometheus.io/port"]),
            *(port["number"] for port in all_kinds["InferencePool"]["spec"]["targetPorts"])]
    said += [ports.get(port["targetPort"]) for port in all_kinds["Service"]["spec"]["ports"]]
    if set(said) != {default_port(program)}:
        wrong.append(f"ports differ: {said}, and the program has {default_port(program)}")

    args = container["args"]
    grace = int(args[args.index("--grace") + 1])
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][-1])
    if pod["spec"]["terminationGracePeriodSeconds"] < grace + pause + 5:
        wrong.append("the grace period is no longer than --grace and the pause together")
    if all_kinds["PodDisruptionBudget"]["spec"]["maxUnavailable"] >= deployment["spec"]["replicas"]:
        wrong.append("the disruption budget lets all replicas go")
    scaler = all_kinds["HorizontalPodAutoscaler"]["spec"]
    if scaler["scaleTargetRef"]["name"] != deployment["metadata"]["name"]:
        wrong.append("the autoscaler scales something else")
    if container["image"] not in [image["name"] for image in kustomization["images"]]:
        wrong.append("the image is none of kustomization.yaml's")
    secret = kustomization["secretGenerator"][0]
    mounts = {volume["name"]: volume["secret"]["secretName"] for volume in pod["spec"]["volumes"]}
    place = {mount["mountPath"]: mounts[mount["name"]] for mount in container["volumeMounts"]}
    keys = args[args.index("--api-key-file") + 1]
    held = [literal.split("=")[0] for literal in secret["literals"]]
    if place.get(os.path.dirname(keys)) != secret["name"] or os.path.basename(keys) not in held:
        wrong.append(f"{keys} is not in the secret")
    return wrong


@functools.cache
def default_port(program):
    text = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"--port N\b.*?\(default (\d+)\)", text).group(1))


def check_container(folder, program):
    """What the Containerfile copies and installs, and what of it is not there or not enough."""
    wrong, text = [], read(folder, "Containerfile").replace("\\\n", " ")
    last = text.split("\nFROM ")[-1]
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M):
        source = line.split()[0]
        if not os.path.exists(os.path.join(ROOT, source)):
            wrong.append(f"COPY {source}: there is no such file")
    models = re.findall(r"/usr/local/share/millrace/(models/[\w.-]+)",
                        last + read(folder, "kubernetes/deployment.yaml"))
    wrong += [f"{model}: there is no such file" for model in models if not os.path.exists(os.path.join(ROOT, model))]
    installed = set(re.search(r"apt-get install -y --no-install-recommends (.*?)&&", last).group(1).split())
    wrong += [f"{package} is needed to run and not installed" for package in packages_of(program) - installed - BASE]
    return wrong


@functools.cache
def packages_of(program):
    """Debian packages of the libraries that the program names; those of MPI are not in the image's build."""
    head = subprocess.run(["objdump", "-p", program], capture_output=True, text=True, check=True).stdout
    paths = dict(re.findall(r"^\s*(\S+) => (\S+)", subprocess.run(["ldd", program], capture_output=True, text=True,
                                                                   check=True).stdout, re.M))
    named = [paths[library] for library in re.findall(r"NEEDED\s+(\S+)", head) if library in paths]
    # Debian moved /lib into /usr/lib, and packages name either.
    places = {place for path in named for place in (path, os.path.realpath(path), "/usr" + path)}
    owners = subprocess.run(["dpkg", "-S", *sorted(places)], capture_output=True, text=True, check=False).stdout
    found = {line.split(":")[0] for line in owners.splitlines()}
    return {name for name in found if "mpi" not in name}


async def check_program(folder, program):
    """The program with the Deployment's flags answers the probes, and has the metric that is scaled by."""
    container = manifests(folder)["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    scaler = manifests(folder)["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["metric"]["name"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as keys:
        keys.write("default change-this-key\n")
        keys.flush()
        place = {"/keys/keys.txt": keys.name}
        words = [place.get(word, word.replace("/usr/local/share/millrace", ROOT)) for word in container["args"]]
        server = faults.Server(program, *words)
        try:
            await asyncio.wait_for(server.start(), faults.PATIENCE)
        except (RuntimeError, OSError, asyncio.TimeoutError, AssertionError) as failure:
            return [f"the flags are refused: {failure} {server.said()[-300:]}"]
        try:
            wrong = []
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                path = container[probe]["httpGet"]["path"]
                status, _ = await server.fetch(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                if status != 200:
                    wrong.append(f"{probe} {path}: {status}")
            _, body = await server.fetch(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            names = re.findall(r"vllm:\w+", read(folder, "kubernetes/inferencepool.yaml"))
            wrong += [f"there is no metric {name}" for name in [scaler, *names] if name not in body.decode()]
            return wrong
        finally:
            server.stop()


async def all_wrong(folder, program, served=True):
    wrong = check_manifests(folder, program) + check_container(folder, program)
    return wrong + (await check_program(folder, program) if served else [])


async def planted(program):
    """Mistakes that were not found."""
    missed = []
    for name, old, new, word in PLANTED:
        with tempfile.TemporaryDirectory() as place:
            folder = os.path.join(place, "deploy")
            shutil.copytree(DEPLOY, folder)
            text = read(folder, name)
            if old not in text:
                missed.append(f"{name} has no '{old}' to change")
                continue
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text.replace(old, new))
            served = word in ("/healthz", "flags", "metric")
            wrong = await all_wrong(folder, program, served)
            if not any(word in one for one in wrong):
                missed.append(f"{name}, '{new}': {wrong}")
    return missed


async def run(program, report):
    wrong = await all_wrong(DEPLOY, program)
    report.say("deploy/ fits together and fits the program", "; ".join(wrong) if wrong else None)
    missed = await planted(program)
    report.say(f"{len(PLANTED)} planted mistakes are found", "; ".join(missed) if missed else None)
    if haproxy := shutil.which("haproxy") or shutil.which("/usr/sbin/haproxy"):
        ended = subprocess.run([haproxy, "-c", "-q", "-f", os.path.join(DEPLOY, "haproxy.cfg")], capture_output=True,
                               text=True, check=False)
        report.say("HAProxy takes deploy/haproxy.cfg", ended.stderr[-500:] or "refused" if ended.returncode else None)
    if shutil.which("kubectl"):
        ended = subprocess.run(["kubectl", "kustomize", os.path.join(DEPLOY, "kubernetes")], capture_output=True,
                               text=True, check=False)
        kinds = {one["kind"] for one in yaml.safe_load_all(ended.stdout)} if ended.returncode == 0 else set()
        report.say("kubectl kustomize renders deploy/kubernetes",
                   None if {"Deployment", "Service", "Secret"} <= kinds else f"{kinds} {ended.stderr[-500:]}")


if __name__ == "__main__":
    outcome = faults.Report()
    asyncio.run(run(sys.argv[1], outcome))
    sys.exit(0 if outcome.failures == 0 else 1)
