# Functions of scripts/fresh.sh and scripts/image.sh, which make a tree of Debian 12 with mmdebstrap. They are sourced.

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
