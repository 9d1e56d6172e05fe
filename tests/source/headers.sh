#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Each public header compiles alone, as C99 and as C++, and all of them together.
# Usage: headers.sh SOURCE-ROOT
set -u
root=$1
cc=${CC:-cc}
cxx=
for candidate in g++ clang++ c++; do
	command -v "$candidate" >/dev/null && { cxx=$candidate; break; }
done
failed=0
check() {
	printf '%s\n' "$1" | $cc -std=c99 -pedantic-errors -Wall -Wextra -Werror -I"$root/include" -fsyntax-only -xc - ||
		{ echo "not C99: $1"; failed=1; }
	[ -z "$cxx" ] || printf '%s\n' "$1" | $cxx -std=c++11 -pedantic-errors -Wall -Wextra -Werror -I"$root/include" -fsyntax-only -xc++ - ||
		{ echo "not C++: $1"; failed=1; }
}
all=
for header in "$root"/include/agentbox/*.h; do
	line="#include <agentbox/$(basename "$header")>"
	check "$line"
	all="$all
$line"
	grep -q "agentbox/$(basename "$header")>" "$root/include/agentbox/agentbox.h" || [ "$(basename "$header")" = agentbox.h ] ||
		{ echo "agentbox.h does not include $(basename "$header")"; failed=1; }
	grep -q "$(basename "$header")" "$root/include/agentbox/meson.build" ||
		{ echo "$(basename "$header") is not installed"; failed=1; }
done
check "$all"
grep -n -E '\b(bool|off_t)\b' "$root"/include/agentbox/*.h | grep -v '^\S*:\s*[0-9]*:\s*\*' | grep -v '/\*' && failed=1
[ -n "$cxx" ] || echo "no C++ compiler: the C++ half was not tried"
exit $failed
