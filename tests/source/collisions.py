#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""No two messages of a protocol have one number, and no two flags of a set share a bit.

Lines that are added at two places of an enum merge without a conflict. Of sets of bits, a name for all of them
(..._ALL) stands for others and is none itself; so does a name whose value is another name of the same enum.

Usage: collisions.py SOURCE-ROOT
"""
import re
import sys
from pathlib import Path

HEADERS = ["lib/keeper/wire.h", "lib/guest/wire.h", "lib/egress/wire.h", "lib/recorder/wire.h", "lib/credential/wire.h",
           "lib/file/wire.h", "lib/plan/flat.h"]
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
ENUM = re.compile(r"\benum\s*(\w*)\s*\{(.*?)\}", re.S)
BIT = re.compile(r"1[uU]?\s*<<\s*(\d+)")
NUMBER = re.compile(r"(?:0[xX][0-9a-fA-F]+|\d+)[uU]?")


def collisions(text):
    """Number of names that were looked at, and what is wrong with them."""
    n_names, wrong = 0, []
    for enum, body in ENUM.findall(COMMENT.sub(" ", text)):
        taken, names, following = {}, {}, 0
        for entry in filter(None, (part.strip() for part in body.split(","))):
            name, _, value = (part.strip() for part in entry.partition("="))
            n_names += 1
            if name in names:
                wrong.append(f"{enum}: {name} stands there twice")
            names[name] = names.get(value)
            if name.endswith("_ALL"):
                continue
            if value in names:
                following = names[value] + 1
                continue
            if not value:
                number = following
            elif bit := BIT.fullmatch(value):
                number = 1 << int(bit[1])
            elif NUMBER.fullmatch(value):
                number = int(value.rstrip("uU"), 0)
            else:
                wrong.append(f"{enum}: {name} = {value} is no number and no bit")
                continue
            names[name], following = number, number + 1
            if number in taken:
                wrong.append(f"{enum}: {name} and {taken[number]} are both {number}")
            taken[number] = name
    return n_names, wrong


def main():
    # what it is there for, it sees
    for text in ("enum a { X = 1, Y = 2, /* */ Z = 1, };", "enum { X = 1 << 3, Y = 1 << 4, Z = 1 << 3 };",
                 "enum { X = 1 << 1, Y = 2 };", "enum a { X, Y, Z = 1 };", "enum a { X = 1, X = 2 };", "enum { X = Y | Z };"):
        if len(collisions(text)[1]) != 1:
            sys.exit(f"not seen: {text}")
    failed = False
    for header in HEADERS:
        n_names, wrong = collisions((Path(sys.argv[1]) / header).read_text())
        for line in wrong:
            print(f"{header}: {line}")
        print(f"{header}: {n_names} names, {len(wrong)} wrong")
        failed = failed or bool(wrong) or n_names < 5
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
