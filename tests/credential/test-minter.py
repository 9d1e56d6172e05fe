# SPDX-License-Identifier: LGPL-2.1-or-later
"""The minter by itself: the script plays library, egress and harness.

Usage: test-minter.py MINTER PACK-SLOTS
"""
import os
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "egress"))
from support import Reader, into_descriptors, run_all, sealed, send_fds, test, text, u32

PROGRAM, PACKER = sys.argv[1:3]
OPEN, ASK, SIGN, SERVE, REVOKE = range(1, 6)
SECRET, REFUSED, SIGNED, DROPPED, DONE = range(10, 15)
MINT, MAKE, TAKE_BACK = 20, 21, 22
VALUE, FIELDS, REVOKED, NONE = 25, 26, 27, 28
ASKED, RENEWED, END = 0, 1, 2


def u64(n):
    return u32(n & 0xffffffff) + u32(n >> 32)


class Minter:
    def __init__(self, credentials):
        spec = '{"version":1,"credentials":[%s]}' % ",".join(credentials)
        packed = subprocess.run([PACKER], input=spec.encode(), stdout=subprocess.PIPE, check=True).stdout
        library, library_far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.egress, egress_far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.egress.settimeout(30)
        self.process = subprocess.Popen([PROGRAM], preexec_fn=into_descriptors(library_far, egress_far), close_fds=False,
                                        stdin=subprocess.DEVNULL)
        library_far.close()
        egress_far.close()
        fd = sealed(packed + u32(1) + text("PATH=" + os.environ["PATH"]))
        send_fds(library, u32(OPEN) + u32(1) + u32(2), [fd])
        os.close(fd)
        answer = Reader(library.recv(65536))
        assert answer.u32() == 30, answer.data
        library.close()
        self.serial, self.dropped = 0, []

    def send(self, kind, body, fds=()):
        self.serial += 1
        send_fds(self.egress, u32(kind) + u32(self.serial) + body, list(fds))
        return self.serial

    def receive(self):
        while True:
            reader = Reader(self.egress.recv(65536))
            kind, serial = reader.u32(), reader.u32()
            if kind != DROPPED:
                return kind, serial, reader
            self.dropped.append((reader.bytes().decode(), reader.u32(), reader.bytes().decode()))

    def expect(self, serial, kind):
        got, number, reader = self.receive()
        assert (got, number) == (kind, serial), (got, number, reader.data)
        return reader

    def ask(self, name="forge"):
        return self.send(ASK, text(name))

    def value(self, name="forge"):
        return self.expect(self.ask(name), SECRET).bytes()

    def refusal(self, name="forge"):
        return self.expect(self.ask(name), REFUSED).bytes().decode()

    def serve(self, revokes=True):
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        near.settimeout(30)
        serial = self.send(SERVE, bytes([revokes]), [far.fileno()])
        far.close()
        return near, serial

    def served(self, revokes=True):
        near, serial = self.serve(revokes)
        self.expect(serial, DONE)
        return near

    def revoke(self, name="", for_good=False, why=ASKED):
        return self.send(REVOKE, text(name) + bytes([for_good]) + u32(why))

    def lists(self, serial):
        reader = self.expect(serial, DONE)
        return [[reader.bytes().decode() for _ in range(reader.u32())] for _ in range(2)]

    def end(self):
        self.egress.close()
        assert self.process.wait(30) == 0


def question(harness, kind):
    reader = Reader(harness.recv(65536))
    got, serial, left = reader.u32(), reader.u32(), reader.u64()
    assert got == kind and 0 < left <= 25000000, (got, left)
    slot = [reader.bytes().decode() for _ in range(4)]
    slot += [[reader.bytes().decode() for _ in range(reader.u32())], reader.u64()]
    return serial, slot, reader


def answer(harness, kind, serial, body=b""):
    harness.send(u32(kind) + u32(serial) + body)


def give(harness, value, life=0):
    serial, slot, _ = question(harness, MINT)
    answer(harness, VALUE, serial, u64(life) + text(value))
    return slot


CALLBACK = '{"name":"forge","provider":{"kind":"callback"},"subject":"s","resource":"r","scopes":["a","b"],"ttl":"1h"}'
OTHER = '{"name":"other","provider":{"kind":"callback"},"inject":{"sign":[]}}'


@test
def a_harness_is_asked():
    """The four questions; what it gives is kept; it is asked once for all who wait."""
    minter = Minter([CALLBACK])
    assert "no program serves it" in minter.refusal()
    harness = minter.served()
    first, second = minter.ask(), minter.ask()
    assert give(harness, "VALUE-1") == ["forge", "s", "r", "", ["a", "b"], 3600000000]
    assert sorted(minter.receive()[:2] for _ in range(2)) == [(SECRET, first), (SECRET, second)]
    assert minter.value() == b"VALUE-1"
    minter.egress.close()
    serial, slot, reader = question(harness, TAKE_BACK)
    assert slot[0] == "forge" and reader.u32() == END and reader.bytes() == b"VALUE-1"
    answer(harness, REVOKED, serial)
    assert harness.recv(10) == b""
    minter.end()


@test
def a_harness_that_is_gone():
    """T13-3: what waits is refused when it dies, what comes later as well; another one may take its place."""
    minter = Minter([CALLBACK])
    harness = minter.served()
    serial = minter.ask()
    question(harness, MINT)
    harness.close()
    assert b"is gone" in minter.expect(serial, REFUSED).bytes()
    assert "is gone" in minter.refusal()
    harness = minter.served()
    serial = minter.ask()
    give(harness, "VALUE-2")
    assert minter.expect(serial, SECRET).bytes() == b"VALUE-2"
    again, number = minter.serve()
    minter.expect(number, DONE)
    assert harness.recv(10) == b""    # and the one before is told
    again.close()
    assert minter.value() == b"VALUE-2"    # it holds, whoever has given it
    assert minter.lists(minter.revoke("forge")) == [[], ["forge"]]
    assert minter.dropped == [("forge", ASKED, "the program that serves it is gone")]
    minter.end()


@test
def bad_answers_are_refusals():
    minter = Minter([CALLBACK])
    harness = minter.served()
    for kind, body, why in ((VALUE, u64(0) + text("a\r\nb"), "control character"), (VALUE, u64(0) + text(""), "empty"),
                            (VALUE, u64(0) + text("x" * 9000), "too long"), (VALUE, u64(0), "cannot be read"), (FIELDS, u32(0), "cannot be read"),
                            (NONE, text("not\ntoday"), "not today"), (NONE, text(""), "gave none"), (77, b"", "cannot be read")):
        serial = minter.ask()
        number, _, _ = question(harness, MINT)
        answer(harness, kind, number, body)
        got = minter.expect(serial, REFUSED).bytes().decode()
        assert why in got, (kind, got)
    answer(harness, VALUE, 4711, u64(0) + text("unasked"))
    serial = minter.ask()
    give(harness, "VALUE")
    assert minter.expect(serial, SECRET).bytes() == b"VALUE"
    assert "no such credential" in minter.refusal("none")
    harness.close()
    minter.end()


@test
def values_are_renewed_and_taken_back():
    """The old one is taken back when the next one is there, and whoever asks does not wait for that."""
    minter = Minter([CALLBACK])
    harness = minter.served()
    serial = minter.ask()
    give(harness, "OLD", life=10)    # microseconds
    assert minter.expect(serial, SECRET).bytes() == b"OLD"
    time.sleep(0.001)
    serial = minter.ask()
    number, _, _ = question(harness, MINT)
    back, _, reader = question(harness, TAKE_BACK)
    assert reader.u32() == RENEWED and reader.bytes() == b"OLD"
    answer(harness, VALUE, number, u64(0) + text("NEW"))
    answer(harness, REVOKED, back)
    assert minter.expect(serial, SECRET).bytes() == b"NEW"
    assert minter.value() == b"NEW" and minter.dropped == [("forge", RENEWED, "")]
    harness.close()
    minter.end()


@test
def revoked_for_good():
    """Also a value that comes when it has been revoked already: nobody gets it, and it is taken back."""
    minter = Minter([CALLBACK])
    harness = minter.served()
    serial = minter.ask()
    number, _, _ = question(harness, MINT)
    assert minter.expect(minter.revoke("none"), REFUSED)
    assert minter.lists(minter.revoke("forge", for_good=True)) == [[], []]    # there was none yet
    answer(harness, VALUE, number, u64(0) + text("LATE"))
    assert b"has been revoked" in minter.expect(serial, REFUSED).bytes()
    back, _, reader = question(harness, TAKE_BACK)
    reader.u32()
    assert reader.bytes() == b"LATE"
    answer(harness, REVOKED, back)
    assert "has been revoked" in minter.refusal()
    assert minter.dropped == [("forge", ASKED, "")]
    minter.end()


@test
def who_cannot_revoke_is_not_asked():
    minter = Minter([CALLBACK])
    harness = minter.served(revokes=False)
    serial = minter.ask()
    give(harness, "VALUE")
    minter.expect(serial, SECRET)
    assert minter.lists(minter.revoke("")) == [[], []] and not minter.dropped
    serial = minter.ask()
    give(harness, "NEXT")    # it was forgotten all the same
    assert minter.expect(serial, SECRET).bytes() == b"NEXT"
    minter.end()


@test
def requests_are_passed_to_the_signer():
    minter = Minter([CALLBACK, OTHER, '{"name":"file","provider":{"kind":"env","variable":"PATH"}}'])
    harness = minter.served()
    request = bytes(range(256)) * 8
    serials = [minter.send(SIGN, text("other") + request) for _ in range(2)]
    for serial in serials:    # each is a question of its own
        number, slot, reader = question(harness, MAKE)
        assert slot[0] == "other" and reader.data[reader.offset:] == request
        answer(harness, FIELDS, number, u32(1) + text("A") + text("b"))
        assert minter.expect(serial, SIGNED).data[8:] == u32(1) + text("A") + text("b")
    serial = minter.send(SIGN, text("file") + request)
    assert b"cannot sign" in minter.expect(serial, REFUSED).bytes()
    minter.send(SIGN, text("other") + request)
    question(harness, MAKE)
    assert minter.value("file") == os.environ["PATH"].encode()    # nobody waits for the harness but who needs it
    harness.close()
    minter.end()


@test
def nobody_serves_what_has_no_callback():
    minter = Minter(['{"name":"forge","provider":{"kind":"env","variable":"PATH"}}'])
    harness, serial = minter.serve()
    assert b"kind" in minter.expect(serial, REFUSED).bytes()
    assert harness.recv(10) == b""
    minter.end()


@test
def programs_take_back_at_the_end():
    """Also when everything else is dead: the end of egress is enough. A program that fails is told by name."""
    with tempfile.TemporaryDirectory() as folder:
        did = folder + "/did"
        program = '{"name":"%s","provider":{"kind":"exec","argv":["sh","-c","echo \'{\\"value\\":\\"VALUE-%s\\"}\'"],"revoke":["sh","-c","cat >>%s; exit %d"]}}'
        minter = Minter([program % ("good", "good", did, 0), program % ("bad", "bad", did, 1), program % ("unused", "unused", did, 0)])
        assert minter.value("good") == b"VALUE-good" and minter.value("bad") == b"VALUE-bad"
        assert minter.lists(minter.revoke("")) == [["good"], ["bad"]]
        assert minter.dropped == [("good", ASKED, ""), ("bad", ASKED, "its program failed")]
        assert minter.value("good") == b"VALUE-good"
        minter.end()
        lines = open(did).read().splitlines()
        assert ['"why":"%s"' % w in line for w, line in zip(("asked", "asked", "end"), lines)] == [True] * 3 and len(lines) == 3, lines
        assert '"value":"VALUE-good"' in lines[2] and "unused" not in "".join(lines)


@test
def a_harness_that_answers_late():
    """T13-3: who waited is refused; its value, when it comes, is for the next one."""
    if not os.environ.get("ABOX_TEST_LONG"):
        return    # the time that is waited is 25 s
    minter = Minter([CALLBACK, OTHER])
    harness = minter.served()
    signs, serial = minter.send(SIGN, text("other") + b"x"), minter.ask()
    question(harness, MAKE)
    number, _, _ = question(harness, MINT)
    assert sorted(minter.receive()[:2] for _ in range(2)) == [(REFUSED, signs), (REFUSED, serial)]
    answer(harness, VALUE, number, u64(0) + text("LATE"))
    assert minter.value() == b"LATE"
    harness.close()
    minter.end()


if __name__ == "__main__":
    run_all()
