#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Includes point one way: the table in lib/README.md is the rule, every file below lib/ is held against it.

Usage: include_direction.py SOURCE-ROOT
"""
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def read_table(readme):
    text = readme.read_text()
    section = text.split("<!-- include-direction -->")[1].split("<!-- end -->")[0]
    table = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 2 and cells[0].startswith("`"):
            table[cells[0].strip("`")] = re.findall(r"`([^`]+)`", cells[1])
    return table


def allowed(folder, included, rules):
    if included == folder or included.startswith(folder + "/"):
        return True
    for rule in rules:
        if rule.endswith(".h"):
            if included == rule:
                return True
        elif included.rsplit("/", 1)[0] == rule:
            return True
    return False


def main():
    root = Path(sys.argv[1])
    lib = root / "lib"
    table = read_table(lib / "README.md")
    wrong = []
    seen = set()
    for path in sorted(lib.rglob("*.[chS]")):
        folder = path.parent.relative_to(lib).as_posix()
        if folder == ".":
            continue
        seen.add(folder)
        if folder not in table:
            wrong.append(f"{path.relative_to(root)}: folder {folder} has no row in lib/README.md")
            continue
        for included in INCLUDE.findall(path.read_text(errors="replace")):
            if "/" not in included and (path.parent / included).exists():
                continue
            if not (lib / included).exists():
                continue    # generated, or a header of the system
            if not allowed(folder, included, table[folder]):
                wrong.append(f"{path.relative_to(root)} includes {included}")
    for line in wrong:
        print(line)
    print(f"{len(seen)} folders, {len(wrong)} includes against the direction")
    return 1 if wrong or len(seen) < 5 else 0


if __name__ == "__main__":
    sys.exit(main())
