#!/bin/sh
# Before the files of a package are removed, for deb (remove) and rpm (0). An upgrade leaves the node running.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac

if [ -d /run/systemd/system ]; then
	systemctl disable --now holdfast holdfast-backup.timer || true
fi
