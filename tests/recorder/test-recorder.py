# SPDX-License-Identifier: LGPL-2.1-or-later
"""test-recorder.py PROGRAM: what a recorder believes of whoever asks it for effects. The script plays library and keeper."""
import array
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

OPEN, EFFECT, DONE, LEAVE, OK, ANSWER = 1, 13, 14, 15, 10, 17
GO, REPLAY, DEFERRED, REFUSED, RECORDED, UNRECORDED = 1, 2, 3, 4, 5, 6
ANSWERED = 1
F_ADD_SEALS, SEALS = 1033, 15
LIFE = 7
folder = tempfile.mkdtemp(prefix="abox-recorder.")


def u32(n):
    return struct.pack("<I", n)


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return u32(len(value)) + value + b"\0"


def memory(data, seals=SEALS):
    fd = os.memfd_create("body", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


def send(sock, data, *fds):
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
    for fd in fds:
        os.close(fd)


class Recorder:
    def __init__(self, program):
        self.caller, three = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.keeper, four = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.serial = 0

        def into_place():
            a, b = fcntl.fcntl(three.fileno(), fcntl.F_DUPFD, 10), fcntl.fcntl(four.fileno(), fcntl.F_DUPFD, 10)
            os.dup2(a, 3)
            os.dup2(b, 4)
            os.closerange(5, 64)
        self.process = subprocess.Popen([program], preexec_fn=into_place, close_fds=False, stdin=subprocess.DEVNULL)
        three.close()
        four.close()
        send(self.caller, u32(OPEN) + u32(1) + u32(4) + text(folder + "/journal") + text("task") + text("box") + text("") + u32(0) + b"\1")
        answer = self.caller.recv(65536)
        assert struct.unpack_from("<I", answer)[0] == OK, answer
        self.keeper.settimeout(30)

    def ask(self, length, *fds, path="/x", approval=False, defer=False):
        self.serial += 1
        head = b"POST /x HTTP/1.1\r\n\r\n" if defer else b""
        message = u32(EFFECT) + u32(self.serial) + u32(LIFE) + u32(0) + bytes([approval, defer]) + u32(0) + text("/network/allow/0") + text("auto")
        message += text("") + text("POST host.example:443" + path) + text("POST") + text("host.example") + u32(443) + text(path) + b"\0" + text("")
        message += u32(0) + text("") + struct.pack("<Q", length) + text(head)
        send(self.keeper, message, *fds)
        return self.serial

    def done(self, serial, *fds):
        send(self.keeper, u32(DONE) + u32(serial) + u32(LIFE) + u32(ANSWERED) + u32(201) + text(""), *fds)

    def answer(self):
        data, _, _, _ = self.keeper.recvmsg(65536, socket.CMSG_SPACE(16))
        kind, serial, life, what = struct.unpack_from("<IIII", data)
        assert kind == ANSWER and life == LIFE, data
        return serial, what, data

    def close(self):
        self.keeper.close()
        self.caller.close()
        self.process.wait(20)


recorder = Recorder(sys.argv[1])
try:
    # What is approved and repeated is told by the bytes of the body: they must be there, as many as told, and stay what they are.
    for name, length, fds in (("none", 4, []), ("shorter", 4, [memory(b"abc")]), ("longer", 4, [memory(b"abcde")]),
                              ("unsealed", 4, [memory(b"abcd", 0)]), ("pipe", 4, [os.dup(os.pipe()[0])])):
        for defer in (False, True):
            recorder.ask(length, *map(os.dup, fds), defer=defer)
            serial, what, data = recorder.answer()
            assert serial == recorder.serial and what == REFUSED and b"has not come" in data, (name, data)
        print("ok refused:", name)
    recorder.ask(4, memory(b"abcd"))
    assert recorder.answer()[1] == GO
    recorder.ask(0, path="/without")
    assert recorder.answer()[1] == GO
    recorder.ask(4, memory(b"abcd"), path="/deferred", defer=True)
    assert recorder.answer()[1] == DEFERRED
    print("ok let go: whole and sealed")
    # The same of an answer: one that could still change is no outcome, and nobody is told another thing later.
    for name, seals, recorded, again in (("unsealed", 0, UNRECORDED, REFUSED), ("sealed", SEALS, RECORDED, REPLAY)):
        asked = recorder.ask(0, path="/answer/" + name)
        assert recorder.answer()[1] == GO
        recorder.done(asked, memory(b"HTTP/1.1 201 Created\r\n\r\nok", seals))
        assert recorder.answer()[:2] == (asked, recorded), name
        recorder.ask(0, path="/answer/" + name)
        assert recorder.answer()[1] == again, name
        print("ok answer:", name)
    # There is an end to what it holds for one box; and room again when something of it has gone.
    # None of these is answered while it waits for somebody's approval.
    for i in range(511):
        last = recorder.ask(0, path=f"/wait/{i}", approval=True)
    serial, what, data = recorder.answer()
    assert serial == last and what == REFUSED and b"too many effects" in data, (serial, last, data)
    send(recorder.keeper, u32(LEAVE) + u32(11) + u32(LIFE) + b"\1")
    recorder.keeper.settimeout(10)
    recorder.ask(0, path="/after")
    assert recorder.answer()[1] == GO
    print("ok bounded: 512 at a time")
finally:
    recorder.close()
    shutil.rmtree(folder)
