#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Sources hold no path of the machine they were written on, no host of a package registry, no unfinished business, and
each file says its licence.

Usage: words.py SOURCE-ROOT
"""
import re
import subprocess
import sys
from pathlib import Path

# Put together here, so that this file does not hold them itself.
WORDS = [
    "/wo" + "rk/", "TO" + "DO", "FIX" + "ME", "\\bXX" + r"X\b", "pypi" + r"\.org", "registry\\." + "npmjs", "crates" + r"\.io",
    "proxy\\." + "golang", "co-authored" + "-by", "generated " + "by an", "language " + "model",
]
PATTERN = re.compile("|".join(WORDS), re.I)
TEXT = {".c", ".h", ".py", ".sh", ".md", ".json", ".build", ".txt", ".sym", ".list", ".pml", ""}
LICENSED = {".c", ".h", ".py", ".sh"}


def files(root):
    listed = subprocess.run(["git", "-C", str(root), "ls-files"], capture_output=True, text=True)
    if listed.returncode == 0:
        return [root / name for name in listed.stdout.splitlines()]
    return [path for path in root.rglob("*") if path.is_file() and not any(part.startswith("build") for part in path.relative_to(root).parts[:-1])]


def main():
    root = Path(sys.argv[1])
    wrong = []
    for path in files(root):
        if path.suffix not in TEXT or path.name == "COPYING" or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if PATTERN.search(line) and "corpus" not in path.parts:
                wrong.append(f"{path.relative_to(root)}:{number}: {line.strip()[:100]}")
        if path.suffix in LICENSED and "SPDX-License-Identifier: LGPL-2.1-or-later" not in text[:400]:
            wrong.append(f"{path.relative_to(root)}: no licence line")
        if path.suffix in {".c", ".h"} and text.count("\n") > 900:
            wrong.append(f"{path.relative_to(root)}: {text.count(chr(10))} lines, more than 900")
    for line in wrong:
        print(line)
    print(f"{len(wrong)} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
