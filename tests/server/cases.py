"""What a server must take and what it must refuse: JSON texts, and requests as bytes. Data only."""

# No JSON, each for one reason.
BAD_JSON = [
    b"", b" ", b"\xef\xbb\xbf{}", b"{", b"}", b"[", b"]", b"[}", b"{]", b"{}}", b"[]]", b"{}{}", b"[] 1", b"{},",
    b"//", b"/**/{}", b"{}//", b"{/**/}", b"#{}", b"\x00", b"{}\x00", b"\xff\xfe{\x00}\x00", b"nul", b"nulll",
    b"Null", b"TRUE", b"tru", b"truee", b"undefined", b"NaN", b"Infinity", b"-Infinity", b"*", b"[*]", b"a", b"'a'",
    # lists
    b"[1,]", b"[,1]", b"[,]", b"[1,,2]", b"[1 2]", b"[1", b"[1,", b"[\"", b"[\"a", b"[\"a\"", b"[1:2]", b"[\"a\":1]",
    b"[1;2]", b"[<null>]", b"[\x0b]", b"[\xc2\xa0]", b"[\xe2\x81\xa0]", b"[\x0c]", b"[\\n]", b"[\\u000A]", b"[nul]",
    # objects
    b"{\"a\"}", b"{\"a\":}", b"{:1}", b"{\"a\":1,}", b"{,\"a\":1}", b"{\"a\":1,,\"b\":2}", b"{\"a\" 1}",
    b"{\"a\"::1}", b"{a:1}", b"{'a':1}", b"{1:1}", b"{null:1}", b"{[]:1}", b"{\"a\":1 \"b\":2}", b"{\"a\":1", b"{\"a",
    b"{\"a\":\"b", b"{\"a\":1}#", b"{\"a\":1}/", b"{\"a\":/*x*/1}", b"{\"a\":1/**/}", b"{\"a\",1}", b"{\"a\"=1}",
    b"{\"a\":\"b\"}}",
    # numbers
    b"[01]", b"[-01]", b"[00]", b"[+1]", b"[-]", b"[--1]", b"[++1]", b"[1.]", b"[.1]", b"[-.1]", b"[-1.]", b"[1.e1]",
    b"[1e]", b"[1e+]", b"[1E-]", b"[1ee1]", b"[1e1.5]", b"[0x1]", b"[0b1]", b"[0o7]", b"[1_000]", b"[1 000]",
    b"[1,000.5.]", b"[1.2.3]", b"[-NaN]", b"[inf]", b"[1a]", b"[1+2]", b"[\xef\xbc\x91]", b"[- 1]", b"[1e 1]",
    b"[0e]", b"[2.e-3]",
    # texts
    b"[\"\\\"]", b"[\"\\x00\"]", b"[\"\\a\"]", b"[\"\\'\"]", b"[\"\\u\"]", b"[\"\\u12\"]", b"[\"\\u123g\"]",
    b"[\"\\U0041\"]", b"[\"\\u{41}\"]", b"[\"\\", b"[\"\x00\"]", b"[\"\x01\"]", b"[\"\x1f\"]", b"[\"\n\"]",
    b"[\"\t\"]", b"[\"\r\"]", b"[\"\\uD800\"]", b"[\"\\uD800\\u\"]", b"[\"\\uD800\\u0041\"]", b"[\"\\uDC00\"]",
    b"[\"\\uDC00\\uD800\"]",
    # bytes that are no UTF-8
    b"[\"\x80\"]", b"[\"\xbf\"]", b"[\"\xc0\xaf\"]", b"[\"\xc1\xbf\"]", b"[\"\xc3\"]", b"[\"\xe0\x80\xaf\"]",
    b"[\"\xe2\x82\"]", b"[\"\xed\xa0\x80\"]", b"[\"\xf0\x80\x80\xaf\"]", b"[\"\xf0\x9f\x98\"]",
    b"[\"\xf4\x90\x80\x80\"]", b"[\"\xf5\x80\x80\x80\"]", b"[\"\xff\"]", b"[\xff]", b"\xff", b"[\"a\xffb\"]",
    # deeper than anybody needs
    b"[" * 100, b"[" * 100000, b"{\"a\":" * 100, b"{\"a\":" * 50000, b"[" * 100 + b"]" * 100, b"[{\"\":" * 1000,
]

# Values of every kind, in every spelling JSON has.
GOOD_JSON = [
    b"null", b"true", b"false", b"0", b"-0", b"1", b"-1", b"0.5", b"-0.0", b"1e5", b"1E5", b"1e+5", b"1e-5",
    b"1.25e-3", b"9007199254740993", b"123456789012345678901234567890", b"1e-400", b"\"\"", b"\"a\"", b"\"\\\"\"",
    b"\"\\\\\"", b"\"\\/\"", b"\"/\"", b"\"\\b\\f\\n\\r\\t\"", b"\"\\u0041\"", b"\"\\u00e9\"", b"\"\\uD83D\\uDE00\"",
    b"\"\xf0\x9f\x98\x80\"", b"\"\xc3\xa9\"", b"\"\\u0000\"", b"\"\x7f\"", b"\"\xe2\x80\xa8\"", b"\"\xef\xbf\xbf\"",
    b"[]", b"[ ]", b"[1]", b"[1,2]", b"[ 1 , 2 ]", b"[[],[[]],{}]", b"{}", b"{ }", b"{\"\":0}",
    b"{\"a\":{\"b\":[1]}}", b"\t1\n", b"{\"a\":1,\"b\":2}", b"[\"a\",null,true,1.5,{}]", b"\"" + b"a" * 10000 + b"\"",
    b"[" * 20 + b"]" * 20,
]

_HOST = b"Host: localhost\r\n"
_BODY = b"{\"content\":\"a\"}"


def _get(rest=b"", target=b"/health", version=b"HTTP/1.1"):
    return b"GET " + target + b" " + version + b"\r\n" + _HOST + rest + b"\r\n"


def _post(rest, body):
    return b"POST /tokenize HTTP/1.1\r\n" + _HOST + rest + b"\r\n" + body


_SIZED = b"Content-Length: %d\r\n" % len(_BODY)
_CHUNKED = b"Transfer-Encoding: chunked\r\n"
_ONE_CHUNK = b"%x\r\n%s\r\n0\r\n\r\n" % (len(_BODY), _BODY)

# Bytes of a connection, and the statuses of all answers to them. After one that cannot be read nothing more is said.
FRAMES = [
    # as they should be
    (_get(), [200]), (_get(version=b"HTTP/1.0"), [200]), (_get() * 5, [200] * 5), (b"\r\n" + _get(), [200]),
    (_get(b"Connection: close\r\n") + _get(), [200]), (_get(target=b"http://localhost/health"), [200]),
    (_get(target=b"/health?a=b"), [200]), (_get(target=b"/nowhere"), [404]),
    (_get(b"A:b\r\nC:  d  \r\nE:\r\n"), [200]), (b"GET /health HTTP/1.1\r\nhOsT: localhost\r\n\r\n", [200]),
    (b"POST /health HTTP/1.1\r\n" + _HOST + b"\r\n", [405]), (b"PATCH /health HTTP/1.1\r\n" + _HOST + b"\r\n", [405]),
    (b"DELETE / HTTP/1.1\r\n" + _HOST + b"\r\n", [404]), (_post(_SIZED, _BODY), [200]),
    (_post(_SIZED, _BODY) * 3, [200] * 3), (_post(_CHUNKED, _ONE_CHUNK), [200]),
    (_post(_CHUNKED, _ONE_CHUNK) + _get(), [200, 200]), (_post(b"Content-Length: 0\r\n", b""), [400]),
    (_post(_CHUNKED, b"0\r\n\r\n"), [400]), (_post(_CHUNKED, b"F;a=b\r\n" + _BODY + b"\r\n0\r\n\r\n"), [200]),
    (_post(_CHUNKED, b"000F\r\n" + _BODY + b"\r\n0\r\n\r\n"), [200]),
    (_post(_CHUNKED, b"f\r\n" + _BODY + b"\r\n0\r\nX: y\r\n\r\n") + _get(), [200, 200]),
    (_post(b"tRANSFER-eNCODING: CHUNKED\r\n", _ONE_CHUNK), [200]), (_post(b"Content-Length: 015\r\n", _BODY), [200]),
    # what comes in trailers is no header
    (_post(_CHUNKED, b"f\r\n" + _BODY + b"\r\n0\r\nHost: x\r\nOrigin: http://x\r\n\r\n") + _get(), [200, 200]),
    # request lines
    (b"\r\n\r\nGET\r\n\r\n", [400]), (b"GET /health\r\n\r\n", [400]),
    (b" GET /health HTTP/1.1\r\n" + _HOST + b"\r\n", [400]), (b"GET  /health HTTP/1.1\r\n" + _HOST + b"\r\n", [400]),
    (b"GET /health  HTTP/1.1\r\n" + _HOST + b"\r\n", [400]), (b"GET /health HTTP/1.1 \r\n" + _HOST + b"\r\n", [400]),
    (b"GET\t/health\tHTTP/1.1\r\n" + _HOST + b"\r\n", [400]),
    (b"G\x01T /health HTTP/1.1\r\n" + _HOST + b"\r\n", [400]),
    (b"GET /he\x00alth HTTP/1.1\r\n" + _HOST + b"\r\n", [400]),
    (b"GET /he alth HTTP/1.1\r\n" + _HOST + b"\r\n", [400]), (_get(target=b"health"), [400]),
    (_get(target=b"*"), [400]), (_get(target=b"ftp://localhost/health"), [400]), (_get(version=b"HTTP/1.2"), [505]),
    (_get(version=b"HTTP/2.0"), [505]), (_get(version=b"HTTP/0.9"), [505]), (_get(version=b"http/1.1"), [400]),
    (_get(version=b"HTTP/11"), [400]), (_get(version=b"HTTP/1.1.1"), [400]),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [505]), (b"\x16\x03\x01\x00\x05\r\n\r\n", [400]),
    (b"CONNECT localhost:80 HTTP/1.1\r\n" + _HOST + b"\r\n", [400]), (b"GET /" + b"x" * 40000, [431]),
    # headers
    (b"GET /health HTTP/1.1\r\n\r\n", [400]), (_get(_HOST), [400]), (_get(b"A b: c\r\n"), [400]),
    (_get(b"A : b\r\n"), [400]), (_get(b": b\r\n"), [400]), (_get(b"A\x01: b\r\n"), [400]),
    (_get(b"A: b\x01\r\n"), [400]), (_get(b"A: b\x00\r\n"), [400]), (_get(b"A\r\n"), [400]),
    (_get(b"A: b\r\n c\r\n"), [400]), (_get(b"A: b\r\n\tc\r\n"), [400]), (_get(b"A: b\rC: d\r\n"), [400]),
    (_get(b"A: b\nC: d\r\n"), [400]),
    (_get(b"A: " + b"x" * 40000 + b"\r\n"), [431]), (_get(b"".join(b"A%d: b\r\n" % i for i in range(120))), [431]),
    # where a body ends must be said once, and clearly
    (_post(b"Content-Length: -1\r\n", _BODY), [400]), (_post(b"Content-Length: +15\r\n", _BODY), [400]),
    (_post(b"Content-Length: 15a\r\n", _BODY), [400]), (_post(b"Content-Length: 0xf\r\n", _BODY), [400]),
    (_post(b"Content-Length: 1 5\r\n", _BODY), [400]), (_post(b"Content-Length:\r\n", _BODY), [400]),
    (_post(b"Content-Length: 15, 15\r\n", _BODY), [200]), (_post(b"Content-Length: 15, 14\r\n", _BODY), [400]),
    (_post(b"Content-Length: 1e1\r\n", _BODY), [400]),
    (_post(b"Content-Length: 99999999999999999999\r\n", _BODY), [400]),
    (_post(b"Content-Length: 999999999\r\n", b""), [413]), (_post(_SIZED + b"Content-Length: 14\r\n", _BODY), [400]),
    (_post(_SIZED + _CHUNKED, _ONE_CHUNK), [400]), (_post(_CHUNKED + _SIZED, _ONE_CHUNK), [400]),
    (_post(b"Transfer-Encoding: gzip\r\n", _BODY), [501]),
    (_post(b"Transfer-Encoding: chunked, gzip\r\n", _ONE_CHUNK), [501]),
    (_post(b"Transfer-Encoding: gzip, chunked\r\n", _ONE_CHUNK), [501]),
    (_post(_CHUNKED + _CHUNKED, _ONE_CHUNK), [400]),
    (_post(_CHUNKED, _ONE_CHUNK).replace(b"HTTP/1.1", b"HTTP/1.0"), [400]),
    (_post(b"Transfer-Encoding: xchunked\r\n", b""), [501]),
    (_post(b"Transfer-Encoding: identity\r\n", _BODY), [501]),
    (_post(b"Transfer-Encoding : chunked\r\n", _ONE_CHUNK), [400]),
    (_post(b"Transfer-Encoding:\x0bchunked\r\n", _ONE_CHUNK), [400]), (_post(_CHUNKED, b"g\r\n"), [400]),
    (_post(_CHUNKED, b"-1\r\n"), [400]), (_post(_CHUNKED, b" f\r\n" + _BODY), [400]),
    (_post(_CHUNKED, b"0xf\r\n" + _BODY + b"\r\n0\r\n\r\n"), [400]), (_post(_CHUNKED, b"\r\n\r\n"), [400]),
    (_post(_CHUNKED, b"ffffffffffffffffff\r\n"), [400]), (_post(_CHUNKED, b"fffffff\r\n"), [413]),
    (_post(_CHUNKED, b"f\r\n" + _BODY + b"0\r\n\r\n"), [400]),
    (_post(_CHUNKED, b"e\r\n" + _BODY + b"\r\n0\r\n\r\n"), [400]),
]
