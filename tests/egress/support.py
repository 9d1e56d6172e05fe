# SPDX-License-Identifier: LGPL-2.1-or-later
"""What tests of egress share: the script is run in user, mount and network namespaces of its own ("the host"), a child
unshares a second network namespace ("the box"), whose every address leads to the listeners that egress gets. The script plays
the keeper. Names are resolved by a hosts file of its own; servers listen on public addresses that are local here."""
import array
import ctypes
import fcntl
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
MS_BIND = 4096
F_ADD_SEALS, SEALS = 1033, 15

OPEN, NAMES, LISTEN, RULES, STATS, PUBLISH, UNPUBLISH, SOCKET = range(1, 9)
OK, FAULT, READY, EVENT, NAME, WANT = range(20, 26)
TCP, DNS_UDP, DNS_TCP, PROXY = 1, 2, 3, 4


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def bring_up(family_routes=True):
    """lo up, and every address on it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sH22x", b"lo", 0x1 | 0x40))
    index = socket.if_nametoindex("lo")
    for family, size in ((socket.AF_INET, 4), (socket.AF_INET6, 16)):
        attribute = struct.pack("=HHI", 8, 4, index)
        body = struct.pack("=BBBBBBBBI", family, 0, 0, 0, 255, 4, 254 if family == socket.AF_INET else 0, 2, 0) + attribute
        body = struct.pack("=IHHII", 16 + len(body), 24, 0x5 | 0x400, 1, 0) + body
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
            s.bind((0, 0))
            s.send(body)
            answer = s.recv(4096)
            error = struct.unpack_from("=i", answer, 16)[0]
            if error:
                raise OSError(-error, "route: " + os.strerror(-error))


def sealed(data):
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    fcntl.fcntl(fd, F_ADD_SEALS, SEALS)
    return fd


def u32(n):
    return struct.pack("<I", n)


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return u32(len(value)) + value + b"\0"


class Reader:
    def __init__(self, data):
        self.data, self.offset = data, 0

    def take(self, n):
        self.offset += n
        return self.data[self.offset - n:self.offset]

    def u32(self):
        return struct.unpack("<I", self.take(4))[0]

    def u64(self):
        return struct.unpack("<Q", self.take(8))[0]

    def bytes(self):
        value = self.take(self.u32())
        self.take(1)
        return value


def send_fds(sock, data, fds):
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])


def recv_fds(sock, size=65536):
    data, ancillary, _, _ = sock.recvmsg(size, socket.CMSG_SPACE(8 * 4))
    fds = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content)
    return data, list(fds)


def into_descriptors(three, four):
    """For a child: these sockets become 3 and 4."""
    def into_place():
        a, b = fcntl.fcntl(three.fileno(), fcntl.F_DUPFD, 10), fcntl.fcntl(four.fileno(), fcntl.F_DUPFD, 10)
        os.dup2(a, 3)
        os.dup2(b, 4)
        os.closerange(5, 64)
    return into_place


# -- certificates --

def openssl(*words, cwd):
    subprocess.run(["openssl", *words], cwd=cwd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Authority:
    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem", cwd=folder)
        self.pem = open(f"{folder}/{name}.pem").read()

    def leaf(self, label, names):
        config = f"{self.folder}/{label}.cnf"
        with open(config, "w") as f:
            f.write("subjectAltName=" + ",".join(("IP:" if n[0].isdigit() or ":" in n else "DNS:") + n for n in names))
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={label}",
                "-keyout", f"{label}.key", "-out", f"{label}.csr", cwd=self.folder)
        openssl("x509", "-req", "-in", f"{label}.csr", "-CA", f"{self.name}.pem", "-CAkey", f"{self.name}.key",
                "-CAcreateserial", "-days", "2", "-extfile", config, "-out", f"{label}.pem", cwd=self.folder)
        return f"{self.folder}/{label}.pem", f"{self.folder}/{label}.key"


# -- the box --

class Box:
    """A child in a network namespace of its own: makes listeners there, connects there, runs programs there."""

    def __init__(self):
        self.sock, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            self.sock.close()
            try:
                self.serve(far)
            finally:
                os._exit(0)
        far.close()

    def serve(self, far):
        check(libc.unshare(CLONE_NEWNET))
        bring_up()
        while True:
            data = far.recv(65536)
            if not data:
                return
            order = json.loads(data)
            try:
                answer, fds = getattr(self, "do_" + order[0])(*order[1:])
            except OSError as error:
                answer, fds = {"errno": error.errno}, []
            send_fds(far, json.dumps(answer).encode(), fds)
            for fd in fds:
                os.close(fd)

    def ask(self, *order):
        self.sock.send(json.dumps(order).encode())
        data, fds = recv_fds(self.sock)
        answer = json.loads(data)
        if isinstance(answer, dict) and "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]))
        return answer, fds

    def do_listen(self, ports):
        fds = []
        for port in ports:
            for family in (socket.AF_INET, socket.AF_INET6):
                s = socket.socket(family, socket.SOCK_STREAM)
                if family == socket.AF_INET6:
                    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                s.bind(("", port))
                s.listen(512)
                fds.append(s.detach())
        return [], fds

    def do_names(self):
        fds = []
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            s = socket.socket(socket.AF_INET, kind)
            if kind == socket.SOCK_DGRAM:
                s.setsockopt(socket.IPPROTO_IP, 8, 1)
            s.bind(("", 53))
            if kind == socket.SOCK_STREAM:
                s.listen(64)
            fds.append(s.detach())
        return [], fds

    def do_socket(self):
        return [], [socket.socket(socket.AF_INET, socket.SOCK_STREAM).detach()]

    def do_connect(self, address, port):
        s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        s.settimeout(10)
        s.connect((address, port))
        s.settimeout(None)
        return [], [s.detach()]

    def do_run(self, argv, env, seconds):
        try:
            done = subprocess.run(argv, env=env, capture_output=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return [-1, "", "late"], []
        return [done.returncode, done.stdout.decode("latin-1")[-20000:], done.stderr.decode("latin-1")[-20000:]], []

    def do_resolve(self, name, tcp, kind):
        query = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0)
        query += b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0" + struct.pack(">HH", kind, 1)
        if tcp:
            with socket.create_connection(("198.18.0.1", 53), 5) as s:
                s.sendall(struct.pack(">H", len(query)) + query)
                data = s.recv(2048)[2:]
        else:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                s.settimeout(5)
                s.connect(("198.18.0.1", 53))
                s.send(query)
                data = s.recv(2048)
        if data[3] & 15 or not struct.unpack(">H", data[6:8])[0]:
            return [data[3] & 15, None], []
        size = 4 if kind == 1 else 16
        return [0, socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, data[len(query) + 12:len(query) + 12 + size])], []

    def connect(self, address, port):
        _, fds = self.ask("connect", address, port)
        s = socket.socket(fileno=fds[0])
        s.settimeout(10)
        return s

    def resolve(self, name, tcp=False, kind=1):
        (rcode, address), _ = self.ask("resolve", name, tcp, kind)
        return address if rcode == 0 else None

    def open(self, name, port):
        return self.connect(self.resolve(name), port)

    def run(self, *argv, seconds=20, env=None):
        answer, _ = self.ask("run", list(argv), env or {"PATH": os.environ["PATH"], "HOME": "/tmp"}, seconds)
        return answer

    def close(self):
        self.sock.close()
        os.waitpid(self.pid, 0)


# -- the keeper --

class Egress:
    def __init__(self, program, packer, box, spec, trusted, ports=(80, 443), proxy="", no_proxy="", caps=(0, 0, 0),
                 minter=None, uid=0xffffffff, proxy_port=None):
        self.packer, self.box = packer, box
        library, library_far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.keeper, keeper_far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.serial, self.events, self.names, self.answers = 0, [], [], {}
        self.condition = threading.Condition()

        self.process = subprocess.Popen([program], preexec_fn=into_descriptors(library_far, keeper_far), close_fds=False,
                                        stdin=subprocess.DEVNULL)
        library_far.close()
        keeper_far.close()
        fds = [sealed(self.pack(spec)), sealed(trusted.encode())] + ([minter] if minter is not None else [])
        message = u32(OPEN) + u32(1) + u32(1) + text("box-of-test") + text(proxy) + text(no_proxy)
        message += b"".join(u32(n) for n in caps) + u32(uid) + u32(uid)
        send_fds(library, message, fds)
        for fd in fds:
            os.close(fd)
        answer = Reader(library.recv(65536))
        assert answer.u32() == OK, answer.data
        library.close()
        answer = Reader(self.keeper.recv(65536))
        assert answer.u32() == READY
        answer.u32()
        self.ca = answer.bytes().decode()
        threading.Thread(target=self.read, daemon=True).start()
        _, sockets = box.ask("names")
        self.listen([(DNS_UDP, 53), (DNS_TCP, 53)], sockets)
        for port in ports:
            _, sockets = box.ask("listen", [port])
            self.listen([(TCP, port)] * 2, sockets)
        if proxy_port:
            _, sockets = box.ask("listen", [proxy_port])
            self.listen([(PROXY, proxy_port)] * 2, sockets)

    def pack(self, spec):
        done = subprocess.run([self.packer], input=json.dumps(spec).encode(), capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def read(self):
        while True:
            try:
                data = self.keeper.recv(65536)
            except OSError:
                return
            reader = Reader(data)
            if not data:
                return
            kind, serial = reader.u32(), reader.u32()
            with self.condition:
                if kind == EVENT:
                    reader.u32()
                    name, body = reader.bytes().decode(), json.loads(reader.bytes())
                    self.events.append((name, body))
                elif kind == WANT:
                    _, fds = self.box.ask("socket")
                    send_fds(self.keeper, u32(SOCKET) + u32(serial), fds)
                    for fd in fds:
                        os.close(fd)
                elif kind == NAME:
                    self.names.append(reader.bytes().decode())
                else:
                    self.answers[serial] = (kind, reader)
                self.condition.notify_all()

    def ask(self, kind, body, fds=()):
        self.serial += 1
        serial = self.serial
        send_fds(self.keeper, u32(kind) + u32(serial) + body, list(fds))
        with self.condition:
            assert self.condition.wait_for(lambda: serial in self.answers, 10), "no answer"
            return self.answers.pop(serial)

    def listen(self, kinds, fds):
        body = u32(len(kinds)) + b"".join(u32(kind) + u32(port) for kind, port in kinds)
        kind, reader = self.ask(LISTEN, body, fds)
        assert kind == OK, reader.data
        for fd in fds:
            os.close(fd)

    def rules(self, spec, cut=False):
        fd = sealed(self.pack(spec))
        kind, reader = self.ask(RULES, bytes([cut]), [fd])
        os.close(fd)
        return kind, reader

    def stats(self):
        kind, reader = self.ask(STATS, b"")
        assert kind == OK
        words = ("open", "accepted", "denied", "capped", "sent", "received", "generation")
        return {w: reader.u32() if w in ("open", "generation") else reader.u64() for w in words}

    def wait_event(self, name, **members):
        def found():
            return [b for n, b in self.events if n == name and all(b.get(k) == v for k, v in members.items())]
        with self.condition:
            assert self.condition.wait_for(found, 10), (name, members, self.events[-5:])
            return found()[-1]

    def close(self):
        try:
            self.keeper.shutdown(socket.SHUT_RDWR)    # the reader sleeps in it, so a close alone would wait for it
        except OSError:
            pass
        self.keeper.close()
        return self.process.wait(10)


# -- the minter --

class Minter:
    """Answers egress by a function: name -> value, or an Exception whose text says why not."""

    def __init__(self, answer, sign=None):
        self.sign = sign
        self.sock, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.answer, self.asked = answer, []
        threading.Thread(target=self.serve, daemon=True).start()

    def fd(self):
        return os.dup(self.far.fileno())

    def serve(self):
        while data := self.sock.recv(65536):
            reader = Reader(data)
            kind = reader.u32()
            serial, name = reader.u32(), reader.bytes().decode()
            self.asked.append(name)
            if kind == 3:
                fields = self.sign(name, self.request(reader))
                self.sock.send(u32(12) + u32(serial) + u32(len(fields)) + b"".join(text(k) + text(v) for k, v in fields))
                continue
            try:
                value = self.answer(name)
                self.sock.send(u32(10) + u32(serial) + text(value))
            except ValueError as error:
                self.sock.send(u32(11) + u32(serial) + text(str(error)))


    @staticmethod
    def request(reader):
        request = {"method": reader.bytes().decode(), "host": reader.bytes().decode(), "port": reader.u32(), "tls": reader.take(1) == b"\1",
                   "path": reader.bytes().decode(), "query": reader.bytes().decode()}
        request["fields"] = [(reader.bytes().decode(), reader.bytes().decode()) for _ in range(reader.u32())]
        request["length"] = reader.u64()
        request["sha256"] = reader.bytes().hex()
        return request


# -- servers of the host --

class Server:
    """Accepts on an address and port, each connection handled by a function in a thread of its own."""

    def __init__(self, address, port, handler, tls=None):
        self.listener = socket.create_server((address, port), backlog=256, family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        self.handler, self.tls, self.accepted = handler, tls, 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self.one, args=(sock,), daemon=True).start()

    def one(self, sock):
        try:
            sock.settimeout(20)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls:
                sock = self.tls.wrap_socket(sock, server_side=True)
            with sock:
                self.handler(sock)
        except (OSError, ssl.SSLError, ValueError):
            pass


def server_context(certificate, key, alpn=("http/1.1",)):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(list(alpn))
    return context


def client_context(pem, alpn=None):
    context = ssl.create_default_context(cadata=pem)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def read_head(sock, buffer=b""):
    while b"\r\n\r\n" not in buffer:
        data = sock.recv(65536)
        if not data:
            return None, buffer
        buffer += data
    head, rest = buffer.split(b"\r\n\r\n", 1)
    return head, rest


def read_answer(sock, method="GET", buffer=b""):
    """(status, head, body) of one answer; the rest is dropped."""
    head, rest = read_head(sock, buffer)
    if head is None:
        return None, b"", rest
    status = int(head.split(b" ", 2)[1])
    lower = head.lower()
    if method == "HEAD" or status in (204, 304) or status < 200:
        return status, head, rest
    if b"transfer-encoding: chunked" in lower:
        body = b""

        def line(rest):
            while b"\r\n" not in rest:
                rest += sock.recv(65536) or b"\r\n"
            return rest.split(b"\r\n", 1)
        while True:
            size, rest = line(rest)
            n = int(size or b"0", 16)
            while n and len(rest) < n + 2:
                rest += sock.recv(65536)
            if n == 0:
                break
            body, rest = body + rest[:n], rest[n + 2:]
        while size:    # the trailer
            size, rest = line(rest)
        return status, head, body
    length = None
    for line in lower.split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    body = bytearray(rest)
    while length is None or len(body) < length:
        data = sock.recv(1 << 20)
        if not data:
            break
        body += data
    return status, head, bytes(body)


class Host:
    """The surroundings: names, certificates, and a folder for them."""

    def __init__(self, names):
        self.folder = tempfile.mkdtemp(prefix="egress-", dir=os.environ.get("TMPDIR", "/tmp"))
        os.chmod(self.folder, 0o755)
        bring_up()
        self.files({"hosts": "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in names),
                    "nsswitch.conf": "hosts: files\n"})
        self.authority = Authority(self.folder, "authority")

    def files(self, files):
        for name, content in files.items():
            path = f"{self.folder}/{name}"
            with open(path, "w") as f:
                f.write(content)
            os.chmod(path, 0o644)
            check(libc.mount(path.encode(), f"/etc/{name}".encode(), None, MS_BIND, None))

    def file(self, name, content):
        path = f"{self.folder}/{name}"
        with open(path, "w") as f:
            f.write(content)
        return path


TESTS = []


def test(function):
    TESTS.append(function)
    return function


def run_all(*arguments):
    failed = 0
    chosen = [t for t in TESTS if len(sys.argv) < 4 or t.__name__ in sys.argv[3:]]
    for t in chosen:
        begin = time.monotonic()
        try:
            t(*arguments)
            print(f"ok {t.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
        except BaseException as error:
            import traceback
            traceback.print_exc()
            print(f"not ok {t.__name__}: {error!r}", flush=True)
            failed += 1
    for argument in arguments:
        shutil.rmtree(argument.host.folder, ignore_errors=True)
    print(f"{len(chosen)} tests, {failed} failed")
    sys.stdout.flush()
    os._exit(1 if failed else 0)
