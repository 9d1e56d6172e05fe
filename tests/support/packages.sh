# SPDX-License-Identifier: LGPL-2.1-or-later
# Packages of Debian and Ubuntu that build and tests need. Sourced by tests/run and examples/quickstart.

build_packages="gcc meson ninja-build pkg-config musl-tools linux-libc-dev libc6-dev libseccomp-dev libcap-dev
	zlib1g-dev libjansson-dev libssl-dev"
test_packages="libcriterion-dev clang curl iproute2 openssl python3 strace git make util-linux binutils bubblewrap crun uidmap e2fsprogs"
if [ "$(uname -m)" = x86_64 ]; then
	test_packages="$test_packages qemu-system-x86 kmod"
	# of its own since QEMU 8
	apt-cache show virtiofsd >/dev/null 2>&1 && test_packages="$test_packages virtiofsd"
fi

# Programs that rows of the tests run, and the package to take where none of that name is there.
test_programs="spin:spin zsh:zsh node:nodejs java:default-jre-headless chromium:chromium runsc:runsc"

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

# find_kernel FOLDER: a kernel for the machines of the tests, named by ABOX_KERNEL. Where /boot has none, Debian's for cloud
# machines is unpacked into the folder, not installed: no boot loader hears of it.
find_kernel() {
	[ -z "${ABOX_KERNEL:-}" ] && ! ls /boot/vmlinuz-* >/dev/null 2>&1 && [ "$(uname -m)" = x86_64 ] || return 0
	if ! ls "$1"/boot/vmlinuz-* >/dev/null 2>&1; then
		package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -1)
		[ -n "$package" ] || return 0
		echo "== unpack $package"
		mkdir -p "$1"
		(cd "$1" && apt-get download -q "$package" >/dev/null && dpkg-deb -x "$package"_*.deb . && rm -f "$package"_*.deb &&
			depmod -b . "${package#linux-image-}") 2>/dev/null || return 0
	fi
	for kernel in "$1"/boot/vmlinuz-*; do
		[ -e "$kernel" ] && export ABOX_KERNEL="$kernel"
	done
}
