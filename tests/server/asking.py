"""What is asked of a server as bytes, and how its answers are read. Part of faults.py."""
import asyncio
import json
import re

PATIENCE = 300  # seconds; only reached when something is wrong


def request(path, body, headers=""):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n{headers}\r\n"
    return head.encode() + data


async def read_answer(reader):
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    status = int(head[9:12])
    length = re.search(rb"(?i)content-length: (\d+)", head)
    if length:
        return status, await asyncio.wait_for(reader.readexactly(int(length.group(1))), PATIENCE)
    body = b""
    while True:
        size = int(await asyncio.wait_for(reader.readline(), PATIENCE), 16)
        chunk = await asyncio.wait_for(reader.readexactly(size + 2), PATIENCE)
        if size == 0:
            return status, body
        body += chunk[:-2]


def story(seed, tokens=60):
    """A body whose answer depends on its seed and nothing else."""
    return {"prompt": [1, 403 + seed, 407, 261], "seed": seed, "temperature": 0.9, "max_tokens": tokens,
            "ignore_eos": True, "stream": True, "return_token_ids": True, "user": "background"}


def tokens_of(body):
    """Text and token ids of a stream, or None if it did not end as it should."""
    if not body.endswith(b"data: [DONE]\n\n"):
        return None
    text, ids = "", []
    for event in body.decode().split("\n\n"):
        if event.startswith("data: {"):
            choice = json.loads(event[6:])["choices"][0]
            text += choice.get("text", "")
            ids += choice.get("token_ids", [])
    return text, ids
