#!/usr/bin/env bash
# Runs once, when the data directory is created: creates the pipelines' user, who may read the binlog.
set -euo pipefail
mysql --protocol=socket --user=root --password="$MYSQL_ROOT_PASSWORD" <<SQL
CREATE USER 'changefeed'@'%' IDENTIFIED WITH caching_sha2_password BY '$CHANGEFEED_MYSQL_PASSWORD';
GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'changefeed'@'%';
SQL
