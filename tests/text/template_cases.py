"""Computes the results in template_cases.json anew: what Python's Jinja2 renders for each template there.

Jinja2 is set up as transformers sets it up for chat templates. To add a case, write {"template": "..."} into the file
and run this with a Python that has jinja2 3.1. `"error": true` means that Jinja2 raises, whatever it raises.
"""
import datetime
import json
import os

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def to_json(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = NOW.strftime
    return made


def result(env, template, variables):
    try:
        return {"template": template, "text": env.from_string(template).render(**variables)}
    except Exception:  # whatever Jinja2 raises
        return {"template": template, "error": True}


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "template_cases.json")
    with open(path) as file:
        data = json.load(file)
    env = environment()
    for group in data["groups"]:
        variables = group.get("variables", data["variables"])
        group["cases"] = [result(env, case["template"], variables) for case in group["cases"]]
    with open(path, "w") as file:
        json.dump(data, file, ensure_ascii=False, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
