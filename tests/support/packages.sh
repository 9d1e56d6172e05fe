# SPDX-License-Identifier: LGPL-2.1-or-later
# Packages of Debian and Ubuntu that build and tests need. Sourced by tests/run and examples/quickstart.

build_packages="gcc meson ninja-build pkg-config musl-tools linux-libc-dev libc6-dev libseccomp-dev libcap-dev
	zlib1g-dev libjansson-dev libssl-dev"
test_packages="libcriterion-dev clang python3 strace git make util-linux binutils bubblewrap crun uidmap"

# Programs that rows of the tests run, and the package to take where none of that name is there.
test_programs="spin:spin zsh:zsh node:nodejs java:default-jre-headless chromium:chromium"

missing_programs() {
	for pair in "$@"; do
		command -v "${pair%%:*}" >/dev/null || printf '%s ' "${pair#*:}"
	done
}

missing_packages() {
	for package in "$@"; do
		dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed' || printf '%s ' "$package"
	done
}

# install_packages [build]: what is missing, when we may; else says what to install.
install_packages() {
	command -v dpkg-query >/dev/null || return 0
	wanted=$build_packages
	[ "${1:-}" = build ] || wanted="$wanted $test_packages"
	missing=$(missing_packages $wanted)
	[ "${1:-}" = build ] || missing="$missing$(missing_programs $test_programs)"
	[ -n "$missing" ] || return 0
	if [ "$(id -u)" != 0 ]; then
		echo "missing packages: $missing" >&2
		echo "install them with: apt-get install $missing" >&2
		return 0
	fi
	echo "== install $missing"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q >/dev/null || true
	apt-get install -q -y --no-install-recommends $missing >/dev/null
}
