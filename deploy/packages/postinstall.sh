#!/bin/sh
# After the files of a package are in place, for deb (configure) and rpm (1 or 2).
set -e
case "$1" in configure | 1 | 2) ;; *) exit 0 ;; esac

if ! getent passwd holdfast >/dev/null; then
	getent group holdfast >/dev/null || groupadd --system holdfast
	useradd --system --gid holdfast --home-dir /var/lib/holdfast --no-create-home --shell /usr/sbin/nologin \
		--comment 'Holdfast node' holdfast
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
# A service that started by itself would create a cluster before anybody could say which one to join. And one that
# restarted by itself would restart on all machines at once.
if systemctl is-active --quiet holdfast; then
	echo 'holdfast: the node still runs the old program. Restart one node after the other: systemctl restart holdfast'
elif ! systemctl is-enabled --quiet holdfast; then
	echo 'holdfast: to join a cluster, set HOLDFAST_CLUSTER_JOIN in /etc/default/holdfast. Then: systemctl enable --now holdfast'
fi
