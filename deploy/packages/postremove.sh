#!/bin/sh
# After the files of a package are removed. The data folder and its user stay: the content in it may be the last copy.
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
case "$1" in
remove | purge | 0)
	[ ! -d /var/lib/holdfast ] || echo 'holdfast: the data of the node stays in /var/lib/holdfast'
	;;
esac
