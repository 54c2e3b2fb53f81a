#!/usr/bin/env bash
# The image's entry point. Spark on Kubernetes starts its pods with the argument `driver` or `executor`, and with variables
# that say the rest: https://spark.apache.org/docs/4.2.0/running-on-kubernetes.html#docker-images
# Spark's programs, python and changefeed are run as they are. All else is a command for Airflow's own entry point.
set -euo pipefail

if [ -z "${SPARK_HOME:-}" ]; then
    SPARK_HOME=$(python -c 'import importlib.util as util; print(util.find_spec("pyspark").submodule_search_locations[0])')
fi
export SPARK_HOME

# Signals go to the program only: the JVM ends its Python workers, after the tasks of a decommissioned executor.
run() {
    exec dumb-init --single-child -- "$@"
}

# The JVM's login requires a name for this user, who can be any number. Airflow's image lets group 0 add it.
name_user() {
    local user
    user=$(id -u)
    if getent passwd "$user" > /dev/null; then
        return
    fi
    if [ ! -w /etc/passwd ]; then
        [ "${1:-}" != if-possible ] || return 0
        echo "expected user $user in /etc/passwd, found neither this user nor the right to add it. Spark was not started, as" \
            "its JVM requires a name. Run the pod as user 50000, or as group 0 with a root file system that is not read-only" >&2
        exit 1
    fi
    export HOME=${AIRFLOW_USER_HOME_DIR:-/tmp}
    echo "changefeed:x:$user:$(id -g)::$HOME:/bin/false" >> /etc/passwd
}

executor() {
    local name option java=java
    local -a options=() path=("${SPARK_CONF_DIR:-$SPARK_HOME/conf}")
    # Numbered from 0 by the driver. An option can have spaces, so it is one element.
    for ((name = 0; ; name++)); do
        option=SPARK_JAVA_OPT_$name
        [ -n "${!option+set}" ] || break
        options+=("${!option}")
    done
    [ -z "${HADOOP_CONF_DIR:-}" ] || path+=("$HADOOP_CONF_DIR")
    path+=("${SPARK_CLASSPATH:-}" "$SPARK_HOME/jars/*" "${SPARK_EXTRA_CLASSPATH:-}" "${SPARK_DIST_CLASSPATH:-}" "$PWD")
    [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
    run "$java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "$(join "${path[@]}")" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
}

# The arguments that are not empty, with colons between them: an empty one would be the working folder.
join() {
    local part joined=
    for part; do
        [ -z "$part" ] || joined+=${joined:+:}$part
    done
    printf '%s' "$joined"
}

case ${1:-} in
    driver)
        shift
        name_user
        # Signals go to Python, too, which returns the run's claim: the pod ends when the JVM has ended.
        exec dumb-init -- "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
        ;;
    executor)
        name_user
        executor
        ;;
    spark-*)
        name_user
        run "$@"
        ;;
    changefeed | python) # python is also a task of Airflow's KubernetesExecutor, which may start a JVM
        name_user if-possible
        run "$@"
        ;;
    *) exec dumb-init -- /entrypoint "$@" ;; # as in Airflow's image
esac
