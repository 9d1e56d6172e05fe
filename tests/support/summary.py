#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Counts the tests in meson's logs, one by one: rows of TAP, tests of criterion, else the program as one.

Usage: summary.py BROKEN-BUILDS testlog.json...
Ends with "N passed, N failed, N skipped"; exit code 1 when something failed.
"""
import json
import re
import sys

SYNTHESIS = re.compile(r"Synthesis: Tested: .*?(\d+).*?Passing: .*?(\d+).*?Failing: .*?(\d+).*?Crashing: .*?(\d+)")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def count(test):
    """(passed, failed, skipped, names of failed ones)"""
    output = COLOUR.sub("", (test.get("stdout") or "") + "\n" + (test.get("stderr") or ""))
    result = test["result"]
    synthesis = SYNTHESIS.search(output)
    if synthesis:
        _, passing, failing, crashing = (int(n) for n in synthesis.groups())
        skipped = len(re.findall(r"^\[SKIP\]", output, re.M))
        failed = failing + crashing
        if result not in ("OK", "EXPECTEDFAIL") and failed == 0:
            failed = 1
        names = re.findall(r"^\[FAIL\] (\S+?):? ", output, re.M) or ([test["name"]] if failed else [])
        return passing, failed, skipped, names
    rows = re.findall(r"^(ok|not ok) \d+(?: - (\S+))?([^\n]*)$", output, re.M)
    if rows:
        skipped = [r for r in rows if "# SKIP" in r[2]]
        failed = [r[1] for r in rows if r[0] == "not ok"]
        if result not in ("OK", "EXPECTEDFAIL", "SKIP") and not failed:
            failed = [test["name"]]
        passed = len(rows) - len(skipped) - len([r for r in rows if r[0] == "not ok"])
        return passed, len(failed), len(skipped), failed
    if result == "SKIP":
        return 0, 0, 1, []
    if result in ("OK", "EXPECTEDFAIL"):
        return 1, 0, 0, []
    return 0, 1, 0, [test["name"]]


def main():
    passed = skipped = 0
    failed = int(sys.argv[1])
    if failed:
        print(f"{failed} builds are broken")
    for path in sys.argv[2:]:
        with open(path, encoding="utf-8", errors="replace") as log:
            for line in log:
                test = json.loads(line)
                p, f, s, names = count(test)
                passed, failed, skipped = passed + p, failed + f, skipped + s
                for name in names:
                    print(f"failed: {path.rsplit('/', 1)[-1][:-5]}: {test['name']}: {name}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
