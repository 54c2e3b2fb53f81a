#!/usr/bin/env bash
# Airflow's API server. Its simple auth manager reads the password of `admin` from a file: the one in .env, written anew here.
set -euo pipefail
umask 077
python -c 'import json, os; print(json.dumps({"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"]}))' \
    > "$AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"
exec airflow api-server
