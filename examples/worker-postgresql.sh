#!/bin/sh
# A Fleet worker in POSIX shell and the psql command, for fleets on PostgreSQL. It follows docs/ROW_PROTOCOL.md.
#
# Usage: worker-postgresql.sh HANDLER=COMMAND...
#        e.g.  FLEET_DB=postgresql://shop@db/shop examples/worker-postgresql.sh count='wc -c'
#
# COMMAND is run by sh, with the task's payload (JSON) as its stdin. What it prints is the result: JSON, or a text. Any
# exit status but 0 is a failure, and the last line of stderr says why. FLEET_TASK_ID and FLEET_ATTEMPT tell it the rest.
#
# FLEET_DB: the database's URL. Without it psql's own variables say where it is: PGHOST, PGDATABASE, PGSERVICE. A password
# is best in PGPASSWORD or ~/.pgpass; one in FLEET_DB goes into PGPASSWORD, since anybody sees psql's arguments.
# FLEET_WORKER_ID: default HOST-PID.             FLEET_POOL: default `default`.
# FLEET_HEARTBEAT, FLEET_LEASE: seconds (5, 20). FLEET_IDLE: seconds between looks of an idle worker (1).
# FLEET_QUEUES, FLEET_CAPABILITIES: JSON, like ["mail"] and {"gpu": 1}; without them all queues, and no capabilities.
#
# SIGTERM finishes what runs and ends; a second one gives it back to the queue.
set -u

fail() { echo "error: $*" >&2; exit 2; }

[ $# -gt 0 ] || fail "worker-postgresql.sh: give HANDLER=COMMAND"
url=
case ${FLEET_DB:=} in
    *password=*) fail "FLEET_DB has a password as an option: give it by PGPASSWORD" ;;
    postgres*://*)
        rest=${FLEET_DB#*://}
        who=${rest%%/*}
        case $who in *:*@*)
            secret=${who#*:} secret=${secret%@*}
            case $secret in
                *%*) [ -n "${PGPASSWORD:-}" ] || fail "the password in FLEET_DB has a %: give it by PGPASSWORD" ;;
                *) export PGPASSWORD="$secret" ;;
            esac
            rest=${who%%:*}@${who##*@}${rest#"$who"}
        esac
        url=postgresql://$rest
        ;;
    '') [ -n "${PGDATABASE:-}${PGSERVICE:-}" ] || fail "give FLEET_DB=postgresql://USER@HOST/NAME, or PGDATABASE" ;;
    *) fail "FLEET_DB is no URL of a PostgreSQL database: a file has examples/worker.sh" ;;
esac
export PGCLIENTENCODING=UTF8 PGCONNECT_TIMEOUT="${PGCONNECT_TIMEOUT:-10}"
worker=${FLEET_WORKER_ID:-$(uname -n)-$$}
heartbeat=${FLEET_HEARTBEAT:-5} lease=${FLEET_LEASE:-20} idle=${FLEET_IDLE:-1}
handlers=
for argument; do
    case ${argument%%=*} in '' | *[!A-Za-z0-9_.:/-]*) fail "$argument: give HANDLER=COMMAND" ;; esac
    case $argument in *=?*) handlers="$handlers${handlers:+,}\"${argument%%=*}\"" ;; *) fail "$argument: no COMMAND" ;; esac
done
case $worker$heartbeat$lease in *[!A-Za-z0-9_.:/-]*) fail "the worker's id, heartbeat or lease has a bad character" ;; esac

home=$(mktemp -d) || exit 1
beater='' child='' incarnation='' signals=0
trap 'kill $beater 2>/dev/null; rm -rf "$home"' EXIT
trap 'signals=$((signals + 1))' TERM INT HUP
trap : USR1

# Runs a file's SQL and that on its stdin in one connection, whose directory is $home: texts come by \set from files,
# and psql quotes them.
sql() {
    cat "$1" - | (cd "$home" && psql -XqAtw -v ON_ERROR_STOP=1 ${url:+"$url"})
}

write() { printf %s "$2" >"$home/$1"; }

# Who the process is, so that others can see that it is dead before its lease is over: all of it, or nothing.
identify() {
    write worker "$worker"
    write host "$(uname -n)"
    write boot_id "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
    write pid_namespace "$(readlink "/proc/$$/ns/pid" 2>/dev/null)"
    write start_ticks "$(sed 's/.*) //' "/proc/$$/stat" 2>/dev/null | cut -d' ' -f20)"
    write handlers "[$handlers]"
    write queues "${FLEET_QUEUES:-[]}"
    write capabilities "${FLEET_CAPABILITIES:-{\}}"
    write pool "${FLEET_POOL:-default}"
    write pid $$
    write heartbeat "$heartbeat"
    write lease "$lease"
}

# Values are \set, and stand in statements as :'name', which psql quotes. Without quotes stand texts of SQL: :now is one
# time for each statement, by the server's clock, cut to milliseconds.
cat >"$home/self.sql" <<'SQL'
SET lock_timeout = '10s';
\set now 'date_trunc(''milliseconds'', statement_timestamp())'
\set worker `cat worker`
\set candidate `cat candidate.sql`
\set share ''
\set skip ''
SQL

# A new life. The beater reads life.sql, so that is replaced only when the life is registered.
register() {
    incarnation=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    {
        cat "$home/self.sql"
        printf '\\set incarnation %s\n' "$incarnation"
    } >"$home/next.sql"
    [ "$(sql "$home/next.sql" <<'SQL'
\set pool `cat pool`
\set host `cat host`
\set boot_id `cat boot_id`
\set pid_namespace `cat pid_namespace`
\set pid `cat pid`
\set start_ticks `cat start_ticks`
\set heartbeat `cat heartbeat`
\set lease `cat lease`
\set capabilities `cat capabilities`
\set queues `cat queues`
\set handlers `cat handlers`
BEGIN;
DELETE FROM worker_registry WHERE worker_id = :'worker' AND status IN ('terminated', 'lost');
WITH born AS (
    INSERT INTO worker_registry (worker_id, incarnation, pool, status, started_at, last_heartbeat,
        heartbeat_interval_seconds, lease_seconds, lease_expires_at, slots, host, boot_id, pid_namespace, pid,
        pid_start_ticks, capabilities_json, queues_json, handlers_json, version, idle_since)
    VALUES (:'worker', :'incarnation', :'pool', 'active', :now, :now, :'heartbeat', :'lease',
        :now + :'lease'::float8 * interval '1 second', 1, :'host',
        nullif(:'boot_id', ''), nullif(:'pid_namespace', ''), :'pid', nullif(:'start_ticks', '')::bigint,
        :'capabilities', :'queues', :'handlers', 'worker-postgresql.sh', :now)
    ON CONFLICT (worker_id) DO NOTHING RETURNING worker_id, started_at
), told AS (
    INSERT INTO fleet_event (at, kind, subject, text)
    SELECT started_at, 'worker_registered', worker_id, 'worker-postgresql.sh' FROM born
)
SELECT 'registered' FROM born;
COMMIT;
SQL
)" = registered ] || { echo "error: worker id $worker is in use, or could not be registered" >&2; exit 1; }
    mv "$home/next.sql" "$home/life.sql"
}

# Heartbeats, as long as the worker's own process lives and is not stopped. What a beat brings back becomes a file that
# holds the life that it is about; the signal ends whatever the worker waits for. It is repeated with the next beat.
beat_on() {
    trap - EXIT TERM
    trap '' INT HUP
    while sleep "$heartbeat"; do
        kill -0 $$ 2>/dev/null || exit 0
        case $(sed 's/.*) //' "/proc/$$/stat" 2>/dev/null) in [ZX]*) exit 0 ;; [Tt]*) continue ;; esac
        cp "$home/life.sql" "$home/beat.sql" || exit 0
        beat >"$home/news" || continue
        while IFS='|' read -r what whom; do
            printf %s "$whom" >"$home/$what"
            kill -USR1 $$
        done <"$home/news"
    done
}

beat() {
    sql "$home/beat.sql" <<'SQL'
BEGIN;
UPDATE worker_registry SET last_heartbeat = :now, lease_expires_at = :now + lease_seconds * interval '1 second',
    current_task_id = held, idle_since = CASE WHEN held IS NULL THEN coalesce(idle_since, :now) END
FROM (SELECT min(id) AS held FROM work_queue
    WHERE status = 'running' AND worker = :'worker' AND incarnation = :'incarnation') q
WHERE worker_id = :'worker' AND incarnation = :'incarnation' AND status IN ('active', 'terminating');
SELECT 'lost', :'incarnation' WHERE NOT EXISTS (SELECT 1 FROM worker_registry
    WHERE worker_id = :'worker' AND incarnation = :'incarnation' AND status IN ('active', 'terminating'));
UPDATE worker_command SET status = 'taken', taken_by = :'worker', taken_at = :now
WHERE incarnation = :'incarnation' AND status = 'pending' AND expires_at > :now;
UPDATE work_queue SET cancel_requested = true
WHERE status = 'running' AND worker = :'worker' AND incarnation = :'incarnation' AND id::text IN (
    SELECT arguments_json ->> 'task_id' FROM worker_command
    WHERE incarnation = :'incarnation' AND status = 'taken' AND kind = 'cancel_task');
UPDATE worker_command c SET status = 'succeeded', finished_at = :now, reply_json = json_build_object(
    'at', to_char(:now AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'status', w.status,
    'task_id', w.current_task_id, 'pid', w.pid)
FROM worker_registry w
WHERE c.incarnation = :'incarnation' AND c.status = 'taken'
    AND w.worker_id = :'worker' AND w.incarnation = :'incarnation'
    AND (kind = 'get_status' OR kind = 'restart' AND w.status = 'active' OR kind = 'cancel_task' AND EXISTS (
        SELECT 1 FROM work_queue q WHERE q.id::text = arguments_json ->> 'task_id'
            AND q.status = 'running' AND q.worker = :'worker' AND q.incarnation = :'incarnation'))
RETURNING kind, :'incarnation';
UPDATE worker_command SET status = 'failed', finished_at = :now,
    error_code = CASE kind WHEN 'restart' THEN 409 WHEN 'cancel_task' THEN 404 ELSE 501 END,
    error_message = CASE kind WHEN 'restart' THEN 'it is draining: it ends anyway'
        WHEN 'cancel_task' THEN 'this task does not run here' ELSE 'unsupported: ' || kind END
WHERE incarnation = :'incarnation' AND status = 'taken';
SELECT 'cancel', id || '.' || claim_token FROM work_queue
WHERE status = 'running' AND worker = :'worker' AND incarnation = :'incarnation' AND cancel_requested;
SELECT 'drain', :'incarnation' FROM worker_registry
WHERE worker_id = :'worker' AND incarnation = :'incarnation' AND status = 'terminating';
SELECT 'interrupt', :'incarnation' FROM worker_registry
WHERE worker_id = :'worker' AND incarnation = :'incarnation' AND status = 'terminating' AND drain_deadline_at <= :now;
COMMIT;
SQL
}

# Whether the beater has brought such news for this life, or this claim.
told() { [ "$(cat "$home/$1" 2>/dev/null)" = "$2" ]; }

# The beginning of a statement that asks what this worker may claim: `me`, if it may claim at all; `lane`, what it can
# do; `candidate`, the first task of those lanes that nobody else is claiming. While there are limits by key, tasks with
# a key are passed over: their limits are kept by workers that know them. :share and :skip lock, in the claim alone.
cat >"$home/candidate.sql" <<'SQL'
WITH me AS MATERIALIZED (
    SELECT w.* FROM worker_registry w
    WHERE w.worker_id = :'worker' AND w.incarnation = :'incarnation'
        AND w.status = 'active' AND NOT w.paused AND w.lease_expires_at >= :now
        AND NOT EXISTS (SELECT 1 FROM quarantine z WHERE z.released_at IS NULL AND z.until > :now
            AND z.subject = CASE z.scope WHEN 'worker' THEN w.worker_id ELSE w.host END)
    :share
), lane AS MATERIALIZED (
    SELECT l.lane_id, l.capability_key::json -> 'prefers' IS NULL AS is_plain, me.worker_id,
        :now - me.lease_seconds * interval '1 second' AS avoided_until
    FROM me, claim_lane l
    WHERE l.task IN (SELECT json_array_elements_text(me.handlers_json))
        AND (json_array_length(me.queues_json) = 0 OR l.queue IN (SELECT json_array_elements_text(me.queues_json)))
        AND l.assigned_worker IN ('', me.worker_id)
        AND NOT EXISTS (SELECT 1 FROM json_each_text(l.capability_key::json) r
            WHERE CASE WHEN r.key = 'prefers' THEN false
                ELSE r.value::float8 > coalesce((me.capabilities_json ->> r.key)::float8, 0) END)
        AND NOT EXISTS (SELECT 1 FROM queue_setting s WHERE s.queue = l.queue AND s.paused
            AND (s.paused_until IS NULL OR s.paused_until > :now))
), candidate AS MATERIALIZED (
    SELECT q.id FROM lane CROSS JOIN LATERAL (
        SELECT p.id, p.rank, coalesce(p.available_at, p.created_at) AS since FROM work_queue p
        WHERE p.status = 'pending' AND p.lane_id = lane.lane_id
            AND (p.concurrency_key IS NULL OR NOT EXISTS (SELECT 1 FROM limit_setting))
            AND (p.deadline_at IS NULL OR p.deadline_at > :now)
            AND (p.avoid_worker IS NULL OR p.avoid_worker <> lane.worker_id OR p.available_at <= lane.avoided_until)
        ORDER BY p.rank, p.id LIMIT 1 :skip) q
    WHERE lane.is_plain OR q.since <= :now - interval '5 seconds'
    ORDER BY q.rank, q.id LIMIT 1
)
SQL

# Prints whether there is anything to do: an idle worker only reads.
probe() {
    sql "$home/life.sql" <<'SQL'
:candidate
SELECT CASE WHEN EXISTS (SELECT 1 FROM candidate) OR EXISTS (SELECT 1 FROM work_queue
    WHERE status = 'running' AND worker = :'worker' AND incarnation = :'incarnation') THEN 1 ELSE 0 END;
SQL
}

# Claims the next task, and prints what runs in this life's name: a claim whose reply was lost is found again that way.
claim() {
    sql "$home/life.sql" <<'SQL'
\set share 'FOR SHARE OF w'
\set skip 'FOR UPDATE SKIP LOCKED'
BEGIN;
:candidate
UPDATE work_queue SET status = 'running', worker = :'worker', incarnation = :'incarnation',
    claim_token = claim_token + 1, attempt = attempt + 1, claimed_at = :now, started_at = :now,
    progress = NULL, progress_text = NULL, finished_at = NULL
FROM candidate
WHERE work_queue.id = candidate.id AND status = 'pending' AND NOT EXISTS (SELECT 1 FROM work_queue q
    WHERE q.status = 'running' AND q.worker = :'worker' AND q.incarnation = :'incarnation');
SELECT id, claim_token, attempt, coalesce(timeout_seconds, 0), task FROM work_queue
WHERE status = 'running' AND worker = :'worker' AND incarnation = :'incarnation' ORDER BY id LIMIT 1
FOR UPDATE;
\o payload
SELECT coalesce(payload_json, (SELECT payload_json FROM work_payload WHERE task_id = id), '{}') FROM work_queue
WHERE status = 'running' AND worker = :'worker' AND incarnation = :'incarnation' ORDER BY id LIMIT 1;
\o
COMMIT;
SQL
}

# Takes one task; what the claim has said is kept in variables, and for SQL in claim.sql.
take() {
    [ "$(probe)" = 1 ] && claim >"$home/claimed" && IFS='|' read -r id token attempt limit task <"$home/claimed" || return 1
    {
        cat "$home/life.sql"
        printf '\\set id %s\n' "$id"
        printf '\\set token %s\n' "$token"
    } >"$home/claim.sql"
}

command_of() {
    for argument; do
        case $argument in "$task="*) printf %s "${argument#*=}" && return ;; esac
    done
}

# timeout(1) makes a process group of the command, passes SIGTERM on to it, and kills it five seconds later.
execute() {
    FLEET_TASK_ID=$id FLEET_ATTEMPT=$attempt timeout -k 5 "$limit" sh -c "$(command_of "$@")" \
        <"$home/payload" >"$home/printed" 2>"$home/complaint" &
    child=$!
    while :; do
        wait "$child"
        code=$?
        kill -0 "$child" 2>/dev/null || break
        if told lost "$incarnation" || told cancel "$id.$token" || told interrupt "$incarnation" ||
            [ "$signals" -gt 1 ]; then
            kill -TERM "$child" 2>/dev/null
        fi
        keep_beating
    done
    child=
}

# What is stored is UTF-8 without NUL.
clean() { tr -d '\000' <"$home/$1" | iconv -c -f UTF-8 -t UTF-8 2>/dev/null; }

# Writes how it ended, again and again until the database has answered. No row: the claim is gone, and nothing changed.
record() {
    clean printed >"$home/result"
    if told cancel "$id.$token"; then
        end=failed kind=cancelled why='cancelled by request while it ran'
    elif told interrupt "$incarnation" || [ "$signals" -gt 1 ]; then
        end=interrupted kind=interrupted why="worker $worker was stopped"
    elif [ "$code" = 124 ] || [ "$code" = 137 ] && [ "$limit" != 0 ]; then
        end=failed kind=timeout why="timed out after $limit s"
    elif [ "$code" -ne 0 ]; then
        end=failed kind=exit_status why=$(clean complaint | tail -n 1 | cut -c 1-1000)
    elif [ "$(wc -c <"$home/result")" -gt 1048576 ]; then
        end=failed kind=bad_result why='the result is larger than 1048576 bytes'
    else
        end='done' kind='' why=''
    fi
    write kind "$kind"
    write why "${why:-exit status $code}"
    until if [ "$end" = 'done' ]; then complete; else give_up; fi || told lost "$incarnation"; do
        keep_beating
        rest
    done
}

complete() {
    sql "$home/claim.sql" <<'SQL'
\set result `cat result`
BEGIN;
SELECT set_config('fleet.result', rtrim(:'result', E'\n'), true) \g /dev/null
DO $$ BEGIN
    PERFORM nullif(current_setting('fleet.result'), '')::json;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    PERFORM set_config('fleet.result', to_json(current_setting('fleet.result'))::text, true);
END $$;
UPDATE worker_registry SET tasks_done = tasks_done + 1
WHERE worker_id = :'worker' AND incarnation = :'incarnation' AND EXISTS (SELECT 1 FROM work_queue
    WHERE id = :'id' AND claim_token = :'token' AND incarnation = :'incarnation' AND status = 'running');
UPDATE work_queue SET status = 'done', finished_at = :now, avoid_worker = NULL, error = NULL, error_kind = NULL,
    traceback = NULL, result_json = nullif(current_setting('fleet.result'), '')::json
WHERE id = :'id' AND claim_token = :'token' AND incarnation = :'incarnation' AND status = 'running';
INSERT INTO work_release (task_id) SELECT id FROM work_queue
WHERE id = :'id' AND claim_token = :'token' AND status = 'done'
    AND EXISTS (SELECT 1 FROM work_dependency WHERE parent = :'id' AND NOT satisfied) ON CONFLICT DO NOTHING;
COMMIT;
SQL
}

# A failed attempt is tried again while there are some left; an interrupted one does not count, ten times.
give_up() {
    {
        cat "$home/claim.sql"
        printf '\\set end %s\n' "$end"
        printf '\\set luck 0.%05d\n' "$(($(od -An -N2 -tu2 /dev/urandom) * 100000 / 65536))"
    } >"$home/end.sql"
    sql "$home/end.sql" <<'SQL'
\set kind `cat kind`
\set why `cat why`
BEGIN;
UPDATE worker_registry SET tasks_failed = tasks_failed + 1
WHERE worker_id = :'worker' AND incarnation = :'incarnation' AND :'end' = 'failed' AND EXISTS (SELECT 1 FROM work_queue
    WHERE id = :'id' AND claim_token = :'token' AND incarnation = :'incarnation' AND status = 'running');
WITH held AS MATERIALIZED (
    SELECT q.*, :now AS ended_at, date_trunc('milliseconds', :now + interval '1 second' * CASE
        WHEN :'end' = 'interrupted' THEN 0
        WHEN retry_json ->> 'wait' = 'fixed' THEN (retry_json ->> 'multiplier')::float8
        ELSE :'luck'::float8 * least(coalesce((retry_json ->> 'max')::float8, 600),
            coalesce((retry_json ->> 'multiplier')::float8, 1) * power(2, least(attempt - 1, 20))) END) AS due_at
    FROM work_queue q
    WHERE id = :'id' AND claim_token = :'token' AND incarnation = :'incarnation' AND status = 'running' FOR UPDATE
), verdict AS MATERIALIZED (
    SELECT h.*, rule.becomes, rule.outcome, rule.kind, rule.becomes IN ('failed', 'cancelled') AS is_final
    FROM held h CROSS JOIN LATERAL (VALUES
        (1, h.cancel_requested, 'cancelled', 'cancelled', 'cancelled'),
        (2, :'end' = 'failed' AND h.attempt >= h.max_attempts, 'failed', :'end', :'kind'),
        (3, :'end' = 'interrupted' AND h.interruptions >= 10, 'failed', :'end', 'interrupted_too_often'),
        (4, h.deadline_at <= h.due_at, 'failed', :'end', 'deadline_exceeded'),
        (5, h.dedupe_scope = 'waiting' AND EXISTS (SELECT 1 FROM work_queue w
            WHERE w.task = h.task AND w.dedupe_key = h.dedupe_key AND w.status IN ('blocked', 'scheduled', 'pending')),
            'failed', :'end', 'duplicate'),
        (6, :'end' = 'failed', 'scheduled', :'end', :'kind'),
        (7, true, 'pending', :'end', :'kind')) AS rule (place, holds, becomes, outcome, kind)
    WHERE rule.holds ORDER BY rule.place LIMIT 1
), history AS (
    INSERT INTO work_attempt (task_id, claim_token, attempt, worker, incarnation, outcome, error, error_kind,
        started_at, ended_at)
    SELECT id, claim_token, attempt, worker, incarnation, outcome, :'why', kind, started_at, ended_at FROM verdict
    ON CONFLICT DO NOTHING
), release AS (
    INSERT INTO work_release (task_id) SELECT id FROM verdict
    WHERE is_final AND EXISTS (SELECT 1 FROM work_dependency WHERE parent = verdict.id AND NOT satisfied)
    ON CONFLICT DO NOTHING
)
UPDATE work_queue q SET status = v.becomes, result_json = NULL, traceback = NULL,
    error = CASE WHEN v.becomes = 'pending' THEN v.error ELSE :'why' END,
    error_kind = CASE WHEN v.becomes = 'pending' THEN v.error_kind ELSE v.kind END,
    attempt = v.attempt - (v.outcome = 'interrupted')::int,
    interruptions = v.interruptions + (v.outcome = 'interrupted')::int,
    available_at = CASE WHEN v.becomes = 'scheduled' THEN v.due_at ELSE v.available_at END,
    finished_at = CASE WHEN is_final THEN v.ended_at END, started_at = CASE WHEN is_final THEN v.started_at END,
    claimed_at = CASE WHEN is_final THEN v.claimed_at END, worker = CASE WHEN is_final THEN v.worker END,
    incarnation = CASE WHEN is_final THEN v.incarnation END
FROM verdict v
WHERE q.id = v.id AND q.claim_token = v.claim_token AND q.incarnation = v.incarnation AND q.status = 'running';
COMMIT;
SQL
}

leave() {
    write why "$1"
    sql "$home/life.sql" <<'SQL'
\set why `cat why`
WITH ended AS (
    UPDATE worker_registry SET status = 'terminated', stopped_at = :now, current_task_id = NULL, stop_reason = :'why'
    WHERE worker_id = :'worker' AND incarnation = :'incarnation' AND status IN ('active', 'terminating')
    RETURNING worker_id, stopped_at
)
INSERT INTO fleet_event (at, kind, subject, text) SELECT stopped_at, 'worker_ended', worker_id, :'why' FROM ended;
SQL
}

# Waits a little; a signal ends it.
rest() {
    sleep "$idle" &
    wait $!
    kill $! 2>/dev/null
}

keep_beating() {
    [ -n "$beater" ] && kill -0 "$beater" 2>/dev/null && return
    beat_on &
    beater=$!
}

identify
register
while :; do
    keep_beating
    if told lost "$incarnation"; then
        echo "worker $worker was given up: it begins a new life" >&2
        register
    fi
    if told drain "$incarnation"; then leave drained; exit 0; fi
    if [ "$signals" -gt 0 ]; then leave 'told by a signal'; exit 0; fi
    if told restart "$incarnation"; then
        leave 'restarted by an order'
        register
    fi
    if take; then execute "$@" && record; else rest; fi
done
