#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""walls.py AGENTBOX README [--write]: the table of the README that says by what each wall keeps each promise, made from the plans of
this host. Compares it with what stands between the marks there, or writes it. 77: a wall is not usable here, the host lacks something, or this
is not root."""
import json
import os
import re
import subprocess
import sys

WALLS = ["namespaces", "gvisor", "microvm"]
BEGIN, END = "<!-- walls -->\n", "<!-- end -->\n"
# what differs between walls; the rest is kept by the keeper and the library, the same behind each
RULES = ["filesystem", "processes", "capabilities", "seccomp", "landlock", "network", "command.tree", "pause", "limits.memory",
         "limits.cpus", "limits.pids", "limits.disk", "limits.open_files"]


def plan_of(agentbox, wall):
    done = subprocess.run([agentbox, "plan", "--json", "--backend", wall, "--cpus", "1"], capture_output=True, text=True)
    if done.returncode:
        print(f"{wall}: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(77)
    return {rule["name"]: rule for rule in json.loads(done.stdout)["enforcement"]}


def cell(rule):
    if not rule:
        return "-"
    text = rule["by"] if rule["status"].startswith("enforced") else f"{rule['status']}: {rule['by']}"
    text = re.sub(r"gVisor [0-9a-z.~-]+ \([a-z]+\)", "gVisor", text)    # releases and versions of one host
    text = re.sub(r"cgroup v[12]", "cgroup", text)
    return text.replace("|", "\\|")


def main():
    agentbox, readme = sys.argv[1:3]
    if os.geteuid() != 0:
        sys.exit(77)
    plans = {wall: plan_of(agentbox, wall) for wall in WALLS}
    if any(not rule["status"].startswith("enforced") for rule in plans["namespaces"].values()) or \
            "scope" not in plans["namespaces"]["command.tree"]["by"]:
        sys.exit(77)    # the table is that of a host that can do everything
    lines = ["| rule, for root | " + " | ".join(f"`{wall}`" for wall in WALLS) + " |", "|---" * (len(WALLS) + 1) + "|"]
    lines += [f"| `{rule}` | " + " | ".join(cell(plans[wall].get(rule)) for wall in WALLS) + " |" for rule in RULES]
    table = "\n".join(lines) + "\n"
    text = open(readme, encoding="utf-8").read()
    at = text.index(BEGIN) + len(BEGIN)
    to = text.index(END, at)
    if "--write" in sys.argv:
        open(readme, "w", encoding="utf-8").write(text[:at] + table + text[to:])
    elif text[at:to] != table:
        print(f"the table of walls is not what the plans say; run {sys.argv[0]} {agentbox} {readme} --write\n{table}")
        sys.exit(1)


main()
