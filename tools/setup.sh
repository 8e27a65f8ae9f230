#!/bin/sh
# Set up a developer's machine: system packages here, everything else in tools/setup.py. `make setup` runs this script.
#
# A package is installed only if its command is missing: by apt, as root or through `sudo -n`. Without these, the script
# lists the missing packages and stops. PYTHON=/path/to/python3.12 chooses another Python.
set -eu
cd "$(dirname "$0")/.."

# Required commands, and their packages in Debian and Ubuntu.
needed='
c++:g++
make:make
git:git
ssh-keygen:openssh-client
sshd:openssh-server
nft:nftables
ip:iproute2
ps:procps
mount:mount
nsenter:util-linux
setsid:util-linux
curl:curl
mmdebstrap:mmdebstrap
bindfs:bindfs
'
PATH=$PATH:/usr/sbin:/sbin

# The embedded cloud's nodes see this machine's files except home directories, so Python must not be in a home directory.
find_python() {
    fits='import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
    for candidate in ${PYTHON:-} /usr/bin/python3.11 /usr/bin/python3.12 /usr/bin/python3.13 \
        /usr/local/bin/python3.11 /usr/local/bin/python3.12 /usr/local/bin/python3.13; do
        if [ -x "$candidate" ] && "$candidate" -c "$fits" 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

missing_packages() {
    for pair in $needed; do
        command -v "${pair%%:*}" >/dev/null || echo "${pair#*:}"
    done | sort -u
}

# Print the packages of the distribution's latest supported Python; nothing if it has none.
python_packages() {
    for version in 3.13 3.12 3.11; do
        if apt-cache show "python$version-venv" >/dev/null 2>&1; then
            echo "python$version python$version-venv"
            return
        fi
    done
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

# Run a command with its output in a log; print the end of the log if the command fails.
logged() {
    echo "\$ $*" >>.setup/logs/apt.log
    if ! "$@" >>.setup/logs/apt.log 2>&1; then
        tail -n 20 .setup/logs/apt.log >&2
        echo "set-up failed: apt-get, see $(pwd)/.setup/logs/apt.log" >&2
        exit 1
    fi
}

install() {
    # Only the program sshd is needed, for the embedded cloud's nodes, not a service on this machine. Debian starts and
    # enables a service when its package is installed, unless this policy forbids it (101).
    policy=/usr/sbin/policy-rc.d
    if [ -e "$policy" ]; then policy=; fi
    had_sshd=$(command -v sshd || true)
    if [ -n "$policy" ]; then
        trap 'as_root rm -f "$policy"' EXIT
        trap 'exit 130' INT TERM
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
    fi
    logged as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet \
        --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
    if [ -z "$had_sshd" ] && [ -d /run/systemd/system ]; then
        as_root systemctl disable --quiet ssh.service ssh.socket 2>/dev/null || true
    fi
    if [ -n "$policy" ]; then
        as_root rm -f "$policy"
        trap - EXIT INT TERM
    fi
}

packages=$(missing_packages)
# For the tests of the dashboard. Ubuntu has it only as a snap. There, and without root, these tests are skipped.
if ! command -v chromium >/dev/null && grep -qs '^ID=debian' /etc/os-release && as_root true 2>/dev/null; then
    packages="$packages chromium"
fi
python=$(find_python)
if [ -n "$packages" ] || [ -z "$python" ]; then
    started=$(date +%s)
    # One line, so that users can copy the commands below.
    # shellcheck disable=SC2086,SC2116 # the words of the list, one blank between them
    packages=$(echo $packages)
    lacking=
    if [ -z "$python" ]; then lacking=' python3 python3-venv'; fi
    if ! command -v apt-get >/dev/null; then
        echo "Missing: $packages$lacking (Debian's names; Python 3.11, 3.12 or 3.13)." >&2
        echo "apt-get was not found. Install the packages with the system's package manager and run 'make setup' again." >&2
        exit 1
    fi
    if [ "$(id -u)" -ne 0 ] && ! sudo -n true 2>/dev/null; then
        echo "System packages are missing, and installing them needs root, or sudo without a password. Install them:" >&2
        echo "    sudo apt-get update && sudo apt-get install $packages$lacking" >&2
        echo "and run 'make setup' again." >&2
        exit 1
    fi
    mkdir -p .setup/logs
    logged as_root apt-get update --quiet
    if [ -z "$python" ]; then
        packages="$packages $(python_packages)"
    fi
    echo "system packages    ... $packages"
    # shellcheck disable=SC2086 # a list of words
    install $packages
    python=$(find_python)
    if [ -z "$python" ]; then
        echo "This distribution has no Python 3.11, 3.12 or 3.13. Install one outside of your home directory, and run:" >&2
        echo "    make setup PYTHON=/usr/local/bin/python3.12" >&2
        exit 1
    fi
    echo "system packages    $(($(date +%s) - started)) s"
fi
exec "$python" -m tools.setup "$@"
