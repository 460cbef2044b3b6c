#!/bin/sh
# Make a folder that holds Python 3.11 for aarch64 and wheels, for QEMU's user mode emulation to run:
#
#     aarch64.sh FOLDER PYTHON REQUIREMENT...
#
# PYTHON: an interpreter here that has pip. On Debian and its kin, as root or with sudo, and with a network; what is
# missing of QEMU and debootstrap is installed by apt-get. The folder appears when it is complete. A quarter of a
# gigabyte is fetched.
set -eu

folder=$1
python=$2
shift 2
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}

say() { echo "aarch64: $*" >&2; }

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo --non-interactive "$@"; fi
}

missing=
command -v qemu-aarch64-static >/dev/null || missing="$missing qemu-user-static"
command -v debootstrap >/dev/null || missing="$missing debootstrap"
if ! as_root true; then
	say "only root, or who may use sudo, can unpack a Debian system here"
	exit 1
fi
if [ -n "$missing" ]; then
	say "installing$missing"
	as_root apt-get update -qq
	# shellcheck disable=SC2086 # one word for each package
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >&2
fi

mkdir -p "$(dirname "$folder")"
unfinished=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$unfinished"' EXIT

say "fetching Debian and Python"
as_root debootstrap --foreign --arch=arm64 --variant=minbase --include=python3.11 bookworm "$unfinished/root" "$mirror" >&2
as_root chown -R "$(id -u):$(id -g)" "$unfinished/root"
# The second stage would run programs of the other processor as root, to set up a system that nobody logs in to.
for package in "$unfinished"/root/var/cache/apt/archives/*.deb; do
	dpkg -x "$package" "$unfinished/root"
done
rm -rf "$unfinished/root/var/cache" "$unfinished/root/dev"

say "fetching $*"
"$python" -m pip download --quiet --disable-pip-version-check --dest "$unfinished/wheels" --no-deps \
	--only-binary=:all: --implementation cp --python-version 3.11 \
	--platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 "$@" >&2
for wheel in "$unfinished"/wheels/*.whl; do
	"$python" -m zipfile -e "$wheel" "$unfinished/packages"
done
rm -rf "$unfinished/wheels"

chmod 755 "$unfinished"
mv "$unfinished" "$folder"
trap - EXIT
say "ready in $folder"
