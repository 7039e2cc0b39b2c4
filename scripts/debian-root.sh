# Functions of the scripts that make a tree of Debian 12 with mmdebstrap, or run commands in one. They are sourced.

# The lines of Debian 12 alone, of all that apt is configured with, for the sources.list of the tree.
debian_sources() {
    apt-get indextargets --format '$(SIGNED_BY) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        sed -n -e 's#^\(/[^ ]*\) \(.* bookworm\(-updates\|-security\)\{0,1\} main\)$#deb [signed-by=\1] \2#p' \
            -e 's#^[^/ ]* \(.* bookworm\(-updates\|-security\)\{0,1\} main\)$#deb \1#p' | sort -u
}

# How apt of this machine reaches its registry: proxies and certificates.
write_apt_configuration() { # file with the certificates of this machine, its path in the tree
    apt-config dump | grep -E '^Acquire::(https?|Check-[A-Za-z-]*|Languages|Retries|ForceIPv[46])(::| )' |
        grep -v ' "";$' || true
    echo 'Acquire::Retries "3";'
    [ ! -f "$1" ] || echo "Acquire::https::CAInfo \"$2\";"
}

# A new network has a loopback interface, which is off. No program that a minimal system has switches it on.
switch_loopback_on() {
    python3 -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14s", b"lo", 65, b""))' # SIOCSIFFLAGS: IFF_UP and IFF_RUNNING
}
