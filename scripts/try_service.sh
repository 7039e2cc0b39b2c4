#!/usr/bin/env bash
# Tries the Debian package as a service: in a virtual machine with Debian 12, its kernel and systemd.
#   scripts/try_service.sh              the service, its user, the limits of control groups, kill -9, a restart
#   scripts/try_service.sh --cuts N     N power cuts besides: the machine is killed while a client makes steps of a model
#                                       with durability: power; then it boots, and no answered step may be missing
#   --kvm as the first word             with the processor's virtualization, for machines where that works
# Prints what was tried and ends with 1 if something is not as it should be. scripts/try_service.py runs in the machine.
# Needs the package in build/ (scripts/package.sh), root's rights, qemu-system-x86, and the package registry that apt is
# configured with. Without --kvm it takes some minutes. Exit 77: it could not be tried, and the last line says why.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/empty-root.sh
keep= cached=1 ccache_dir= source=/mnt cache=${XDG_CACHE_HOME:-$HOME/.cache}/continuo cuts=0 machine= kvm=
[ "${1:-}" != --kvm ] || { kvm=1; shift; }
case ${1:-} in
-h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
--cuts) cuts=${2:?--cuts needs a number} ;;
'') ;;
*) echo "scripts/try_service.sh: unknown argument $1 (--help lists the options)" >&2; exit 2 ;;
esac

say() { echo "try: $*"; }
skip() {
    echo "try: not tried: $*"
    exit 77
}
stop_machine() {
    [ -z "$machine" ] || kill -KILL "$machine" 2>/dev/null || true
    [ -z "$machine" ] || wait "$machine" 2>/dev/null || true
    machine=
}

# The tree of the machine's disk: Debian, kernel, systemd, the package with two models, and the trial as a service.
prepare() {
    local deb
    deb=$(ls -t build/continuo_*.deb 2>/dev/null | head -n 1 || true)
    [ -n "$deb" ] || skip "there is no package in build/ (scripts/package.sh)"
    command -v qemu-system-x86_64 >/dev/null || skip "there is no qemu-system-x86_64 (apt-get install qemu-system-x86)"
    find_tools
    make_work_folder service
    trap 'stop_machine; cleanup' EXIT
    trap 'exit 130' INT TERM HUP
    make_empty_root
    configure_root
    cp "$deb" "$root/mnt/continuo.deb"
    cp scripts/try_service.py examples/counter/handler.lua "$root/mnt/"
    say "apt-get install of a kernel, systemd and the package"
    quietly apt-get -qq update
    quietly env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
        linux-image-amd64 systemd-sysv udev initramfs-tools python3 /mnt/continuo.deb
    offline=1 quietly python3 /mnt/try_service.py prepare
    cat >"$root/etc/systemd/system/trial@.service" <<'UNIT'
[Unit]
Wants=continuo.service
After=continuo.service
[Service]
Type=oneshot
ExecStart=/usr/bin/python3 /mnt/try_service.py %I
ExecStopPost=/usr/bin/systemctl --no-block poweroff
StandardOutput=file:/dev/ttyS1
StandardError=inherit
TimeoutStartSec=1800
UNIT
    echo '/dev/vda / ext4 errors=remount-ro 0 1' >"$root/etc/fstab"
    cp "$root"/boot/vmlinuz-* "$work/vmlinuz"
    cp "$root"/boot/initrd.img-* "$work/initrd"
    mke2fs -q -t ext4 -d "$root" "$work/disk" 3G
}

# Boots the machine with a trial. What the trial prints is in $work/told.
boot() { # name of the trial
    local processor=(-accel tcg -cpu max)
    [ -z "$kvm" ] || processor=(-enable-kvm -cpu host)
    : >"$work/told"
    qemu-system-x86_64 "${processor[@]}" -smp 2 -m 1536 -nodefaults -no-reboot -display none -net none \
        -kernel "$work/vmlinuz" -initrd "$work/initrd" -drive "file=$work/disk,format=raw,if=virtio,cache=writeback" \
        -append "panic=-1 root=/dev/vda rw console=ttyS0 systemd.show_status=0 quiet systemd.wants=trial@$1.service" \
        -serial "file:$work/console" -serial "file:$work/told" >"$work/qemu" 2>&1 </dev/null &
    machine=$!
}

wait_for_end() {
    local rc=0 i
    for ((i = 0; i < 36000; i++)); do
        kill -0 "$machine" 2>/dev/null || break
        sleep 0.1
    done
    if kill -0 "$machine" 2>/dev/null; then
        tail -n 40 "$work/console"
        say "the machine did not end within an hour"
        exit 1
    fi
    wait "$machine" || rc=$?
    machine=
    [ $rc = 0 ] || { cat "$work/qemu"; tail -n 30 "$work/console"; exit 1; }
}

try_once() { # name of the trial
    boot "$1"
    wait_for_end
    tr -d '\r' <"$work/told" | grep '^try: ' || true
    grep -q '^try: all is well' "$work/told" || { tr -d '\r' <"$work/told"; tail -n 40 "$work/console"; exit 1; }
}

# Waits until the client in the machine has had some answers, and cuts the power a little later. Sets `answered`.
cut_power() {
    local i
    for ((i = 0; i < 6000; i++)); do
        ! grep -q '^done [0-9]*5' "$work/told" || break
        kill -0 "$machine" 2>/dev/null || { tail -n 40 "$work/console"; exit 1; }
        sleep 0.1
    done
    sleep "$((RANDOM % 3)).$(printf %03d $((RANDOM % 1000)))"
    stop_machine
    answered=$(sed -n 's/^done \([0-9]*\)\r$/\1/p' "$work/told" | tail -n 1) # a line that is not whole has no \r
}

prepare
try_once service
for ((cut = 1; cut <= cuts; cut++)); do
    boot steps
    cut_power
    boot look
    wait_for_end
    found=$(tr -d '\r' <"$work/told" | sed -n 's/^found \([0-9]*\)$/\1/p')
    say "power cut $cut: $answered steps were answered, the store has ${found:-nothing}"
    # One more may be committed and not answered, and the last answers may not have reached us.
    [ -n "$answered" ] && [ -n "$found" ] && [ "$found" -ge "$answered" ] && [ "$found" -le $((answered + 3)) ] || { cat "$work/told"; exit 1; }
done
