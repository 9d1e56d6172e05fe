#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Checks a journal folder from its files alone, by lib/journal/README.md; needs nothing but Python.

verify_journal.py FOLDER    prints one line; exit status 0 whole, 1 damaged, 2 torn tail only
"""
import hashlib
import json
import os
import re
import sys

LINE = re.compile(rb'\{"seq":(\d+),"known":(\d+),"epoch":\d+,"time":\d+,"type":"([a-z0-9._-]{1,64})",.*'
                  rb',"prev":"([0-9a-f]{64})","hash":"([0-9a-f]{64})"\}', re.DOTALL)


class Damage(Exception):
    pass


def record(line):
    """(seq, known, type, prev, hash, body) of a line with the right hash, else None."""
    found = LINE.fullmatch(line)
    if not found or hashlib.sha256(line[:-75]).hexdigest() != found[5].decode():
        return None
    value = json.loads(line)
    if list(value)[-2:] != ["prev", "hash"] or not isinstance(value["body"], dict):
        return None
    return int(found[1]), int(found[2]), found[3].decode(), found[4].decode(), found[5].decode(), value["body"]


def lines(data):
    """Lines with their offsets; what is behind the last newline is not a line."""
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        yield at, data[at:end]
        at = end + 1


def claims(rest, seq):
    """Does any whole record in rest say that its writer knew seq to be durable?"""
    for _, line in lines(rest):
        for start in re.finditer(rb'\{"seq":', line.rpartition(b"\0")[2]):
            found = record(line.rpartition(b"\0")[2][start.start():])
            if found and found[1] >= seq:
                return True
    return False


def check(folder):
    numbers = sorted(int(name[:10]) for name in os.listdir(folder) if re.fullmatch(r"\d{10}\.log", name))
    if not numbers or numbers != list(range(numbers[0], numbers[-1] + 1)):
        raise Damage("segments are missing")
    seq = last = bytes_ = None
    pruned_before, torn, count = 0, 0, 0
    for number in numbers:
        with open(os.path.join(folder, "%010d.log" % number), "rb") as file:
            data = file.read()
        end, closed = 0, False
        for at, line in lines(data):
            found = record(line)
            if not found or closed:
                break
            if at == 0:
                head = found[5]
                if found[2] != "journal.open" or head["segment"] != number:
                    raise Damage("segment %d has no head" % number)
                if seq is not None and head["sealed"] != {"segment": number - 1, "bytes": bytes_, "seq": seq, "hash": last}:
                    raise Damage("the seal of segment %d does not fit" % (number - 1))
            if seq is not None and (found[0] != seq + 1 or found[3] != last):
                break
            if seq is None and number == 1 and (found[0] != 1 or found[3] != "0" * 64):
                break
            seq, last, end, count = found[0], found[4], at + len(line) + 1, count + 1
            closed = found[2] == "journal.rotate"
            if found[2] == "journal.pruned":
                pruned_before = max(pruned_before, found[5]["before_segment"])
        if seq is None or end == 0:
            raise Damage("segment %d has no head" % number)
        rest = data[end:]
        if closed and rest.strip(b"\0"):
            raise Damage("bytes behind the end of segment %d" % number)
        if not closed and number != numbers[-1]:
            raise Damage("record %d in segment %d" % (seq + 1, number))
        if not closed and claims(rest, seq + 1):
            raise Damage("record %d in segment %d" % (seq + 1, number))
        torn = 0 if closed else len(rest.strip(b"\0"))
        bytes_ = end
    if numbers[0] > 1 and pruned_before < numbers[0]:
        raise Damage("segments before %d are missing" % numbers[0])
    return count, seq, last, torn


def main():
    try:
        count, seq, last, torn = check(sys.argv[1])
    except Damage as damage:
        print("damaged: %s" % damage)
        return 1
    print("%d records, last %d %s%s" % (count, seq, last, ", torn tail of %d bytes" % torn if torn else ""))
    return 2 if torn else 0


if __name__ == "__main__":
    sys.exit(main())
