"""Grammars that mean harm, for faults.py: each is answered with a 400 that names the field and the place in it, or
works; and so many different ones that no cache can keep them all. What they do to the streams beside them and to
memory, faults.py sees."""
import asyncio
import json
import re


def request(fields):
    body = {"prompt": [1, 403, 407], "max_tokens": 24, "seed": 3, "temperature": 1, "user": "hostile", **fields}
    data = json.dumps(body).encode()
    return (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n").encode() + data


def schema(value):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}}


FIELD = "response_format.json_schema.schema"


def nested(depth):
    value = {"type": "string"}
    for _ in range(depth):
        value = {"items": value}
    return value


def large_properties(size):
    """A schema of about so many bytes, all of it properties."""
    count = size // 40
    return {"type": "object", "properties": {f"property_{i:07}": {"type": "integer"} for i in range(count)}}


def cases():
    """Name, fields, and what must come: a part of `param` of a 400, or an expression the whole answer matches (None:
    any answer that is not over, or 400)."""
    many = [str(i * 7919) for i in range(1_000_000)]
    ambiguous = {"type": "array", "items": {"anyOf": [{"pattern": f"a{{{i}}}b*$"} for i in range(40)]}}
    doubling = {}
    for i in range(30):
        doubling[f"d{i}"] = {"oneOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]}
    doubling["d30"] = {"type": "null"}
    return [
        # cycles that consume nothing
        ("a schema that is itself", schema({"$ref": "#"}), FIELD, None),
        ("a circle of references", schema({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]},
                                                                          "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
         FIELD, None),
        ("a property that needs itself", schema({"type": "object", "required": ["a"],
                                                 "properties": {"a": {"$ref": "#"}}}), FIELD, None),
        ("a schema that is not itself", schema({"not": {"$ref": "#"}}), FIELD, None),
        ("a rule that is itself", {"grammar": "root ::= root"}, "grammar", None),
        ("a circle of rules", {"grammar": "root ::= a\na ::= b\nb ::= a"}, "grammar", None),
        ("a circle of empty rules", {"grammar": "root ::= a b\na ::= | b\nb ::= | a root"}, "grammar", None),
        ("a rule that cannot end", {"grammar": "root ::= \"a\" root"}, "grammar", None),
        # what nothing satisfies
        ("false", schema({"properties": {"a": False}, "required": ["a"], "type": "object"}), FIELD, None),
        ("bounds that cross", schema({"type": "string", "minLength": 3, "maxLength": 2}), FIELD, None),
        ("types that exclude one another", schema({"allOf": [{"type": "string"}, {"type": "null"}]}), FIELD, None),
        ("an expression that nothing matches", schema({"type": "string", "pattern": "^a", "maxLength": 0}), FIELD,
         None),
        ("a multiple that is not in the range", schema({"type": "integer", "minimum": 1, "maximum": 6,
                                                        "multipleOf": 7}), FIELD, None),
        ("a place that is named", schema({"properties": {"a": {"items": {"pattern": "(a)\\1"}}}}),
         FIELD + "/properties/a/items/pattern", None),
        ("a keyword that is not supported", schema({"items": {"unevaluatedProperties": False}}),
         FIELD + "/items/unevaluatedProperties", None),
        # expressions whose automata are large
        ("[ab]*a[ab]{13}", {"guided_regex": "[ab]*a[ab]{13}"}, None, "[ab]*"),
        ("[ab]*a[ab]{13} in a schema", schema({"type": "string", "pattern": "^[ab]*a[ab]{13}$"}), "", '"[ab]*"?'),
        ("(a{1,99}){1,99}", {"guided_regex": "(a{1,99}){1,99}"}, None, "a+"),
        ("(a{1,9999}b){1,9999}", {"guided_regex": "(a{1,9999}b){1,9999}"}, "guided_regex", None),
        ("((((a*)*)*)*)*b", {"guided_regex": "((((a*)*)*)*)*b"}, None, "a*b?"),
        ("(a|aa|aaa|b)*c{0,9}", {"guided_regex": "(a|aa|aaa|b)*c{0,9}"}, None, "[ab]*c*"),
        ("unbalanced", {"guided_regex": "(" * 4000}, "guided_regex", None),
        # sizes
        ("an enum of a million", schema({"enum": many}), "", '"[0-9]*"?'),
        ("a choice of a million", {"guided_choice": many}, "", "[0-9]*"),
        ("a schema of 1 MiB", schema(large_properties(1 << 20)), FIELD + "/properties", None),
        ("a schema of 200 kB", schema(large_properties(200_000)), "", r"(?s)\{.*"),
        ("a schema 60 deep", schema(nested(50)), "", "(?s).*"),
        ("a schema 1,000 deep", schema(nested(400)), "", None),
        ("rules of 300 kB", {"grammar": "root ::= \"a\"\n" + "# x\n" * 75_000}, "grammar", None),
        ("2^30 alternatives", schema({"$ref": "#/$defs/d0", "$defs": doubling}), FIELD, None),
        ("many patterns that overlap", schema(ambiguous), "", "(?s).*"),
    ]


async def answer_of(server, data):
    status, body = await server.fetch(data)
    return status, json.loads(body)


def judged(name, status, body, param, expression):
    """What is wrong with an answer, or None."""
    if status == 400:
        if param is None:
            return f"{name}: refused, {body}"
        said = body["error"].get("param") or ""
        if param and said != param:
            return f"{name}: param is {said!r}, not {param!r}"
        return None if body["error"].get("message") else f"{name}: no message"
    if status != 200 or expression is None:
        return f"{name}: status {status}, {str(body)[:300]}"
    text = body["choices"][0]["text"]
    return None if re.fullmatch(expression, text) else f"{name}: answer {text!r}"


async def grammars(server, _count, _rng):
    """All hostile grammars again and again: what was refused once is refused again, what works gives the same, and
    there comes a turn that takes no more memory. The first ones may: of bodies of ten megabytes the allocator keeps
    some."""
    before = {}
    for _ in range(6):
        for name, fields, param, expression in cases():
            status, body = await answer_of(server, request(fields))
            wrong = judged(name, status, body, param, expression)
            now = body["choices"][0]["text"] if status == 200 else body["error"]["message"]
            if wrong is None and before.setdefault(name, now) != now:
                wrong = f"{name}: {now!r} the second time, {before[name]!r} the first"
            if wrong:
                return wrong
        last, server.start_memory = server.start_memory, server.memory()
        if server.start_memory - last < 16 << 20:
            return None
    return "memory grows with every turn"


async def flood(server, count, _rng):
    """So many different small schemas; every answer is what its own schema says."""
    most, first = 0, None

    async def one(number):
        status, body = await answer_of(server, request(schema({"const": f"n{number}"})))
        if status != 200 or json.loads(body["choices"][0]["text"]) != f"n{number}":
            return f"schema {number}: status {status}, {str(body)[:300]}"
        return None

    for start in range(0, count, 50):
        wrong = await asyncio.gather(*(one(number) for number in range(start, min(count, start + 50))))
        if any(wrong):
            return next(said for said in wrong if said)
        most = max(most, server.whole_memory())
        if first is None and start * 2 >= count:
            first = most  # the cache is full by now: from here on it must not grow
    print(f"  {count} schemas: {(first or most) >> 20} MiB after half of them, {most >> 20} MiB at most")
    grown = most - (first or most)
    return None if grown < 24 << 20 else f"{grown} bytes more in the second half of {count} schemas"


CASES = len(cases())
