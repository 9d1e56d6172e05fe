# SPDX-License-Identifier: LGPL-2.1-or-later
"""Egress by itself: what it lets through, byte for byte, and what it does not.

Usage: unshare -Urmn test-egress.py EGRESS PACK-RULES [TEST...]
"""
import base64
import os
import socket
import ssl
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from support import *

PROGRAM, PACKER = sys.argv[1:3]
A, B, PRIVATE = "9.9.9.1", "9.9.9.2", "10.1.1.1"
NAMES = [("good.example", A), ("other.example", B), ("inside.example", PRIVATE), ("meta.example", "169.254.169.254"),
         ("loop.example", "127.0.0.1"), ("mapped.example", "::ffff:127.0.0.1"), ("six.example", "fc00::1"),
         ("two.example", "2606:4700::1"), ("two.example", A), ("literal.example", A),
         ("slow.example", A), ("slow.example", B)]


def http_handler(sock, log):
    """Echoes requests; the log has what really came."""
    buffer = b""
    while True:
        head, rest = read_head(sock, buffer)
        if head is None:
            return
        lower, body = head.lower(), b""
        if b"\r\nexpect: 100-continue" in lower:
            sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if b"transfer-encoding: chunked" in lower:
            raw = bytearray(rest)    # of bytes each piece would copy all that came before
            while not raw.endswith(b"\r\n\r\n") or b"0\r\n" not in raw:
                piece = sock.recv(65536)
                if not piece:
                    return
                raw += piece
            body, buffer = bytes(raw), b""
        else:
            length = 0
            for line in lower.split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            whole = bytearray(rest)
            while len(whole) < length:
                piece = sock.recv(1 << 20)
                if not piece:
                    return
                whole += piece
            body, buffer = bytes(whole[:length]), bytes(whole[length:])
        log.append((head, body))
        target = head.split(b" ")[1]
        if target.startswith(b"/close"):
            sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 7728)
            return
        if target.startswith(b"/chunked"):
            sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
            for piece in (b"one ", b"two ", b"three"):
                sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
                time.sleep(0.05)
            sock.sendall(b"0\r\nX-Sum: 7\r\n\r\n")
        elif target.startswith(b"/hints"):
            sock.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        elif target.startswith(b"/big"):
            n = int(target.split(b"=")[1])
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % n)
            block = bytes(range(256)) * 256
            while n > 0:
                sock.sendall(block[:min(n, len(block))])
                n -= len(block)
        elif target.startswith(b"/smuggled"):
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc")
        elif target.startswith(b"/unasked"):
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nunasked")
        elif target.startswith(b"/folded"):
            sock.sendall(b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nab")
        elif target.startswith(b"/part"):
            sock.sendall(b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/9\r\nContent-Length: 2\r\n\r\nab")
        elif target.startswith(b"/gzip"):
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab")
        elif target.startswith(b"/socket"):
            sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            while data := sock.recv(65536):
                sock.sendall(data)
            return
        elif head.startswith(b"HEAD"):
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")
        else:
            answer = head + b"\n\n" + body
            sock.sendall(b"HTTP/1.1 200 OK\r\nAlt-Svc: h3=\":443\"\r\nX-Echo: " + (head.split(b"\r\n")[1]) +
                         b"\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)


class World:
    def __init__(self):
        self.host = Host(NAMES)
        self.log = []
        certificate = self.host.authority.leaf("servers", [n for n, _ in NAMES] + [A])
        wrong = self.host.authority.leaf("wrong", ["someone.example"])
        handler = lambda sock: http_handler(sock, self.log)
        self.https = Server("0.0.0.0", 443, handler, server_context(*certificate))
        self.http = Server("0.0.0.0", 80, handler)
        self.odd = Server("0.0.0.0", 8081, handler)
        self.slow_context = server_context(*certificate)
        self.slow = Server("0.0.0.0", 8444, self.slowly)
        self.wrong = Server("0.0.0.0", 8443, handler, server_context(*wrong))
        self.banner = Server("0.0.0.0", 2222, lambda s: (s.sendall(b"SSH-2.0-test\r\n"), s.sendall(s.recv(100).upper())))
        self.echo = Server("0.0.0.0", 7000, self.echo_all)
        self.box = self.egress = None

    def slowly(self, sock):
        time.sleep(0.8)    # longer than another address is waited for
        http_handler(self.slow_context.wrap_socket(sock, server_side=True), self.log)

    @staticmethod
    def echo_all(sock):
        while data := sock.recv(1 << 18):
            sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    def start(self, network, **more):
        self.stop()
        self.log.clear()
        ports = more.pop("ports", (80, 443, 2222, 7000, 8443))
        credentials = more.pop("credentials", None)
        spec = {"version": 1, "network": network}
        if credentials:
            spec["credentials"] = credentials
        self.box = Box()
        self.egress = Egress(PROGRAM, PACKER, self.box, spec, more.pop("trusted", self.host.authority.pem), ports=ports,
                             **more)
        return self.box, self.egress

    def stop(self):
        egress, box = self.egress, self.box
        self.egress = self.box = None
        if egress:
            egress.close()
        if box:
            box.close()


def tls_to(box, egress, name, port=443, pem=None, sni=None, alpn=None):
    sock = box.open(name, port)
    return client_context(pem or egress.ca, alpn).wrap_socket(sock, server_hostname=sni or name)


def get(sock, path="/", host="good.example", more=b"", method="GET"):
    sock.sendall(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n".encode() + more + b"\r\n")
    return read_answer(sock, method)


def refused(action):
    try:
        action()
    except (ConnectionResetError, BrokenPipeError, ssl.SSLError, EOFError, ConnectionRefusedError):
        return True
    return False


def cut(connect, data):
    """The connection is reset, before or after something was said."""
    try:
        with connect() as sock:
            sock.sendall(data)
            return sock.recv(10) == b""
    except (ConnectionResetError, BrokenPipeError):
        return True


ALLOW = {"mode": "allow", "allow": [{"host": "good.example"}]}
PORTS = [80, 443, 2222, 7000, 8443]
INSPECT = {"mode": "allow", "allow": [{"host": "good.example", "paths": ["/**"]}, {"host": "other.example", "methods": ["GET"]}]}


@test
def passes_tls_untouched(world):
    box, egress = world.start(ALLOW)
    with tls_to(box, egress, "good.example", pem=world.host.authority.pem) as sock:
        status, head, body = get(sock)
        assert status == 200 and b"GET / HTTP/1.1" in body
    assert egress.wait_event("net.allow", host="good.example")["rule"] == "/network/allow/0"
    assert egress.wait_event("net.allow", host="good.example")["address"] == A
    closed = egress.wait_event("net.close", host="good.example")
    assert closed["sent"] > 0 and closed["received"] > 0
    assert egress.names == ["good.example"]


@test
def plain_http_is_judged_by_host(world):
    box, egress = world.start(ALLOW)
    with box.open("good.example", 80) as sock:
        assert get(sock)[0] == 200
        assert get(sock, "/again")[0] == 200
        status, head, body = get(sock, host="other.example")
        assert status == 403 and b"host of the request" in body, body
    assert len(world.log) == 2


@test
def denied_hosts_are_told_the_rule(world):
    box, egress = world.start(ALLOW)
    with box.open("evil.example", 80) as sock:
        status, head, body = get(sock, host="evil.example")
        assert status == 403 and b"Forbidden by agentbox policy: host not in allow list" in head, head
        assert b'"rule":"/network/allow"' in body and b"Abox-Denied: /network/allow" in head
    with tls_to(box, egress, "evil.example") as sock:
        status, head, body = get(sock, host="evil.example")
        assert status == 403 and b"host not in allow list" in body
    with box.open("evil.example", 7000) as sock:
        sock.sendall(b"\0\1\2")
        assert refused(lambda: sock.recv(10) or (_ for _ in ()).throw(EOFError()))
    egress.wait_event("net.deny", host="evil.example", rule="/network/allow")


@test
def nxdomain_says_nothing(world):
    box, egress = world.start(dict(ALLOW, denied="nxdomain"))
    assert box.resolve("evil.example") is None
    assert box.resolve("good.example") and box.resolve("good.example", tcp=True) == box.resolve("good.example")
    assert box.resolve("good.example", kind=28)


@test
def names_must_agree(world):
    """T12-1, T12-2: the name in the hello, that of the address, and that of the request."""
    box, egress = world.start(dict(ALLOW, allow=[{"host": "good.example"}, {"host": "other.example"}]))
    before = world.https.accepted
    assert refused(lambda: tls_to(box, egress, "good.example", pem=world.host.authority.pem, sni="other.example"))
    egress.wait_event("net.deny", reason="the name in the TLS hello is not that of the address")
    assert world.https.accepted == before
    with tls_to(box, egress, "good.example", pem=world.host.authority.pem) as sock:
        assert get(sock)[0] == 200
    box, egress = world.start(INSPECT)
    with tls_to(box, egress, "good.example") as sock:
        status, _, body = get(sock, host="other.example")
        assert status == 403
    assert not world.log


@test
def hello_in_pieces(world):
    """T12-1: the same hello in one-byte segments, and spread over records."""
    box, egress = world.start(ALLOW)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context(world.host.authority.pem).wrap_bio(incoming, outgoing, server_hostname="good.example")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        pass
    hello = outgoing.read()
    message = hello[5:]
    cut = b"".join(b"\x16\x03\x01" + len(message[i:i + 64]).to_bytes(2, "big") + message[i:i + 64] for i in range(0, len(message), 64))
    for data, step in ((hello, 1), (cut, 1400), (cut, 7)):
        with box.open("good.example", 443) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for i in range(0, len(data), step):
                sock.sendall(data[i:i + step])
            assert sock.recv(5)[:1] == b"\x16"
    evil = hello.replace(b"good.example", b"evil.example")
    with box.open("good.example", 443) as sock:
        sock.sendall(evil)
        assert refused(lambda: sock.recv(10) or (_ for _ in ()).throw(EOFError()))


@test
def addresses_are_looked_at(world):
    """T11-3: an allowed name that leads to an address which is nobody's business."""
    names = ["inside.example", "meta.example", "loop.example", "mapped.example", "six.example"]
    box, egress = world.start({"mode": "allow", "allow": [{"host": n} for n in names] + [{"host": "good.example"}]})
    before = world.http.accepted
    for name in names:
        with box.open(name, 80) as sock:
            status, _, body = get(sock, host=name)
            assert status == 403 and b"non-public address" in body, (name, body)
        egress.wait_event("net.deny", host=name, reason="resolved to non-public address")
    assert world.http.accepted == before
    with box.open("good.example", 80) as sock:
        assert get(sock)[0] == 200
    box, egress = world.start({"mode": "allow", "allow": [{"host": "inside.example", "cidr": "10.0.0.0/8"}]})
    with box.open("inside.example", 80) as sock:
        assert get(sock, host="inside.example")[0] == 200


@test
def literals(world):
    """T11-5: literal addresses, own loopback, and addresses that were never given to a name."""
    box, egress = world.start({"mode": "allow", "allow": [{"host": "good.example"}, {"cidr": "9.9.9.1/32"}]})
    with box.connect(A, 80) as sock:
        assert get(sock, host=A)[0] == 200
    with box.connect(A, 80) as sock:
        assert get(sock, host="good.example")[0] == 403
    with box.connect(B, 80) as sock:
        assert get(sock, host=B)[0] == 403
    for address in ("127.0.0.1", "198.19.7.7"):
        assert cut(lambda: box.connect(address, 80), b"GET / HTTP/1.1\r\n\r\n"), address
    for odd in ("2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[::ffff:7f00:1]", "localhost"):
        with box.open("good.example", 80) as sock:
            assert get(sock, host=odd)[0] == 403, odd
    for name in ("2130706433", "0x7f.1", "127.1", "localhost", "evil.localhost", "single"):
        assert box.resolve(name) is None, name


@test
def other_protocols(world):
    """A server that speaks first, bytes that are neither TLS nor HTTP, half-closed connections."""
    box, egress = world.start({"mode": "allow", "allow": [{"host": "good.example", "ports": PORTS}]})
    with box.open("good.example", 2222) as sock:
        assert sock.recv(100) == b"SSH-2.0-test\r\n"
        sock.sendall(b"hello")
        assert sock.recv(100) == b"HELLO"
    with box.open("good.example", 7000) as sock:
        sock.sendall(b"\0\1\2binary")
        sock.shutdown(socket.SHUT_WR)
        data = b""
        while piece := sock.recv(100):
            data += piece
        assert data == b"\0\1\2binary"
    with box.open("good.example", 443) as sock:
        sock.sendall(b"\0\1\2binary")
        assert refused(lambda: sock.recv(10) or (_ for _ in ()).throw(EOFError()))
    # the server is connected before the client speaks; a hello for somebody else is refused all the same
    with box.open("good.example", 7000) as sock:
        time.sleep(0.6)
        assert refused(lambda: client_context(egress.ca).wrap_socket(sock, server_hostname="other.example"))


@test
def inspects(world):
    box, egress = world.start(INSPECT)
    with tls_to(box, egress, "good.example") as sock:
        status, head, body = get(sock, "/x?y=1", more=b"X-Mine: 1\r\nConnection: X-Hop\r\nX-Hop: gone\r\nTE: trailers\r\n")
        assert status == 200 and b"GET /x?y=1 HTTP/1.1\r\nHost: good.example\r\n" in body
        assert b"X-Mine: 1" in body and b"X-Hop" not in body and b"TE:" not in body and b"alt-svc" not in head.lower()
        assert get(sock, "/again")[0] == 200
        assert get(sock, method="HEAD")[0] == 200
        status, head, rest = get(sock, "/hints")
        assert status == 103
        assert read_answer(sock, buffer=rest)[0] == 200
        status, head, body = get(sock, "/chunked")
        assert body == b"one two three", body
        sock.sendall(b"POST /p HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX-T: 1\r\n\r\n")
        status, head, body = read_answer(sock)
        assert status == 200 and b"3\r\nabc\r\n2\r\nde\r\n0\r\nX-T: 1\r\n\r\n" in body, body
        sock.sendall(b"PUT /p HTTP/1.1\r\nHost: good.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert read_answer(sock)[0] == 100
        sock.sendall(b"hello")
        assert read_answer(sock)[2].endswith(b"hello")
        status, head, body = get(sock, "/close")
        assert body == b"x" * 7728
    with tls_to(box, egress, "other.example") as sock:
        assert get(sock, host="other.example")[0] == 200
        status, head, body = get(sock, host="other.example", method="DELETE")
        assert status == 403 and b"request matches no rule of this host" in body
    event = egress.wait_event("net.allow", host="good.example", path="/x")
    assert event["method"] == "GET" and event["status"] == 200


@test
def conditions_hold_for_what_is_sent(world):
    """T12-5: a field that `Connection` takes out of the request fulfils no condition of a rule."""
    box, egress = world.start({"mode": "allow", "allow": [{"host": "good.example", "headers": {"X-Mode": "dry"}},
                                                          {"host": "good.example", "paths": ["/s"], "headers": {"Upgrade": "websocket"}}]})
    with tls_to(box, egress, "good.example") as sock:
        assert get(sock, more=b"X-Mode: dry\r\n")[0] == 200
        assert get(sock, more=b"X-Mode: dry\r\nConnection: x-mode\r\n")[0] == 403
        assert get(sock, "/s", more=b"Upgrade: websocket\r\n")[0] == 403
        assert get(sock, "/s", method="PUT", more=b"Upgrade: websocket\r\nConnection: upgrade\r\n")[0] == 403
    assert len(world.log) == 1


@test
def events_can_be_read(world):
    """T14: bytes that are no text do not hide a request from who reads the log."""
    box, egress = world.start(INSPECT)
    with tls_to(box, egress, "good.example") as sock:
        sock.sendall(b"GET /hidden\xff/\xe2\x80\xae HTTP/1.1\r\nHost: good.example\r\n\r\n")
        assert read_answer(sock)[0] == 200
    egress.wait_event("net.allow", path="/hidden%FF/%E2%80%AE")


@test
def what_is_let_through_is_counted_after_the_first(world):
    """A program that asks on and on does not fill a journal; the sums stay right."""
    box, egress = world.start(INSPECT)
    n, piece = 2600, 100
    with box.open("good.example", 80) as sock:
        for _ in range(n // piece):
            sock.sendall(b"GET /n HTTP/1.1\r\nHost: good.example\r\n\r\n" * piece)
            got = b""
            while got.count(b"HTTP/1.1 200") < piece or not got.endswith(b"\n\n"):
                data = sock.recv(1 << 16)
                assert data
                got += data
    while egress.stats()["open"] > 0:
        time.sleep(0.02)
    def counted():
        return [body for kind, body in egress.events if kind == "net.allow" and "path" not in body]
    told = [body for kind, body in egress.events if kind == "net.allow"]
    assert 2000 < len(told) < 2010 and len(counted()) > 0, len(told)
    if os.environ.get("ABOX_TEST_LONG"):    # a window is ten seconds
        while sum(body.get("count", 1) for kind, body in egress.events if kind == "net.allow") < n:
            time.sleep(0.1)
        told = [body for kind, body in egress.events if kind == "net.allow"]
        assert len(told) < 2010 and sum(body.get("count", 1) for body in told) == n, len(told)
    assert all(body["host"] == "good.example" and body["rule"] == "/network/allow/0" for body in counted())


@test
def absolute_form_and_pipelining(world):
    """T12-4, T12-10: targets with a host in them; two requests in one segment, the body of one like a request."""
    box, egress = world.start(INSPECT)
    with tls_to(box, egress, "good.example") as sock:
        status, _, body = get(sock, "https://good.example/abs?q")
        assert status == 200 and b"GET /abs?q HTTP/1.1" in body
        assert get(sock, "https://good.example/abs", host="evil.example")[0] == 400
    inner = b"GET /inner HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    with tls_to(box, egress, "good.example") as sock:
        sock.sendall(b"POST /outer HTTP/1.1\r\nHost: good.example\r\nContent-Length: %d\r\n\r\n" % len(inner) + inner +
                     b"GET /second HTTP/1.1\r\nHost: other.example\r\n\r\n")
        status, _, body = read_answer(sock)
        assert status == 200 and body.endswith(inner)
        assert read_answer(sock)[0] == 403
    targets = [h.split(b" ")[1] for h, _ in world.log]
    assert targets == [b"/abs?q", b"/outer"], targets


SMUGGLING = [
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"Content-Length: 5\r\nContent-Length: 5\r\n",
    b"Content-Length: 5\r\nContent-Length: 6\r\n", b"Transfer-Encoding : chunked\r\n", b"Transfer-Encoding: chunked, identity\r\n",
    b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding: xchunked\r\n", b"Transfer-Encoding:\r\n chunked\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"Transfer_Encoding: chunked\r\n", b"Content_Length: 5\r\n",
    b"Content-Length: +5\r\n", b"Content-Length: -5\r\n", b"Content-Length: 0x5\r\n", b"Content-Length: 5,5\r\n", b"Content-Length: \r\n",
    b"Content-Length: 99999999999999999999\r\n", b"X: a\nY: b\r\n", b"X: a\rb\r\n", b"X: a\0b\r\n", b" folded: x\r\n", b": x\r\n", b"X Y: x\r\n",
    b"Host: good.example\r\n", b"Connection: Content-Length\r\nContent-Length: 5\r\n", b"Connection: Authorization\r\nAuthorization: x\r\n",
    b"NoColon\r\n", b"X\x7f: a\r\n",
]
CHUNKS = [b"0x5\r\nhello\r\n0\r\n\r\n", b"5;ext=1\r\nhello\r\n0\r\n\r\n", b"-5\r\nhello\r\n0\r\n\r\n", b"10000000000000001\r\nhello\r\n0\r\n\r\n",
          b"5\nhello\n0\n\n", b"5\r\nhello\n0\r\n\r\n", b"5\r\nhelloX\r\n0\r\n\r\n", b"\r\n5\r\nhello\r\n0\r\n\r\n", b"5 \r\nhello\r\n0\r\n\r\n",
          b"5\r\nhello\r\n0\r\nAuthorization: x\r\n\r\n", b"5\r\nhello\r\n0\r\nContent-Length: 4\r\n\r\n", b"5\r\nhello\r\n0\r\n folded\r\n\r\n"]


@test
def smuggling(world):
    """T12-3: what two readers could take differently is refused, and the server sees at most one request."""
    box, egress = world.start(INSPECT)
    tail = b"hello" + b"GET /smuggled-in HTTP/1.1\r\nHost: good.example\r\n\r\n"
    for fields in SMUGGLING:
        with tls_to(box, egress, "good.example") as sock:
            sock.sendall(b"POST /s HTTP/1.1\r\nHost: good.example\r\n" + fields + b"\r\n" + tail)
            status, _, _ = read_answer(sock)
            assert status == 400, (fields, status)
    assert not world.log, world.log
    for chunks in CHUNKS:
        world.log.clear()
        with tls_to(box, egress, "good.example") as sock:
            sock.sendall(b"POST /s HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + tail)
            status, _, _ = read_answer(sock)
            assert status == 400, (chunks, status)
        assert not world.log, (chunks, world.log)
    for line in (b"GET  / HTTP/1.1", b"GET / HTTP/1.1 ", b"GET / HTTP/1.2", b"GET / http/1.1", b"GET /", b"G\0T / HTTP/1.1", b"GET /\x7f HTTP/1.1",
                 b"GET /a#b HTTP/1.1", b"GET http:///x HTTP/1.1", b"GET ftp://good.example/ HTTP/1.1", b"GET http://u@good.example/ HTTP/1.1", b"\r\nGET / HTTP/1.1"):
        with tls_to(box, egress, "good.example") as sock:
            sock.sendall(line + b"\r\nHost: good.example\r\n\r\n")
            assert read_answer(sock)[0] == 400, line
    with tls_to(box, egress, "good.example") as sock:
        assert get(sock, "/fine")[0] == 200
    with tls_to(box, egress, "good.example") as sock:
        assert get(sock, "/unasked")[2] == b"ok"
        assert b"GET /next" in get(sock, "/next")[2]
    for path in ("/smuggled", "/folded"):
        with tls_to(box, egress, "good.example") as sock:
            status, _, body = get(sock, path)
            assert status == 403 and b"answer is refused" in body, (path, status)


@test
def http2_is_refused(world):
    """T11-14: where requests are judged, HTTP/2 has no way in; where not, it passes."""
    box, egress = world.start(INSPECT)
    assert refused(lambda: tls_to(box, egress, "good.example", alpn=["h2"]))
    egress.wait_event("net.deny", reason="the client offers no HTTP/1.1, and this host is looked into")
    with tls_to(box, egress, "good.example", alpn=["h2", "http/1.1"]) as sock:
        assert sock.selected_alpn_protocol() == "http/1.1"
        sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert read_answer(sock)[0] == 400
    egress.wait_event("net.deny", rule="http")
    assert not world.log


@test
def websocket_by_rule(world):
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n"
    box, egress = world.start({"mode": "allow", "allow": [{"host": "good.example", "paths": ["/socket"], "headers": {"Upgrade": "websocket"}},
                                                          {"host": "good.example", "methods": ["GET"]}]})
    with tls_to(box, egress, "good.example") as sock:
        sock.sendall(b"GET /socket HTTP/1.1\r\nHost: good.example\r\n" + upgrade + b"\r\n")
        assert read_answer(sock)[0] == 101
        sock.sendall(b"raw \0 bytes")
        assert sock.recv(100) == b"raw \0 bytes"
    with tls_to(box, egress, "good.example") as sock:
        status, _, body = get(sock, "/other", more=upgrade)
        assert status == 403 and b"no WebSocket" in body


@test
def bounds(world):
    """T12-11: heads without end, slow heads, many fields."""
    box, egress = world.start(INSPECT)
    with tls_to(box, egress, "good.example") as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: good.example\r\n" + b"X: y\r\n" * 300 + b"\r\n")
        assert read_answer(sock)[0] == 431
    with tls_to(box, egress, "good.example") as sock:
        try:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: good.example\r\nX: " + b"y" * 70000)
        except OSError:
            pass
        assert read_answer(sock)[0] == 431
    box, egress = world.start(INSPECT, caps=(0, 8, 0))
    waiting = [box.open("good.example", 443) for _ in range(8)]
    while egress.stats()["open"] < 8:
        time.sleep(0.02)
    assert cut(lambda: box.connect(box.resolve("good.example"), 443), b"")
    egress.wait_event("net.deny", rule="limits")
    for sock in waiting:
        sock.close()
    while egress.stats()["open"] > 0:
        time.sleep(0.02)
    with tls_to(box, egress, "good.example") as sock:
        assert get(sock)[0] == 200


@test
def large_and_abrupt(world):
    """T12-13, B61: nothing is lost at the end, from either side; connections do not leak."""
    n = 32 << 20
    for network in (ALLOW, INSPECT):
        box, egress = world.start(network)
        pem = egress.ca if network is INSPECT else world.host.authority.pem
        with tls_to(box, egress, "good.example", pem=pem) as sock:
            sock.sendall(b"GET /big=%d HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n" % n)
            status, head, body = read_answer(sock)
            block = bytes(range(256))
            assert len(body) == n and body == block * (n // 256)
        with tls_to(box, egress, "good.example", pem=pem) as sock:
            data = os.urandom(8 << 20)
            sock.sendall(b"POST /up HTTP/1.1\r\nHost: good.example\r\nContent-Length: %d\r\n\r\n" % len(data))
            sock.sendall(data)    # not beside the reading: one TLS session is not for two threads
            status, head, body = read_answer(sock)
            assert body.endswith(data)
        rounds = 200 if os.environ.get("ABOX_TEST_LONG") else 60
        for i in range(rounds):
            with box.open("good.example", 80) as sock:
                sock.sendall(b"GET /close HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n")
                if i % 2:
                    sock.shutdown(socket.SHUT_WR)
                assert read_answer(sock)[2] == b"x" * 7728
        while egress.stats()["open"] > 0:    # the test's own time is the bound
            time.sleep(0.05)


@test
def rules_change(world):
    """B81: narrower rules hold at once, a bad set leaves the old one in force."""
    box, egress = world.start({"mode": "allow", "allow": [{"host": "good.example"}, {"host": "other.example"}]})
    good = tls_to(box, egress, "good.example", pem=world.host.authority.pem)
    other = tls_to(box, egress, "other.example", pem=world.host.authority.pem)
    assert get(good)[0] == 200 and get(other, host="other.example")[0] == 200
    fd = sealed(b"nonsense")
    kind, _ = egress.ask(RULES, b"\0", [fd])
    os.close(fd)
    assert kind == FAULT and egress.stats()["generation"] == 1
    assert get(tls_to(box, egress, "other.example", pem=world.host.authority.pem), host="other.example")[0] == 200
    kind, reader = egress.rules({"version": 1, "network": ALLOW}, cut=True)
    assert kind == OK and reader.u32() == 2
    assert get(good)[0] == 200
    assert refused(lambda: get(other, host="other.example")[0] or (_ for _ in ()).throw(EOFError()))
    with tls_to(box, egress, "other.example") as sock:
        assert get(sock, host="other.example")[0] == 403
    egress.rules({"version": 1, "network": {"mode": "allow", "allow": [{"host": "good.example"}, {"host": "other.example"}]}})
    early = box.open("other.example", 443)    # has said nothing so far
    while egress.stats()["open"] < 2:
        time.sleep(0.02)
    egress.rules({"version": 1, "network": ALLOW}, cut=True)
    with client_context(egress.ca).wrap_socket(early, server_hostname="other.example") as sock:
        assert get(sock, host="other.example")[0] == 403


@test
def a_change_stops_what_waits_for_a_credential(world):
    asked, go = threading.Event(), threading.Event()
    def answer(name):
        asked.set()
        go.wait(20)
        return SECRET
    minter = Minter(answer)
    box, egress = world.start(guarded(), credentials=credential(), minter=minter.fd())
    with tls_to(box, egress, "good.example") as sock:
        sock.sendall(b"GET /api/x HTTP/1.1\r\nHost: good.example\r\n\r\n")
        assert asked.wait(10)
        egress.rules({"version": 1, "network": {"mode": "allow", "allow": [{"host": "good.example", "methods": ["PUT"]}]}}, cut=True)
        go.set()
        assert refused(lambda: read_answer(sock)[0] or (_ for _ in ()).throw(EOFError()))
    assert not world.log, world.log


@test
def a_change_stops_a_body_that_is_held(world):
    """Nothing of it has left: what the old rules allowed is not sent after them."""
    minter = Minter(lambda name: SECRET)
    box, egress = world.start(BODIES, credentials=credential(placeholder="FORGE_TOKEN"), minter=minter.fd())
    narrow = {"mode": "allow", "allow": [{"host": "good.example", "methods": ["GET"]}]}
    head = b"POST /api/x HTTP/1.1\r\nHost: good.example\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
    with tls_to(box, egress, "good.example") as sock:
        assert post(sock, "/api/x", b"body")[0] == 200
        sock.sendall(head)
        assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"bo")
        n = len(world.log)
        assert egress.rules({"version": 1, "network": narrow}, cut=True)[0] == OK
        def rest():
            sock.sendall(b"dy")
            if not sock.recv(1000):
                raise EOFError
        assert refused(rest) and len(world.log) == n and len(minter.asked) == 1


@test
def certificates_are_verified(world):
    box, egress = world.start({"mode": "allow", "allow": [{"host": "good.example", "ports": PORTS, "paths": ["/**"]}]})
    with tls_to(box, egress, "good.example", 8443) as sock:
        status, _, body = get(sock, host="good.example:8443")
        assert status == 403 and b"hostname mismatch" in body.lower(), body
    egress.wait_event("net.deny", rule="certificate")


@test
def roots_are_found_by_name(world):
    """Of several with the same name the right one is found; what cannot be read between them does no harm, and
    nothing is trusted that is not there."""
    folder = world.host.folder
    def other(name):
        os.makedirs(f"{folder}/other", exist_ok=True)
        return Authority(f"{folder}/other", name).pem
    mine = world.host.authority
    junk = "-----BEGIN CERTIFICATE-----\n" + base64.b64encode(b"\x30\x03\x02\x01\x05").decode() + "\n-----END CERTIFICATE-----\n"
    key = open(f"{folder}/{mine.name}.key").read()
    twin, stranger = other(mine.name), other("stranger")
    for trusted, good in ((junk + twin + key + stranger + mine.pem + twin, True), (mine.pem + twin, True),
                          (twin + stranger, False), (junk, False), ("", False)):
        box, egress = world.start(INSPECT, trusted=trusted)
        for _ in range(3):
            with tls_to(box, egress, "good.example") as sock:
                status, _, body = get(sock)
                assert status == (200 if good else 403), (good, status, body)


@test
def happy_eyeballs(world):
    """A name with a dead IPv6 address and a live IPv4 one."""
    box, egress = world.start({"mode": "allow", "allow": [{"host": "two.example"}]})
    with box.open("two.example", 80) as sock:
        assert get(sock, host="two.example")[0] == 200


@test
def one_connection_to_a_slow_server(world):
    """An address that has answered is the one; the next is not tried in the middle of its handshake."""
    box, egress = world.start({"mode": "allow", "allow": [{"host": "slow.example", "ports": [8444], "paths": ["/**"]}]}, ports=(8444,))
    before = world.slow.accepted
    with tls_to(box, egress, "slow.example", port=8444) as sock:
        status, _, body = get(sock, host="slow.example:8444")
        assert status == 200, body
    assert world.slow.accepted == before + 1


@test
def host_proxy(world):
    """The host's own proxy: CONNECT, the credential stays here, addresses are marked as not looked at, NO_PROXY."""
    seen = []

    def proxy(sock):
        head, rest = read_head(sock)
        seen.append(head)
        host = head.split(b" ")[1].rsplit(b":", 1)
        if host[0] == b"two.example":
            sock.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            return
        far = socket.create_connection((A, int(host[1])))
        sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        def pump(a, b):
            try:
                while data := a.recv(65536):
                    b.sendall(data)
                b.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        threading.Thread(target=pump, args=(far, sock), daemon=True).start()
        pump(sock, far)

    server = Server("127.0.0.1", 3128, proxy)
    box, egress = world.start({"mode": "allow", "allow": [{"host": n} for n in ("good.example", "far.example", "inside.example", "two.example", "other.example")]},
                              proxy="http://user:pa%73s@127.0.0.1:3128", no_proxy="localhost,.other.example")
    with tls_to(box, egress, "good.example", pem=world.host.authority.pem) as sock:
        assert get(sock)[0] == 200
    assert egress.wait_event("net.allow", host="good.example")["address"] == "unchecked (proxy)"
    assert b"CONNECT good.example:443 HTTP/1.1" in seen[0] and b"Proxy-Authorization: Basic dXNlcjpwYXNz" in seen[0]
    with box.open("far.example", 80) as sock:    # a name that only the proxy knows
        assert get(sock, host="far.example")[0] == 200
    with box.open("inside.example", 80) as sock:
        assert get(sock, host="inside.example")[0] == 403
    with box.open("two.example", 80) as sock:
        status, _, body = get(sock, host="two.example")
        assert status == 502 and b"upstream proxy refused" in body
    n = len(seen)
    with box.open("other.example", 80) as sock:
        assert get(sock, host="other.example")[0] == 200
    assert len(seen) == n


@test
def proxy_listener(world):
    """T11-5, T11-9: programs that insist on a proxy; authorities in odd spellings."""
    box, egress = world.start(dict(ALLOW), proxy_port=3128)
    def connect(target):
        sock = box.connect("127.0.0.1", 3128)
        sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        return sock
    with connect("good.example:443") as sock:
        assert read_answer(sock, "HEAD")[0] == 200
        with client_context(world.host.authority.pem).wrap_socket(sock, server_hostname="good.example") as tls:
            assert get(tls)[0] == 200
    with connect("good.example:443") as sock:    # plain HTTP, and another name, in the tunnel
        assert read_answer(sock, "HEAD")[0] == 200
        assert refused(lambda: client_context(egress.ca).wrap_socket(sock, server_hostname="other.example"))
    for target in ("other.example:443", "good.example:22"):
        with connect(target) as sock:
            assert read_answer(sock)[0] == 403, target
    for target in ("2130706433:443", "0x7f.1:443", "0177.0.0.1:443", "127.1:443", "[::ffff:7f00:1]:443", "[::]:443", "localhost.:443",
                   "LOCALHOST:443", "evil.localhost:443", "good.example:0", "good.example:65536", "good.example", "good.example:443:80", "good.example:"):
        with connect(target) as sock:
            assert refused(lambda: (_ for _ in ()).throw(EOFError()) if read_answer(sock)[0] in (None, 403) else None), target
    with box.connect("127.0.0.1", 3128) as sock:
        sock.sendall(b"GET http://good.example/p HTTP/1.1\r\nHost: good.example\r\n\r\n")
        status, head, body = read_answer(sock)
        assert status == 200 and b"GET /p HTTP/1.1" in body and b"connection: close" in head.lower()


SECRET = "S3CRET/0123456789abcdef+0123456789ab"


def credential(name="forge", **inject):
    return [{"name": name, "provider": {"kind": "env", "variable": "X"}, **({"inject": inject} if inject else {})}]


def guarded(credential="forge", **more):
    return {"mode": "allow", "allow": [{"host": "good.example", "methods": ["GET"], "paths": ["/api/**"], "credential": credential, **more},
                                       {"host": "good.example"}, {"host": "other.example", "paths": ["/**"]}]}


@test
def credentials_are_added(world):
    """T12-5, T12-7, T13-1: added once, by rule, never elsewhere; and it does not come back."""
    minter = Minter(lambda name: SECRET)
    box, egress = world.start(guarded(), credentials=credential(), minter=minter.fd())
    with tls_to(box, egress, "good.example") as sock:
        status, head, body = get(sock, "/api/x", more=b"authorization: mine\r\nAUTHORIZATION: again\r\nX-Api-Key: k\r\nAccept-Encoding: gzip\r\n")
        assert status == 200
        came = world.log[-1][0]
        assert came.lower().count(b"authorization:") == 1 and f"Authorization: Bearer {SECRET}".encode() in came, came
        assert b"X-Api-Key: k" in came and b"Accept-Encoding: identity" in came and b"gzip" not in came
        assert SECRET.encode() not in head + body and b"Bearer " + b"*" * len(SECRET) in body, body
        for path in ("/other", "/api/../other", "/api%2fx"):
            get(sock, path)
            assert SECRET.encode() not in world.log[-1][0], path
        get(sock, "/api/x", method="HEAD")
        assert SECRET.encode() not in world.log[-1][0]
        n = len(world.log)
        assert get(sock, "/gzip")[0] == 200
    with tls_to(box, egress, "good.example") as sock:
        assert get(sock, "/api/x", more=b"Connection: Authorization\r\nAuthorization: y\r\n")[0] == 400
    with tls_to(box, egress, "other.example") as sock:
        get(sock, "/api/x", host="other.example")
        assert SECRET.encode() not in world.log[-1][0]
    assert egress.wait_event("credential.use", credential="forge")["host"] == "good.example"
    assert SECRET not in repr(egress.events) and set(minter.asked) == {"forge"}


@test
def credentials_in_every_form(world):
    import base64
    basic = base64.b64encode(f"bot:{SECRET}".encode())
    for inject, check in (({"header": "X-Api-Key", "scheme": "raw"}, f"X-Api-Key: {SECRET}\r\n".encode()),
                          ({"scheme": "basic", "user": "bot"}, b"Authorization: Basic " + basic),
                          ({"query": "key"}, b"GET /api/x?a=1&key=S3CRET%2F0123456789abcdef%2B0123456789ab HTTP/1.1")):
        minter = Minter(lambda name: SECRET)
        box, egress = world.start(guarded(), credentials=credential(**inject), minter=minter.fd())
        with tls_to(box, egress, "good.example") as sock:
            status, head, body = get(sock, "/api/x?a=1&key=own&k%65y=own", more=b"X_Api_Key: own\r\n")
            came = world.log[-1][0] + b"\r\n"
            assert check in came, (inject, came)
            if "query" not in inject:
                assert b"key=own" in came
            if "header" in inject:
                assert b"X_Api_Key" not in came
            assert SECRET.encode() not in body and basic not in body and b"S3CRET%2F" not in body, body


@test
def placeholders(world):
    """T13-5: swapped in fields of requests that the rule is about; worthless anywhere else."""
    import base64
    import hashlib
    value = "agentbox_" + hashlib.sha256(b"forge").hexdigest()[:32]
    minter = Minter(lambda name: SECRET)
    box, egress = world.start(guarded(), credentials=credential(placeholder="FORGE_TOKEN"), minter=minter.fd())
    with tls_to(box, egress, "good.example") as sock:
        status, _, body = get(sock, f"/api/{value}", more=f"X-Token: a {value} b\r\n".encode())
        came = world.log[-1][0]
        assert f"X-Token: a {SECRET} b".encode() in came and f"/api/{value} ".encode() in came
        assert SECRET.encode() not in body
        basic = base64.b64encode(f"git:{value}".encode()).decode()
        body = get(sock, "/api/x", more=f"Authorization: Basic {basic}\r\n".encode())[2]
        swapped = base64.b64encode(f"git:{SECRET}".encode())
        assert swapped in world.log[-1][0] and swapped not in body and b"Basic " + b"*" * len(swapped) in body, body
        get(sock, "/other", more=f"X-Token: {value}\r\n".encode())
        assert value.encode() in world.log[-1][0] and SECRET.encode() not in world.log[-1][0]
    with tls_to(box, egress, "other.example") as sock:
        get(sock, "/api/x", host="other.example", more=f"X-Token: {value}\r\n".encode())
        assert SECRET.encode() not in world.log[-1][0]


@test
def credentials_fail_closed(world):
    """T12-6, T13-3: bad values, no answer, nobody to ask; a request that brings its own where ours is required."""
    def answer(name):
        return answers.pop(0)()
    def refuse():
        raise ValueError("its program failed")
    minter = Minter(answer)
    box, egress = world.start(guarded(require=True), credentials=credential(), minter=minter.fd())
    answers = [lambda: "a\r\nX: y", lambda: "a\0b", lambda: "", lambda: "x" * 9000, refuse, lambda: SECRET]
    for expected in (403, 403, 403, 403, 403, 200):
        with tls_to(box, egress, "good.example") as sock:
            status, head, body = get(sock, "/api/x")
            assert status == expected, (status, body)
            if status == 403:
                assert b"credential 'forge' cannot be used" in body
    assert len(world.log) == 1
    with tls_to(box, egress, "good.example") as sock:
        status, _, body = get(sock, "/api/x", more=b"Authorization: own\r\n")
        assert status == 403 and b"a credential of its own" in body
    minter.sock.close()
    minter.far.close()
    box, egress = world.start(guarded(), credentials=credential())
    with tls_to(box, egress, "good.example") as sock:
        assert get(sock, "/api/x")[0] == 403
        assert get(sock, "/other")[0] == 200


@test
def credentials_need_tls(world):
    """The box cannot have a credential sent in the clear by taking a port, unless the rule says so."""
    minter = Minter(lambda name: SECRET)
    box, egress = world.start(guarded(), credentials=credential(), minter=minter.fd())
    with box.open("good.example", 80) as sock:
        status, _, body = get(sock, "/api/x")
        assert status == 403 and b"without TLS" in body, body
        assert get(sock, "/other")[0] == 200
    assert not minter.asked
    for port in (80, 8081):
        host = "good.example" + (":8081" if port == 8081 else "")
        for plain in (False, True):
            box, egress = world.start(guarded(ports=[port], plain=plain), credentials=credential(), minter=minter.fd(), ports=(80, 8081))
            with box.open("good.example", port) as sock:
                assert get(sock, "/api/x", host=host)[0] == (200 if plain else 403), (port, plain)
            assert bool(minter.asked) == (plain or port == 8081)
    assert f"Bearer {SECRET}".encode() in world.log[-1][0]
    n = len(minter.asked)
    box, egress = world.start(guarded(ports=[443]), credentials=credential(), minter=minter.fd())
    with box.open("good.example", 443) as sock:    # HTTP where TLS is spoken
        assert get(sock, "/api/x", host="good.example:443")[0] == 403
    assert len(minter.asked) == n


@test
def an_answer_that_comes_late_is_nobodys(world):
    """T13-3: a minter that answers after the request was given up does not answer the next one."""
    if not os.environ.get("ABOX_TEST_LONG"):
        return    # the time that a request waits is 30 s
    asked, go = [], threading.Event()
    def answer(name):
        asked.append(name)
        assert go.wait(60)
        if name == "second":
            time.sleep(1)
        return "value-of-" + name
    minter = Minter(answer)
    network = {"mode": "allow", "allow": [{"host": "good.example", "paths": ["/1"], "credential": "first"},
                                          {"host": "good.example", "paths": ["/2"], "credential": "second"}]}
    box, egress = world.start(network, credentials=credential("first") + credential("second"), minter=minter.fd())
    with tls_to(box, egress, "good.example") as sock:
        sock.settimeout(60)
        status, _, body = get(sock, "/1")
        assert status == 403 and b"not minted in time" in body
        sock.sendall(b"GET /2 HTTP/1.1\r\nHost: good.example\r\n\r\n")
        time.sleep(0.5)    # nothing tells from outside that it waits
        go.set()
        assert read_answer(sock)[0] == 200
    assert asked == ["first", "second"]
    assert [h for h, _ in world.log if b"value-of-second" in h] and not [h for h, _ in world.log if b"value-of-first" in h], world.log


@test
def encoded_answers_are_not_let_through(world):
    minter = Minter(lambda name: SECRET)
    network = {"mode": "allow", "allow": [{"host": "good.example", "credential": "forge"}]}
    box, egress = world.start(network, credentials=credential(), minter=minter.fd())
    with tls_to(box, egress, "good.example") as sock:
        status, _, body = get(sock, "/gzip")
        assert status == 403 and b"could hold the credential" in body
    with tls_to(box, egress, "good.example") as sock:
        assert get(sock, "/chunked")[2] == b"one two three"


@test
def parts_of_answers(world):
    """T13-1: a value cannot be read in halves: parts are not asked for, and none that comes is passed on."""
    minter = Minter(lambda name: SECRET)
    network = {"mode": "allow", "allow": [{"host": "good.example", "credential": "forge"}, {"host": "other.example", "paths": ["/**"]}]}
    box, egress = world.start(network, credentials=credential(), minter=minter.fd())
    with tls_to(box, egress, "good.example") as sock:
        assert get(sock, "/x", more=b"Range: bytes=0-3\r\nIf-Range: \"a\"\r\nX-Other: y\r\n")[0] == 200
        came = world.log[-1][0].lower()
        assert b"range" not in came and b"x-other: y" in came and SECRET.encode().lower() in came
        status, _, body = get(sock, "/part")
        assert status == 403 and b"a part of the credential" in body, body
    with tls_to(box, egress, "other.example") as sock:    # without a credential they are the server's business
        assert get(sock, "/part", host="other.example", more=b"Range: bytes=0-1\r\n")[0] == 206
        assert b"Range: bytes=0-1" in world.log[-1][0]


def unchunk(data):
    body = b""
    while data:
        size, data = data.split(b"\r\n", 1)
        n = int(size, 16)
        if n == 0:
            return body
        body, data = body + data[:n], data[n + 2:]
    raise AssertionError("no end")


def post(sock, path, body, *more, host="good.example", chunks=None):
    """Whole, or in chunks of these sizes, each written by itself."""
    head = [f"POST {path} HTTP/1.1", f"Host: {host}", *more]
    if chunks is None:
        sock.sendall("\r\n".join(head + [f"Content-Length: {len(body)}", "", ""]).encode())
        for i in range(0, len(body), 16384):
            sock.sendall(body[i:i + 16384])
        return read_answer(sock, "POST")
    sock.sendall("\r\n".join(head + ["Transfer-Encoding: chunked", "", ""]).encode())
    at = 0
    while at < len(body):
        for n in chunks:
            piece = body[at:at + n]
            if piece:
                sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            at += n
    sock.sendall(b"0\r\n\r\n")
    return read_answer(sock, "POST")


def placeholder_of(name):
    import hashlib
    return b"agentbox_" + hashlib.sha256(name.encode()).hexdigest()[:32].encode()


BODIES = {"mode": "allow", "allow": [
    {"host": "good.example", "paths": ["/api/**"], "credential": "forge", "swap_bodies": True},
    {"host": "other.example", "credential": "forge"}]}


@test
def placeholders_in_bodies(world):
    """T13-5, B60: by rule alone; every other byte stays, lengths are right, and a value that is cut in two is found."""
    minter = Minter(lambda name: SECRET)
    box, egress = world.start(BODIES, credentials=credential(placeholder="FORGE_TOKEN"), minter=minter.fd())
    value, every = placeholder_of("forge"), bytes(range(256)) * 4096
    for at in (0, 16384 - len(value), 16384 - 20, 16384, len(every)):
        body = every[:at] + value + every[at:]
        wanted = body.replace(value, SECRET.encode())
        for chunks in (None, [16384], [1, 4093, 70000]):
            with tls_to(box, egress, "good.example") as sock:
                status, _, answer = post(sock, "/api/x", body, chunks=chunks)
            head, came = world.log[-1]
            assert status == 200 and SECRET.encode() not in answer
            if chunks is None:
                assert f"content-length: {len(wanted)}\r\n".encode() in head.lower() + b"\r\n", head
            else:
                assert b"content-length" not in head.lower()
                came = unchunk(came)
            assert came == wanted, (at, chunks, len(came), len(wanted))
    body = b"a " + value + value + b"\0" + value[:-1] + value[:20] + value
    for chunks in (None, [1], [7, 40]):    # on one connection: the length of each is its own
        with tls_to(box, egress, "good.example") as sock:
            for _ in range(2):
                assert post(sock, "/api/x", body, chunks=chunks)[0] == 200
                came = world.log[-1][1]
                assert (came if chunks is None else unchunk(came)) == body.replace(value, SECRET.encode())
            assert get(sock, "/api/x")[0] == 200
            assert post(sock, "/api/x", b"")[0] == 200
    with tls_to(box, egress, "other.example") as sock:    # the same placeholder, a rule that says nothing of bodies
        assert post(sock, "/x", value, f"X-Token: {value.decode()}", host="other.example")[0] == 200
        assert world.log[-1][1] == value and f"X-Token: {SECRET}".encode() in world.log[-1][0]
    with tls_to(box, egress, "good.example") as sock:
        assert post(sock, "/other", value)[0] == 403    # no rule allows it, nobody was asked


@test
def bodies_of_kinds(world):
    """A value stays one value in JSON and in a form; what is echoed in these forms is taken out too."""
    hard = 'a"b\\c&d=e/f+0123456789'
    minter = Minter(lambda name: hard)
    box, egress = world.start(BODIES, credentials=credential(placeholder="FORGE_TOKEN"), minter=minter.fd())
    value = placeholder_of("forge")
    import json
    import urllib.parse
    with tls_to(box, egress, "good.example") as sock:
        for kind, write, read in (("application/json; charset=utf-8", json.dumps(hard)[1:-1], lambda b: json.loads(b)["k"]),
                                  ("application/x-www-form-urlencoded", urllib.parse.quote(hard, safe="-._~"),
                                   lambda b: urllib.parse.parse_qs(b.decode())["k"][0]),
                                  ("text/plain", hard, lambda b: b.decode()[6:-1])):
            body = b"k=" + value if "form" in kind else b'{"k":"' + value + b'"}' if "json" in kind else b'{"k":"' + value + b'"'
            status, _, answer = post(sock, "/api/x", body, f"Content-Type: {kind}")
            assert status == 200 and read(world.log[-1][1]) == hard, world.log[-1]
            assert write.encode() in world.log[-1][1] and write.encode() not in answer, answer


@test
def bodies_are_bounded(world):
    """What is held is bounded for each and for all; a client that waits to be told may send, and one that stops is dropped."""
    minter = Minter(lambda name: SECRET)
    box, egress = world.start(BODIES, credentials=credential(placeholder="FORGE_TOKEN"), minter=minter.fd())
    most = 8 << 20
    with tls_to(box, egress, "good.example") as sock:
        sock.sendall(f"POST /api/x HTTP/1.1\r\nHost: good.example\r\nContent-Length: {most + 1}\r\n\r\n".encode())
        assert read_answer(sock, "POST")[0] == 413
    with tls_to(box, egress, "good.example") as sock:
        assert post(sock, "/api/x", b"x" * most)[0] == 200
        assert len(world.log[-1][1]) == most
    with tls_to(box, egress, "good.example") as sock:    # of what comes in chunks nothing is held
        assert post(sock, "/api/x", b"x" * (most + 100000), chunks=[65536])[0] == 200
    value = placeholder_of("forge")
    with tls_to(box, egress, "good.example") as sock:
        sock.sendall(f"POST /api/x HTTP/1.1\r\nHost: good.example\r\nContent-Length: {len(value)}\r\nExpect: 100-continue\r\n\r\n".encode())
        assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(value)
        assert read_answer(sock, "POST")[0] == 200
        assert world.log[-1][1] == SECRET.encode() and b"expect" not in world.log[-1][0].lower()
    held, n = [], len(world.log)
    for _ in range(8):
        sock = tls_to(box, egress, "good.example")
        sock.sendall(f"POST /api/x HTTP/1.1\r\nHost: good.example\r\nContent-Length: {most}\r\nExpect: 100-continue\r\n\r\n".encode())
        assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        held.append(sock)
    with tls_to(box, egress, "good.example") as sock:
        status, _, body = post(sock, "/api/x", b"x")
        assert status == 403 and b"too many bodies" in body, body
    for sock in held:
        sock.close()
    while egress.stats()["open"] > 0:
        time.sleep(0.01)
    with tls_to(box, egress, "good.example") as sock:
        assert post(sock, "/api/x", b"x")[0] == 200
    assert len(world.log) == n + 1


@test
def requests_are_signed(world):
    """By whoever holds the key, who sees what is sent and no more; what comes back from there is looked at."""
    import hashlib
    import hmac

    def sign(name, request):
        assert name == "forge"
        seen.append(request)
        text = "\n".join([request["method"], request["host"], request["path"], request["query"], request["sha256"],
                          *(f"{k}:{v}" for k, v in request["fields"])])
        mac = hmac.new(b"key", text.encode(), hashlib.sha256).hexdigest()
        return answers.pop(0) if answers else [("X-Date", "20260101"), ("authorization", f"HMAC {mac}")]
    seen, answers = [], []
    minter = Minter(None, sign)
    provider = [{"name": "forge", "provider": {"kind": "callback"}, "inject": {"sign": ["content-type", "x-date"]}}]
    network = {"mode": "allow", "allow": [{"host": "good.example", "paths": ["/api/**"], "credential": "forge"}]}
    box, egress = world.start(network, credentials=provider, minter=minter.fd())
    body = bytes(range(256)) * 100
    for chunks in (None, [1000]):
        with tls_to(box, egress, "good.example") as sock:
            status, _, answer = post(sock, "/api/x?a=b", body, "Content-Type: a/b", "X-Secret: not shown", "x-date: mine", "Range: bytes=0-1",
                                     "Authorization: mine", chunks=chunks)
        head, came = world.log[-1]
        assert status == 200 and came == body and seen[-1] == {
            "method": "POST", "host": "good.example", "port": 443, "tls": True, "path": "/api/x", "query": "a=b", "length": len(body),
            "fields": [("Content-Type", "a/b"), ("x-date", "mine")], "sha256": hashlib.sha256(body).hexdigest()}, seen[-1]
        text = "\n".join(["POST", "good.example", "/api/x", "a=b", hashlib.sha256(body).hexdigest(), "Content-Type:a/b", "x-date:mine"])
        mac = hmac.new(b"key", text.encode(), hashlib.sha256).hexdigest().encode()
        assert b"authorization: HMAC " + mac in head and b"X-Date: 20260101" in head and b"mine" not in head, head
        assert f"content-length: {len(body)}".encode() in head.lower() and b"chunked" not in head.lower()
        assert mac not in answer
    for bad in ([("Host", "x")], [("Content-Length", "1")], [("X Y", "1")], [("X", "a\r\nY: b")], [("X", "")], [], [("Proxy-Authorization", "x")],
                [("X", "y")] * 17, [("Connection", "X")], [("Transfer-Encoding", "chunked")]):
        answers.append(bad)
        n = len(world.log)
        with tls_to(box, egress, "good.example") as sock:
            status, _, body = get(sock, "/api/x")
            assert status == 403 and b"credential 'forge' cannot be used" in body, (bad, body)
        assert len(world.log) == n
    assert egress.wait_event("credential.use", credential="forge")


@test
def published_ports(world):
    """The host's loopback reaches a server of the box, by token where one is wanted, and no longer after it was taken back."""
    box, egress = world.start(ALLOW)
    code = ("import http.server,os\nclass H(http.server.BaseHTTPRequestHandler):\n def log_message(s,*a):pass\n def do_GET(s):\n"
            "  s.send_response(200);s.send_header('Content-Length','3');s.end_headers();s.wfile.write(b'box')\n"
            "if os.fork()==0:\n os.setsid();[os.close(i) for i in (0,1,2)]\n"
            " http.server.HTTPServer(('127.0.0.1',8000),H).serve_forever()")
    box.run(sys.executable, "-c", code)
    for port, token in ((9001, ""), (9002, "a" * 32)):
        with socket.create_server(("127.0.0.1", port)) as listener:
            kind, _ = egress.ask(PUBLISH, u32(port) + u32(8000) + text(token), [listener.fileno()])
            assert kind == OK
    deadline = time.monotonic() + 10
    status = None
    while status is None:    # until the server listens
        assert time.monotonic() < deadline
        try:
            with socket.create_connection(("127.0.0.1", 9001), 5) as sock:
                status, _, body = get(sock, host="localhost:9001")
        except OSError:
            pass
        time.sleep(0.05)
    assert status == 200 and body == b"box", (status, body)
    for more, wanted in ((b"", 401), (b"Authorization: Bearer b" + b"a" * 31 + b"\r\n", 401),
                         (b"Authorization: Bearer " + b"a" * 32 + b"\r\n", 200)):
        with socket.create_connection(("127.0.0.1", 9002), 5) as sock:
            assert get(sock, host="localhost:9002", more=more)[0] == wanted
    assert egress.ask(UNPUBLISH, u32(9001))[0] == OK and egress.ask(UNPUBLISH, u32(9001))[0] == FAULT
    assert refused(lambda: socket.create_connection(("127.0.0.1", 9001), 5))


@test
def egress_gone(world):
    """T11-12, T11-13: killed, it leaves nothing that listens; when the keeper goes, it goes."""
    box, egress = world.start(ALLOW)
    address = box.resolve("good.example")
    sock = tls_to(box, egress, "good.example", pem=world.host.authority.pem)
    egress.process.kill()
    egress.process.wait()
    assert refused(lambda: get(sock)[0] or (_ for _ in ()).throw(EOFError()))
    assert refused(lambda: box.connect(address, 443))
    world.stop()
    box, egress = world.start(ALLOW)
    assert egress.close() == 0
    world.egress = world.box = None
    box.close()


@test
def confined(world):
    """No file, no program, no other kind of socket; no capability, no new privileges, not dumpable."""
    box, egress = world.start(ALLOW)
    status = dict(line.split(":\t", 1) for line in open(f"/proc/{egress.process.pid}/status") if ":\t" in line)
    assert status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2"
    assert int(status["CapEff"], 16) == 0 and int(status["CapPrm"], 16) == 0


def memory_has(pid, needle):
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            if " rw" not in line:
                continue
            begin, end = (int(n, 16) for n in line.split()[0].split("-"))
            try:
                memory.seek(begin)
                if needle in memory.read(end - begin):
                    return True
            except OSError:
                pass
    return False


@test
def the_resolver_has_no_secret(world):
    """T13-1: who reads answers of foreign name servers has neither the proxy's password nor a key."""
    import base64
    box, egress = world.start(ALLOW, proxy="http://user:sesame-0123456789@127.0.0.1:3128")
    with open(f"/proc/{egress.process.pid}/task/{egress.process.pid}/children") as children:
        resolver = int(children.read())
    secret = base64.b64encode(b"user:sesame-0123456789")
    assert memory_has(egress.process.pid, secret)
    assert not memory_has(resolver, secret) and not memory_has(resolver, b"sesame-0123456789")


@test
def a_value_is_overwritten_after_its_use(world):
    """T13-1: when a request is done nothing of its credential is left in egress."""
    minter = Minter(lambda name: SECRET)
    network = {"mode": "allow", "allow": [{"host": "good.example", "paths": ["/big**"], "credential": "forge"}]}
    box, egress = world.start(network, credentials=credential(), minter=minter.fd())
    with tls_to(box, egress, "good.example") as sock:
        assert get(sock, "/big=10", more=b"X: y\r\n" * 200)[0] == 200
    while egress.stats()["open"] > 0:
        time.sleep(0.02)
    assert f"Bearer {SECRET}".encode() in world.log[-1][0]
    assert memory_has(egress.process.pid, b"good.example") and not memory_has(egress.process.pid, SECRET[4:].encode())


@test
def bodies_do_not_grow_without_bound(world):
    """A long value in a body of nothing but placeholders would be some hundred times what has been sent."""
    long = "s" * 8000
    minter = Minter(lambda name: long)
    box, egress = world.start(BODIES, credentials=credential(placeholder="FORGE_TOKEN"), minter=minter.fd())
    value = placeholder_of("forge")
    with tls_to(box, egress, "good.example") as sock:
        assert post(sock, "/api/x", value * 100)[0] == 200 and world.log[-1][1] == long.encode() * 100
        n = len(world.log)
        status, _, answer = post(sock, "/api/x", value * 20000)
        assert status == 403 and b"too often" in answer and len(world.log) == n, answer
    with tls_to(box, egress, "good.example") as sock:
        assert refused(lambda: post(sock, "/api/x", value * 20000, chunks=[16384])[0] == 200 or (_ for _ in ()).throw(EOFError()))
    peak = [int(line.split()[1]) for line in open(f"/proc/{egress.process.pid}/status") if line.startswith("VmHWM:")]
    assert peak[0] < 64 << 10, peak


@test
def many_at_once(world):
    box, egress = world.start(INSPECT)
    address = box.resolve("good.example")
    failures = []

    def one(i):
        try:
            sock = client_context(egress.ca).wrap_socket(socks[i], server_hostname="good.example")
            for k in range(5):
                status, _, body = get(sock, f"/n{i}-{k}")
                assert status == 200 and f"/n{i}-{k} ".encode() in body
        except Exception as error:
            failures.append(error)
    socks = [box.connect(address, 443) for _ in range(32)]
    threads = [threading.Thread(target=one, args=(i,)) for i in range(32)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures[:3]


if __name__ == "__main__":
    run_all(World())
