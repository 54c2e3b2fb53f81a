#!/usr/bin/env bash
# Starts Airflow's API server. Its simple auth manager reads the password of `admin` from a file, which is written here from .env.
set -euo pipefail
umask 077
python -c 'import json, os; print(json.dumps({"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"]}))' \
    > "$AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"
exec airflow api-server
