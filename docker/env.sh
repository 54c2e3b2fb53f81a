#!/usr/bin/env bash
# Writes .env from .env.example, with random values for empty ones. Does not change an existing .env.
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
    echo "expected no .env, found one. Nothing was written. To create a new one, remove it first; existing servers keep its passwords" >&2
    exit 1
fi
umask 077
set -o noclobber
values < .env.example > .env
echo "wrote .env. Airflow's user is admin, with its password AIRFLOW_ADMIN_PASSWORD"
