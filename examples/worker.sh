#!/bin/sh
# A Fleet worker in POSIX shell and the sqlite3 command. It follows docs/ROW_PROTOCOL.md.
#
# Usage: worker.sh HANDLER=COMMAND...       e.g.  FLEET_DB=fleet.db examples/worker.sh count='wc -c'
#
# COMMAND is run by sh, with the task's payload (JSON) as its stdin. What it prints is the result: JSON, or a text. Any
# exit status but 0 is a failure, and the last line of stderr says why. FLEET_TASK_ID and FLEET_ATTEMPT tell it the rest.
#
# FLEET_DB: the database's file.                 FLEET_WORKER_ID: default HOST-PID.     FLEET_POOL: default `default`.
# FLEET_HEARTBEAT, FLEET_LEASE: seconds (5, 20). FLEET_IDLE: seconds between looks of an idle worker (1).
# FLEET_QUEUES, FLEET_CAPABILITIES: JSON, like ["mail"] and {"gpu": 1}; without them all queues, and no capabilities.
#
# SIGTERM finishes what runs and ends; a second one gives it back to the queue.
set -u

fail() { echo "error: $*" >&2; exit 2; }

[ $# -gt 0 ] || fail "worker.sh: give HANDLER=COMMAND"
case ${FLEET_DB:=fleet.db} in /*) ;; *) FLEET_DB=$PWD/$FLEET_DB ;; esac
[ -s "$FLEET_DB" ] || fail "there is no database $FLEET_DB: make it with fleet init"
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

# Runs the SQL on its stdin in one connection, whose directory is $home: texts come by readfile(), never by quoting.
sql() {
    cat "$1" - | (cd "$home" && sqlite3 -batch -init /dev/null -bail -cmd '.timeout 10000' "$FLEET_DB")
}

write() { printf %s "$2" >"$home/$1"; }

# Who the process is, so that others can see that it is dead before its lease is over: all of it, or nothing.
identify() {
    write host "$(uname -n)"
    write boot_id "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
    write pid_namespace "$(readlink "/proc/$$/ns/pid" 2>/dev/null)"
    write start_ticks "$(sed 's/.*) //' "/proc/$$/stat" 2>/dev/null | cut -d' ' -f20)"
    write handlers "[$handlers]"
    write queues "${FLEET_QUEUES:-[]}"
    write capabilities "${FLEET_CAPABILITIES:-{\}}"
    write pool "${FLEET_POOL:-default}"
}

# A new life. The beater reads life.sql, so that is replaced only when the life is registered.
register() {
    incarnation=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    cat >"$home/next.sql" <<SQL
.parameter set :worker "'$worker'"
.parameter set :incarnation "'$incarnation'"
.parameter set :pid $$
.parameter set :heartbeat $heartbeat
.parameter set :lease $lease
CREATE TEMP VIEW clock AS SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS now;
SQL
    [ "$(sql "$home/next.sql" <<'SQL'
BEGIN IMMEDIATE;
DELETE FROM worker_registry WHERE worker_id = :worker AND status IN ('terminated', 'lost');
INSERT INTO worker_registry (worker_id, incarnation, pool, status, started_at, last_heartbeat,
    heartbeat_interval_seconds, lease_seconds, lease_expires_at, slots, host, boot_id, pid_namespace, pid,
    pid_start_ticks, capabilities_json, queues_json, handlers_json, version, idle_since)
SELECT :worker, :incarnation, CAST(readfile('pool') AS TEXT), 'active', now, now, :heartbeat, :lease,
    strftime('%Y-%m-%dT%H:%M:%fZ', now, '+' || :lease || ' seconds'), 1, CAST(readfile('host') AS TEXT),
    nullif(CAST(readfile('boot_id') AS TEXT), ''), nullif(CAST(readfile('pid_namespace') AS TEXT), ''), :pid,
    nullif(CAST(readfile('start_ticks') AS TEXT), ''), CAST(readfile('capabilities') AS TEXT),
    CAST(readfile('queues') AS TEXT), CAST(readfile('handlers') AS TEXT), 'worker.sh', now
FROM clock WHERE true ON CONFLICT (worker_id) DO NOTHING RETURNING 'registered';
INSERT INTO fleet_event (at, kind, subject, text)
SELECT now, 'worker_registered', :worker, 'worker.sh' FROM clock WHERE changes() = 1;
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
BEGIN IMMEDIATE;
UPDATE worker_registry SET last_heartbeat = now,
    lease_expires_at = strftime('%Y-%m-%dT%H:%M:%fZ', now, '+' || lease_seconds || ' seconds'),
    current_task_id = held, idle_since = CASE WHEN held IS NULL THEN coalesce(idle_since, now) END
FROM clock, (SELECT min(id) AS held FROM work_queue
    WHERE status = 'running' AND worker = :worker AND incarnation = :incarnation)
WHERE worker_id = :worker AND incarnation = :incarnation AND status IN ('active', 'terminating');
SELECT 'lost', :incarnation WHERE changes() = 0;
UPDATE worker_command SET status = 'taken', taken_by = :worker, taken_at = now FROM clock
WHERE incarnation = :incarnation AND status = 'pending' AND expires_at > now;
UPDATE work_queue SET cancel_requested = true
WHERE status = 'running' AND worker = :worker AND incarnation = :incarnation AND id IN (
    SELECT json_extract(arguments_json, '$.task_id') FROM worker_command
    WHERE incarnation = :incarnation AND status = 'taken' AND kind = 'cancel_task');
UPDATE worker_command SET status = 'succeeded', finished_at = now,
    reply_json = json_object('at', now, 'status', w.status, 'task_id', w.current_task_id, 'pid', w.pid)
FROM clock, worker_registry w
WHERE worker_command.incarnation = :incarnation AND worker_command.status = 'taken'
    AND w.worker_id = :worker AND w.incarnation = :incarnation
    AND (kind = 'get_status' OR kind = 'restart' AND w.status = 'active' OR kind = 'cancel_task' AND EXISTS (
        SELECT 1 FROM work_queue q WHERE q.id = json_extract(arguments_json, '$.task_id')
            AND q.status = 'running' AND q.worker = :worker AND q.incarnation = :incarnation))
RETURNING kind, :incarnation;
UPDATE worker_command SET status = 'failed', finished_at = now,
    error_code = CASE kind WHEN 'restart' THEN 409 WHEN 'cancel_task' THEN 404 ELSE 501 END,
    error_message = CASE kind WHEN 'restart' THEN 'it is draining: it ends anyway'
        WHEN 'cancel_task' THEN 'this task does not run here' ELSE 'unsupported: ' || kind END
FROM clock WHERE incarnation = :incarnation AND status = 'taken';
SELECT 'cancel', id || '.' || claim_token FROM work_queue
WHERE status = 'running' AND worker = :worker AND incarnation = :incarnation AND cancel_requested;
SELECT 'drain', :incarnation FROM worker_registry
WHERE worker_id = :worker AND incarnation = :incarnation AND status = 'terminating';
SELECT 'interrupt', :incarnation FROM worker_registry, clock
WHERE worker_id = :worker AND incarnation = :incarnation AND status = 'terminating' AND drain_deadline_at <= now;
COMMIT;
SQL
}

# Whether the beater has brought such news for this life, or this claim.
told() { [ "$(cat "$home/$1" 2>/dev/null)" = "$2" ]; }

# The first task of each lane that this worker may claim from. While there are limits by key, tasks with a key are passed
# over: their limits are kept by workers that know them.
cat >"$home/claimable.sql" <<'SQL'
CREATE TEMP VIEW claimable AS
SELECT q.id, q.rank, w.worker_id, w.incarnation
FROM clock, worker_registry w, claim_lane l JOIN work_queue q ON q.id = (
    SELECT p.id FROM work_queue p
    WHERE p.status = 'pending' AND p.lane_id = l.lane_id
        AND (p.concurrency_key IS NULL OR NOT EXISTS (SELECT 1 FROM limit_setting))
        AND (p.deadline_at IS NULL OR p.deadline_at > now)
        AND (p.avoid_worker IS NULL OR p.avoid_worker <> w.worker_id OR p.available_at
            <= strftime('%Y-%m-%dT%H:%M:%fZ', now, '-' || w.lease_seconds || ' seconds'))
    ORDER BY p.rank, p.id LIMIT 1)
WHERE w.status = 'active' AND NOT w.paused AND w.lease_expires_at >= now
    AND NOT EXISTS (SELECT 1 FROM quarantine z WHERE z.released_at IS NULL AND z.until > now
        AND z.subject = CASE z.scope WHEN 'worker' THEN w.worker_id ELSE w.host END)
    AND l.task IN (SELECT value FROM json_each(w.handlers_json))
    AND (w.queues_json = '[]' OR l.queue IN (SELECT value FROM json_each(w.queues_json)))
    AND l.assigned_worker IN ('', w.worker_id)
    AND json_valid(l.capability_key)
    AND NOT EXISTS (SELECT 1 FROM json_each(l.capability_key) r WHERE r.key <> 'prefers'
        AND r.value > coalesce((SELECT o.value FROM json_each(w.capabilities_json) o WHERE o.key = r.key), 0))
    AND (json_extract(l.capability_key, '$.prefers') IS NULL OR coalesce(q.available_at, q.created_at)
        <= strftime('%Y-%m-%dT%H:%M:%fZ', now, '-5 seconds'))
    AND NOT EXISTS (SELECT 1 FROM queue_setting s WHERE s.queue = l.queue AND s.paused
        AND (s.paused_until IS NULL OR s.paused_until > now));
SQL

# Prints whether there is anything to do: an idle worker only reads.
probe() {
    { cat "$home/claimable.sql"; cat <<'SQL'; } | sql "$home/life.sql"
SELECT EXISTS (SELECT 1 FROM claimable WHERE worker_id = :worker AND incarnation = :incarnation)
    OR EXISTS (SELECT 1 FROM work_queue WHERE status = 'running' AND worker = :worker AND incarnation = :incarnation);
SQL
}

# Claims the next task, and prints what runs in this life's name: a claim whose reply was lost is found again that way.
claim() {
    { cat "$home/claimable.sql"; cat <<'SQL'; } | sql "$home/life.sql"
BEGIN IMMEDIATE;
UPDATE work_queue SET status = 'running', worker = :worker, incarnation = :incarnation,
    claim_token = claim_token + 1, attempt = attempt + 1, claimed_at = now, started_at = now,
    progress = NULL, progress_text = NULL, finished_at = NULL
FROM clock
WHERE status = 'pending' AND work_queue.id = (SELECT c.id FROM claimable c
        WHERE c.worker_id = :worker AND c.incarnation = :incarnation ORDER BY c.rank, c.id LIMIT 1)
    AND NOT EXISTS (SELECT 1 FROM work_queue q
        WHERE q.status = 'running' AND q.worker = :worker AND q.incarnation = :incarnation);
SELECT id, claim_token, attempt, coalesce(timeout_seconds, 0), task,
    writefile('payload', coalesce(payload_json, (SELECT payload_json FROM work_payload WHERE task_id = id), '{}'))
FROM work_queue WHERE status = 'running' AND worker = :worker AND incarnation = :incarnation ORDER BY id LIMIT 1;
COMMIT;
SQL
}

# Takes one task; what the claim has said is kept in variables, and for SQL in claim.sql.
take() {
    [ "$(probe)" = 1 ] && claim >"$home/claimed" && IFS='|' read -r id token attempt limit task _ <"$home/claimed" || return 1
    {
        cat "$home/life.sql"
        echo ".parameter set :id $id"
        echo ".parameter set :token $token"
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
BEGIN IMMEDIATE;
UPDATE work_queue SET status = 'done', finished_at = now, avoid_worker = NULL, error = NULL, error_kind = NULL,
    traceback = NULL, result_json = CASE WHEN text = '' THEN NULL WHEN json_valid(text) THEN text ELSE json_quote(text) END
FROM clock, (SELECT rtrim(CAST(readfile('result') AS TEXT), char(10)) AS text)
WHERE id = :id AND claim_token = :token AND incarnation = :incarnation AND status = 'running';
UPDATE worker_registry SET tasks_done = tasks_done + changes() WHERE worker_id = :worker AND incarnation = :incarnation;
INSERT INTO work_release (task_id) SELECT id FROM work_queue
WHERE id = :id AND claim_token = :token AND status = 'done'
    AND EXISTS (SELECT 1 FROM work_dependency WHERE parent = :id AND NOT satisfied) ON CONFLICT DO NOTHING;
COMMIT;
SQL
}

# A failed attempt is tried again while there are some left; an interrupted one does not count, ten times.
give_up() {
    {
        cat "$home/claim.sql"
        echo ".parameter set :end \"'$end'\""
        echo ".parameter set :luck $(od -An -N2 -tu2 /dev/urandom).0/65536"
    } >"$home/end.sql"
    sql "$home/end.sql" <<'SQL'
BEGIN IMMEDIATE;
CREATE TEMP TABLE verdict AS
SELECT q.*, now AS ended_at, 'failed' AS outcome, CAST(readfile('why') AS TEXT) AS why, CAST(readfile('kind') AS TEXT) AS kind,
    CASE WHEN :end = 'interrupted' THEN 'pending' ELSE 'scheduled' END AS becomes,
    strftime('%Y-%m-%dT%H:%M:%fZ', now, printf('+%.3f seconds', CASE WHEN :end = 'interrupted' THEN 0
        WHEN json_extract(retry_json, '$.wait') = 'fixed' THEN json_extract(retry_json, '$.multiplier')
        ELSE :luck * min(coalesce(json_extract(retry_json, '$.max'), 600),
            coalesce(json_extract(retry_json, '$.multiplier'), 1) * (1 << min(attempt - 1, 20))) END)) AS due_at
FROM work_queue q, clock
WHERE id = :id AND claim_token = :token AND incarnation = :incarnation AND status = 'running';
UPDATE verdict SET outcome = 'interrupted' WHERE :end = 'interrupted';
UPDATE verdict SET becomes = 'failed' WHERE becomes = 'scheduled' AND attempt >= max_attempts;
UPDATE verdict SET becomes = 'failed', kind = 'interrupted_too_often' WHERE becomes = 'pending' AND interruptions >= 10;
UPDATE verdict SET becomes = 'failed', kind = 'deadline_exceeded' WHERE becomes <> 'failed' AND deadline_at <= due_at;
UPDATE verdict SET becomes = 'failed', kind = 'duplicate' WHERE becomes <> 'failed' AND dedupe_scope = 'waiting'
    AND EXISTS (SELECT 1 FROM work_queue w WHERE w.task = verdict.task AND w.dedupe_key = verdict.dedupe_key
        AND w.status IN ('blocked', 'scheduled', 'pending'));
UPDATE verdict SET becomes = 'cancelled', outcome = 'cancelled', kind = 'cancelled' WHERE cancel_requested;
INSERT INTO work_attempt (task_id, claim_token, attempt, worker, incarnation, outcome, error, error_kind, started_at, ended_at)
SELECT id, claim_token, attempt, worker, incarnation, outcome, why, kind, started_at, ended_at FROM verdict WHERE true
ON CONFLICT DO NOTHING;
UPDATE work_queue SET status = becomes, result_json = NULL, error = iif(becomes = 'pending', work_queue.error, why),
    error_kind = iif(becomes = 'pending', work_queue.error_kind, kind), traceback = NULL,
    attempt = work_queue.attempt - (outcome = 'interrupted'),
    interruptions = work_queue.interruptions + (outcome = 'interrupted'),
    available_at = iif(becomes = 'scheduled', due_at, work_queue.available_at),
    finished_at = iif(becomes IN ('failed', 'cancelled'), ended_at, NULL),
    started_at = iif(becomes IN ('failed', 'cancelled'), work_queue.started_at, NULL),
    claimed_at = iif(becomes IN ('failed', 'cancelled'), work_queue.claimed_at, NULL),
    worker = iif(becomes IN ('failed', 'cancelled'), work_queue.worker, NULL),
    incarnation = iif(becomes IN ('failed', 'cancelled'), work_queue.incarnation, NULL)
FROM verdict
WHERE work_queue.id = :id AND work_queue.claim_token = :token AND work_queue.incarnation = :incarnation
    AND work_queue.status = 'running' AND verdict.id = work_queue.id;
UPDATE worker_registry SET tasks_failed = tasks_failed + changes()
WHERE worker_id = :worker AND incarnation = :incarnation AND :end = 'failed';
INSERT INTO work_release (task_id) SELECT id FROM verdict
WHERE becomes IN ('failed', 'cancelled')
    AND EXISTS (SELECT 1 FROM work_dependency WHERE parent = :id AND NOT satisfied) ON CONFLICT DO NOTHING;
COMMIT;
SQL
}

leave() {
    write why "$1"
    sql "$home/life.sql" <<'SQL'
BEGIN IMMEDIATE;
UPDATE worker_registry SET status = 'terminated', stopped_at = now, current_task_id = NULL,
    stop_reason = CAST(readfile('why') AS TEXT)
FROM clock
WHERE worker_id = :worker AND incarnation = :incarnation AND status IN ('active', 'terminating');
INSERT INTO fleet_event (at, kind, subject, text)
SELECT now, 'worker_ended', :worker, CAST(readfile('why') AS TEXT) FROM clock WHERE changes() = 1;
COMMIT;
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
