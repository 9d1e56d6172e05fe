# SPDX-License-Identifier: LGPL-2.1-or-later
"""Egress in one run, with ratios to the same client and server without it: connect and one request, round trips on a kept
connection, and throughput. The client is Python in both, so figures of connecting hold its own cost too; throughput is measured by
OpenSSL and the kernel on every side.

Usage: unshare -Urmn bench-egress.py EGRESS PACK-RULES [MIB]
"""
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../egress"))
from support import *

PROGRAM, PACKER = sys.argv[1:3]
MIB = int(sys.argv[3]) if len(sys.argv) > 3 else 256
ROUNDS, ADDRESS = 60, "9.9.9.1"
BLOCK = bytes(1 << 18)


def serve(sock):
    buffer = b""
    while True:
        head, buffer = read_head(sock, buffer)
        if head is None:
            return
        if head.startswith(b"GET /big"):
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MIB << 20))
            for _ in range(MIB << 2):
                sock.sendall(BLOCK)
        else:
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def request(sock, path):
    sock.sendall(b"GET %s HTTP/1.1\r\nHost: good.example\r\n\r\n" % path)
    buffer = bytearray()
    while b"\r\n\r\n" not in buffer:
        buffer += sock.recv(65536)
    left = (2 if path == b"/" else MIB << 20) - (len(buffer) - buffer.index(b"\r\n\r\n") - 4)
    room = bytearray(1 << 20)
    while left > 0:
        left -= sock.recv_into(room)


def measure(connect, pem):
    context, connecting, trips = client_context(pem), [], []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        bare = connect()
        bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(bare, server_hostname="good.example") as sock:
            request(sock, b"/")
            connecting.append(time.perf_counter() - begin)
            for _ in range(20):
                begin = time.perf_counter()
                request(sock, b"/")
                trips.append(time.perf_counter() - begin)
    with context.wrap_socket(connect(), server_hostname="good.example") as sock:
        begin = time.perf_counter()
        request(sock, b"/big")
        big = time.perf_counter() - begin
    return statistics.median(connecting), statistics.median(trips), big


host = Host([("good.example", ADDRESS)])
Server("0.0.0.0", 443, serve, server_context(*host.authority.leaf("server", ["good.example"])))
box = Box()
rows = {"direct": lambda: measure(lambda: socket.create_connection((ADDRESS, 443)), host.authority.pem)}


def through(network):
    def run():
        inner = Box()
        egress = Egress(PROGRAM, PACKER, inner, {"version": 1, "network": network}, host.authority.pem, ports=(443,))
        address = inner.resolve("good.example")
        inspected = "paths" in network["allow"][0]
        figures = measure(lambda: inner.connect(address, 443), egress.ca if inspected else host.authority.pem)
        egress.close()
        inner.close()
        return figures
    return run


rows["pass-through"] = through({"mode": "allow", "allow": [{"host": "good.example"}]})
rows["inspected"] = through({"mode": "allow", "allow": [{"host": "good.example", "paths": ["/**"]}]})
best = {}
for _ in range(3):    # by turns: the load of the machine wanders
    for name, run in rows.items():
        figures = run()
        best[name] = [min(pair) for pair in zip(best.get(name, figures), figures)]
print(f"{'':14}{'connect + request':>24}{'round trip':>20}{MIB:>12} MiB")
for name, (connecting, trip, big) in best.items():
    base = best["direct"]
    print(f"{name:14}{connecting * 1e6:12.0f} us {connecting / base[0]:6.2f}x {trip * 1e6:9.0f} us {trip / base[1]:5.2f}x"
          f" {MIB / 1024 / big:8.2f} GiB/s {base[2] / big:5.2f}x")
sys.stdout.flush()
shutil.rmtree(host.folder, ignore_errors=True)
os._exit(0)
