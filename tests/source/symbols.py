#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Exported symbols, the version script and the public headers say the same, and each function is documented.

Usage: symbols.py SOURCE-ROOT SHARED-LIBRARY
"""
import re
import subprocess
import sys
from pathlib import Path

DECLARATION = re.compile(r"^ABOX_API\b[^;{]*?\b(abox_\w+)\s*\(", re.M | re.S)


def declared(headers):
    """name -> True when a comment stands above its block of declarations, or names it"""
    names = {}
    for header in headers:
        text = header.read_text()
        comments = " ".join(re.findall(r"/\*.*?\*/", text, re.S))
        for match in DECLARATION.finditer(text):
            before = text[:match.start()]
            # Declarations that follow one another share the comment above the first.
            while True:
                shorter = re.sub(r"ABOX_API\b[^;{]*;(?:[ \t]*/\*[^\n]*\*/)?\s*$", "", before, flags=re.S)
                if shorter == before:
                    break
                before = shorter
            named = re.search(r"\b" + match.group(1) + r"\(\)", comments) is not None
            names[match.group(1)] = named or before.rstrip().endswith("*/")
    return names


def main():
    root = Path(sys.argv[1])
    names = declared(sorted((root / "include/agentbox").glob("*.h")))
    script = re.findall(r"^\s*(abox_\w+);", (root / "lib/libagentbox.sym").read_text(), re.M)
    output = subprocess.run(["nm", "-D", "--defined-only", sys.argv[2]], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in output.splitlines() if " A " not in line}
    wrong = []
    wrong += [f"{name}: exported, but in no header" for name in sorted(exported - set(names))]
    wrong += [f"{name}: in a header, but not exported" for name in sorted(set(names) - exported)]
    wrong += [f"{name}: in libagentbox.sym, but not exported" for name in sorted(set(script) - exported)]
    wrong += [f"{name}: in libagentbox.sym twice" for name in sorted({n for n in script if script.count(n) > 1})]
    wrong += [f"{name}: not documented" for name in sorted(names) if not names[name]]
    wrong += [f"{name}: without the prefix" for name in sorted(exported) if not name.startswith("abox_")]
    if script != sorted(script):
        wrong.append("libagentbox.sym is not in alphabetical order")
    for line in wrong:
        print(line)
    print(f"{len(exported)} symbols, {len(wrong)} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
