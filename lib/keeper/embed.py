# SPDX-License-Identifier: LGPL-2.1-or-later
"""Writes the assembly that carries the helper programs: embed.py OUTPUT NAME=PROGRAM ..."""
import os
import sys


def main():
    images = [argument.split("=", 1) for argument in sys.argv[2:]]
    lines = ["/* made by lib/keeper/embed.py */"]
    for name, path in images:
        path = os.path.abspath(path).replace("\\", "\\\\").replace('"', '\\"')
        lines += ["\t.section .rodata", "\t.balign 16", f".Ldata_{name}:", f'\t.incbin "{path}"', f".Lend_{name}:",
                  f".Lname_{name}:", f'\t.asciz "{name}"']
    lines += ["\t.section .data.rel.ro, \"aw\"", "\t.balign 8", "\t.globl helper_images", "\t.hidden helper_images",
              "helper_images:"]
    for name, _ in images:
        lines += [f"\t.8byte .Lname_{name}", f"\t.8byte .Ldata_{name}", f"\t.8byte .Lend_{name} - .Ldata_{name}"]
    lines += ["\t.section .rodata", "\t.balign 8", "\t.globl helper_n_images", "\t.hidden helper_n_images",
              "helper_n_images:", f"\t.8byte {len(images)}", '\t.section .note.GNU-stack, "", %progbits', ""]
    with open(sys.argv[1], "w", encoding="utf-8") as output:
        output.write("\n".join(lines))


main()
