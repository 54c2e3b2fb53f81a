#!/usr/bin/env bash
# Write .env from .env.example: each empty value gets a random one. An .env that is there stays as it is.
set -euo pipefail
cd "$(dirname "$0")/.."

letters() {
    head -c 1024 /dev/urandom | LC_ALL=C tr -dc 'A-Za-z0-9' | cut -c "1-$1"
}

values() {
    local line
    while IFS= read -r line; do
        case $line in
            AIRFLOW_FERNET_KEY=) line+=$(head -c 32 /dev/urandom | base64 | tr '+/' '-_') ;;
            AIRFLOW_JWT_SECRET=) line+=$(letters 96) ;;
            AIRFLOW_ADMIN_PASSWORD=) line+=$(letters 20) ;;
            [A-Z]*=) line+=$(letters 40) ;;
        esac
        printf '%s\n' "$line"
    done
}

if [ -e .env ]; then
    echo "there is an .env already: it stays as it is. Remove it first to have another; servers that were made with it keep its passwords" >&2
    exit 1
fi
umask 077
set -o noclobber
values < .env.example > .env
echo "wrote .env. Airflow's user is admin, and the password AIRFLOW_ADMIN_PASSWORD in it"
