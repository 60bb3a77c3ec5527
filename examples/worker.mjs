#!/usr/bin/env node
// A Fleet worker in Node.js, with nothing but the sqlite3 command beside it. It follows docs/ROW_PROTOCOL.md.
//
// Usage: worker.mjs HANDLER=COMMAND...       e.g.  FLEET_DB=fleet.db node examples/worker.mjs count='wc -c'
//
// COMMAND is run by sh, with the task's payload (JSON) as its stdin. What it prints is the result: JSON, or a text. Any
// exit status but 0 is a failure, and the last line of stderr says why. FLEET_TASK_ID and FLEET_ATTEMPT tell it the rest.
//
// The environment is that of worker.sh: FLEET_DB, FLEET_WORKER_ID, FLEET_POOL, FLEET_HEARTBEAT, FLEET_LEASE, FLEET_IDLE,
// FLEET_QUEUES, FLEET_CAPABILITIES. SIGTERM finishes what runs and ends; a second one gives it back to the queue.

import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync, readlinkSync } from 'node:fs'
import { hostname } from 'node:os'

const MOST_BYTES = 1048576
const GRACE = 5000

const env = process.env
const database = env.FLEET_DB || 'fleet.db'
const heartbeat = Number(env.FLEET_HEARTBEAT || 5)
const lease = Number(env.FLEET_LEASE || 20)
const idle = Number(env.FLEET_IDLE || 1) * 1000
const workerId = env.FLEET_WORKER_ID || `${hostname()}-${process.pid}`
const commands = new Map()

function fail(message, code = 2) {
  console.error(`error: ${message}`)
  process.exit(code)
}

for (const argument of process.argv.slice(2)) {
  const [, name, command] = /^([\w.:/-]+)=(.+)$/s.exec(argument) || fail(`${argument}: give HANDLER=COMMAND`)
  commands.set(name, command)
}
if (commands.size === 0) fail('worker.mjs: give HANDLER=COMMAND')
if (!existsSync(database)) fail(`there is no database ${database}: make it with fleet init`)
if (!(heartbeat > 0 && lease >= 3 * heartbeat)) fail('FLEET_LEASE must be three times FLEET_HEARTBEAT, or more')

// Values

/** Any text as SQL: its bytes, so that no content can end the literal. */
const text = (value) => (value === null ? 'NULL' : `CAST(x'${Buffer.from(String(value)).toString('hex')}' AS TEXT)`)

const after = (seconds, from = 'now') =>
  `strftime('%Y-%m-%dT%H:%M:%fZ', ${from}, printf('%+.3f seconds', ${seconds}))`

/** Runs SQL in one connection; every row that it prints is one JSON value. */
function sql(statements) {
  return new Promise((resolve, reject) => {
    const shell = spawn('sqlite3', ['-batch', '-init', '/dev/null', '-bail', '-cmd', '.timeout 10000', database], {
      detached: true, // ^C is for the worker, not for a transaction in progress
    })
    const printed = []
    let complaint = ''
    shell.stdout.on('data', (part) => printed.push(part))
    shell.stderr.on('data', (part) => (complaint += part))
    shell.stdin.on('error', () => {})
    shell.on('error', reject)
    shell.on('close', (code) => {
      if (code !== 0) return reject(new Error(complaint.trim() || `sqlite3 ended with ${code}`))
      resolve(Buffer.concat(printed).toString().split('\n').filter(Boolean).map((line) => JSON.parse(line)))
    })
    shell.stdin.end(
      `CREATE TEMP VIEW clock AS SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now') AS now;\n${CLAIMABLE}\n${statements}`,
    )
  })
}

/** Takes the write lock with the first statement: a transaction that reads first could not go on to write. */
const transaction = (statements) => sql(`BEGIN IMMEDIATE;\n${statements}\nCOMMIT;`)

/** The first task of each lane that a worker may claim from. While there are limits by key, tasks with a key are passed
 *  over: their limits are kept by workers that know them. */
const CLAIMABLE = `
CREATE TEMP VIEW claimable AS
SELECT q.id, q.rank, w.worker_id, w.incarnation
FROM clock, worker_registry w, claim_lane l JOIN work_queue q ON q.id = (
    SELECT p.id FROM work_queue p
    WHERE p.status = 'pending' AND p.lane_id = l.lane_id
        AND (p.concurrency_key IS NULL OR NOT EXISTS (SELECT 1 FROM limit_setting))
        AND (p.deadline_at IS NULL OR p.deadline_at > now)
        AND (p.avoid_worker IS NULL OR p.avoid_worker <> w.worker_id OR p.available_at <= ${after('-w.lease_seconds')})
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
    AND (json_extract(l.capability_key, '$.prefers') IS NULL
        OR coalesce(q.available_at, q.created_at) <= ${after(-5)})
    AND NOT EXISTS (SELECT 1 FROM queue_setting s WHERE s.queue = l.queue AND s.paused
        AND (s.paused_until IS NULL OR s.paused_until > now));`

// The life of the worker: one incarnation after the other, and what the last heartbeats have said of it.

let life = null // {incarnation, me, lost, draining, interrupted, restart}
let execution = null // {id, token, cancelled, stop}
let signals = 0
let wake = () => {}

function readable(read) {
  try {
    return read()
  } catch {
    return null // not Linux: then the lease alone says whether the process lives
  }
}

const startTicks = () => readFileSync('/proc/self/stat', 'utf8').replace(/.*\) /s, '').split(' ')[19]

async function register() {
  const incarnation = randomBytes(16).toString('hex')
  const who = [
    hostname(),
    readable(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()),
    readable(() => readlinkSync('/proc/self/ns/pid')),
    process.pid,
    readable(startTicks),
  ]
  const what = [env.FLEET_CAPABILITIES || '{}', env.FLEET_QUEUES || '[]', JSON.stringify([...commands.keys()])]
  const rows = await transaction(`
    DELETE FROM worker_registry WHERE worker_id = ${text(workerId)} AND status IN ('terminated', 'lost');
    INSERT INTO worker_registry (worker_id, incarnation, pool, status, started_at, last_heartbeat, idle_since,
        heartbeat_interval_seconds, lease_seconds, lease_expires_at, slots, host, boot_id, pid_namespace, pid,
        pid_start_ticks, capabilities_json, queues_json, handlers_json, version)
    SELECT ${text(workerId)}, ${text(incarnation)}, ${text(env.FLEET_POOL || 'default')}, 'active', now, now, now,
        ${heartbeat}, ${lease}, ${after(lease)}, 1, ${who.map(text).join(', ')}, ${what.map(text).join(', ')}, 'worker.mjs'
    FROM clock WHERE true ON CONFLICT (worker_id) DO NOTHING RETURNING 1;
    INSERT INTO fleet_event (at, kind, subject, text)
    SELECT now, 'worker_registered', ${text(workerId)}, 'worker.mjs' FROM clock WHERE changes() = 1;`)
  if (rows.length === 0) fail(`worker id ${workerId} is in use: give another FLEET_WORKER_ID`, 1)
  life = { incarnation, me: `worker_id = ${text(workerId)} AND incarnation = ${text(incarnation)}` }
}

/** What runs in a life's name. */
const running = ({ incarnation }) =>
  `status = 'running' AND worker = ${text(workerId)} AND incarnation = ${text(incarnation)}`

const isNamed = (of) => `EXISTS (SELECT 1 FROM work_queue
    WHERE id = json_extract(worker_command.arguments_json, '$.task_id') AND ${running(of)})`

/** A heartbeat: it renews the lease, answers orders, and brings news. */
async function beat(of) {
  const mine = `worker_command.incarnation = ${text(of.incarnation)}`
  const news = await transaction(`
    UPDATE worker_registry SET last_heartbeat = now, lease_expires_at = ${after('lease_seconds')},
        current_task_id = held, idle_since = CASE WHEN held IS NULL THEN coalesce(idle_since, now) END
    FROM clock, (SELECT min(id) AS held FROM work_queue WHERE ${running(of)})
    WHERE ${of.me} AND status IN ('active', 'terminating');
    SELECT json_object('lost', 1) WHERE changes() = 0;
    UPDATE worker_command SET status = 'taken', taken_by = ${text(workerId)}, taken_at = now FROM clock
    WHERE ${mine} AND status = 'pending' AND expires_at > now;
    UPDATE work_queue SET cancel_requested = true WHERE ${running(of)} AND id IN (
        SELECT json_extract(arguments_json, '$.task_id') FROM worker_command
        WHERE ${mine} AND status = 'taken' AND kind = 'cancel_task');
    UPDATE worker_command SET status = 'succeeded', finished_at = now,
        reply_json = json_object('at', now, 'status', w.status, 'task_id', w.current_task_id, 'pid', w.pid)
    FROM clock, worker_registry w
    WHERE ${mine} AND worker_command.status = 'taken' AND w.worker_id = ${text(workerId)}
        AND w.incarnation = ${text(of.incarnation)}
        AND (kind = 'get_status' OR kind = 'restart' AND w.status = 'active' OR kind = 'cancel_task' AND ${isNamed(of)})
    RETURNING json_object(kind, 1);
    UPDATE worker_command SET status = 'failed', finished_at = now,
        error_code = CASE kind WHEN 'restart' THEN 409 WHEN 'cancel_task' THEN 404 ELSE 501 END,
        error_message = CASE kind WHEN 'restart' THEN 'it is draining: it ends anyway'
            WHEN 'cancel_task' THEN 'this task does not run here' ELSE 'unsupported: ' || kind END
    FROM clock WHERE ${mine} AND status = 'taken';
    SELECT json_object('cancelled', json_array(id, claim_token)) FROM work_queue WHERE ${running(of)} AND cancel_requested;
    SELECT json_object('draining', 1, 'interrupted', drain_deadline_at <= now) FROM worker_registry, clock
    WHERE ${of.me} AND status = 'terminating';`)
  for (const { cancelled, ...rest } of news) {
    Object.assign(of, rest)
    if (cancelled && execution?.id === cancelled[0] && execution.token === cancelled[1]) execution.cancelled = true
  }
}

/** Beats as long as the event loop turns: a process that is stopped sends none. */
async function beatOn() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, heartbeat * 1000).unref())
    await beat(life).catch((error) => console.error(`the heartbeat failed: ${error.message}`))
    if (life.lost || life.interrupted || execution?.cancelled) execution?.stop()
    if (life.lost || life.draining || life.restart) wake()
  }
}

/** Claims the next task; null when there is none. What runs in its name already is a claim whose reply was lost. */
async function claim() {
  const [anything] = await sql(`SELECT EXISTS (SELECT 1 FROM claimable WHERE ${life.me})
    OR EXISTS (SELECT 1 FROM work_queue WHERE ${running(life)});`)
  if (!anything) return null
  const [task] = await transaction(`
    UPDATE work_queue SET status = 'running', worker = ${text(workerId)}, incarnation = ${text(life.incarnation)},
        claim_token = claim_token + 1, attempt = attempt + 1, claimed_at = now, started_at = now,
        progress = NULL, progress_text = NULL, finished_at = NULL
    FROM clock
    WHERE status = 'pending' AND id = (SELECT id FROM claimable WHERE ${life.me} ORDER BY rank, id LIMIT 1)
        AND NOT EXISTS (SELECT 1 FROM work_queue WHERE ${running(life)});
    SELECT json_object('id', id, 'token', claim_token, 'attempt', attempt, 'task', task, 'limit', timeout_seconds,
        'payload', coalesce(payload_json, (SELECT payload_json FROM work_payload WHERE task_id = id), '{}'))
    FROM work_queue WHERE ${running(life)} ORDER BY id LIMIT 1;`)
  return task ?? null
}

/** Executes a claimed task; resolves to how its command ended. */
function execute(task) {
  return new Promise((resolve) => {
    const child = spawn('sh', ['-c', commands.get(task.task)], {
      detached: true, // a process group of its own, which can be ended as a whole
      env: { ...env, FLEET_TASK_ID: String(task.id), FLEET_ATTEMPT: String(task.attempt) },
    })
    const ended = { printed: [], bytes: 0, complaint: '', timedOut: false, code: null }
    const signal = (name) => readable(() => process.kill(-child.pid, name))
    const stop = () => {
      signal('SIGTERM')
      timers.push(setTimeout(signal, GRACE, 'SIGKILL'))
    }
    const timers = []
    if (task.limit) timers.push(setTimeout(() => stop((ended.timedOut = true)), task.limit * 1000))
    child.stdout.on('data', (part) => (ended.bytes += part.length) <= MOST_BYTES && ended.printed.push(part))
    child.stderr.on('data', (part) => (ended.complaint = (ended.complaint + part).slice(-4000)))
    child.stdin.on('error', () => {}) // it need not read its payload
    child.stdin.end(task.payload)
    child.on('error', (error) => resolve(Object.assign(ended, { complaint: error.message })))
    child.on('close', (code) => {
      timers.forEach(clearTimeout)
      resolve(Object.assign(ended, { code }))
    })
    execution = { ...task, stop, cancelled: false }
  })
}

/** Says how an execution ended: [end, kind, why]. */
function verdict(task, ended) {
  if (execution.cancelled) return ['failed', 'cancelled', 'cancelled by request while it ran']
  if (life.interrupted || signals > 1) return ['interrupted', 'interrupted', `worker ${workerId} was stopped`]
  if (ended.timedOut) return ['failed', 'timeout', `timed out after ${task.limit} s`]
  if (ended.code !== 0) {
    const why = ended.complaint.trim().split('\n').pop().replaceAll('\0', '')
    return ['failed', 'exit_status', why || `exit status ${ended.code}`]
  }
  if (ended.bytes > MOST_BYTES) return ['failed', 'bad_result', `the result is larger than ${MOST_BYTES} bytes`]
  return ['done', null, null]
}

/** Writes how a task ended, again and again until the database answers. No row: the claim is gone, nothing is changed. */
async function record(task, ended) {
  const [end, kind, why] = verdict(task, ended)
  const fence = `id = ${task.id} AND claim_token = ${task.token} AND incarnation = ${text(life.incarnation)}
    AND status = 'running'`
  const result = Buffer.concat(ended.printed).toString().replaceAll('\0', '').trimEnd()
  const statements = end === 'done' ? completion(fence, result) : giving(fence, end, kind, why)
  while (!life.lost) {
    try {
      await transaction(statements + release(task))
      break
    } catch (error) {
      console.error(`task ${task.id} could not be recorded: ${error.message}`)
      await rest()
    }
  }
  execution = null
}

const completion = (fence, result) => `
    UPDATE work_queue SET status = 'done', finished_at = now, avoid_worker = NULL, error = NULL, error_kind = NULL,
        traceback = NULL, result_json = CASE WHEN printed = '' THEN NULL WHEN json_valid(printed) THEN printed
            ELSE json_quote(printed) END
    FROM clock, (SELECT ${text(result)} AS printed) WHERE ${fence};
    UPDATE worker_registry SET tasks_done = tasks_done + changes() WHERE ${life.me};`

/** A failed attempt is tried again while there are some left; an interrupted one does not count, ten times. */
const giving = (fence, end, kind, why) => `
    CREATE TEMP TABLE verdict AS
    SELECT q.*, now AS ended_at, '${end}' AS outcome, ${text(why)} AS why, '${kind}' AS kind,
        '${end === 'interrupted' ? 'pending' : 'scheduled'}' AS becomes, ${after(end === 'interrupted' ? 0 : WAIT())} AS due_at
    FROM work_queue q, clock WHERE ${fence};
    UPDATE verdict SET becomes = 'failed' WHERE becomes = 'scheduled' AND attempt >= max_attempts;
    UPDATE verdict SET becomes = 'failed', kind = 'interrupted_too_often'
    WHERE becomes = 'pending' AND interruptions >= 10;
    UPDATE verdict SET becomes = 'failed', kind = 'deadline_exceeded' WHERE becomes <> 'failed' AND deadline_at <= due_at;
    UPDATE verdict SET becomes = 'failed', kind = 'duplicate' WHERE becomes <> 'failed' AND dedupe_scope = 'waiting'
        AND EXISTS (SELECT 1 FROM work_queue w WHERE w.task = verdict.task AND w.dedupe_key = verdict.dedupe_key
            AND w.status IN ('blocked', 'scheduled', 'pending'));
    UPDATE verdict SET becomes = 'cancelled', outcome = 'cancelled', kind = 'cancelled' WHERE cancel_requested;
    INSERT INTO work_attempt (task_id, claim_token, attempt, worker, incarnation, outcome, error, error_kind,
        started_at, ended_at)
    SELECT id, claim_token, attempt, worker, incarnation, outcome, why, kind, started_at, ended_at FROM verdict
    WHERE true ON CONFLICT DO NOTHING;
    UPDATE work_queue SET status = v.becomes, result_json = NULL, traceback = NULL,
        error = iif(v.becomes = 'pending', v.error, why), error_kind = iif(v.becomes = 'pending', v.error_kind, kind),
        attempt = v.attempt - (outcome = 'interrupted'), interruptions = v.interruptions + (outcome = 'interrupted'),
        available_at = iif(v.becomes = 'scheduled', due_at, v.available_at),
        finished_at = iif(is_final, ended_at, NULL), started_at = iif(is_final, v.started_at, NULL),
        claimed_at = iif(is_final, v.claimed_at, NULL), worker = iif(is_final, v.worker, NULL),
        incarnation = iif(is_final, v.incarnation, NULL)
    FROM (SELECT *, becomes IN ('failed', 'cancelled') AS is_final FROM verdict) v
    WHERE work_queue.id = v.id AND work_queue.claim_token = v.claim_token
        AND work_queue.incarnation = v.incarnation AND work_queue.status = 'running';
    UPDATE worker_registry SET tasks_failed = tasks_failed + changes() WHERE ${life.me} AND '${end}' = 'failed';`

/** Seconds until the next attempt: exponential with full jitter, or the fixed wait that the task asks for. */
const WAIT = () => `CASE WHEN json_extract(retry_json, '$.wait') = 'fixed' THEN json_extract(retry_json, '$.multiplier')
    ELSE ${Math.random()} * min(coalesce(json_extract(retry_json, '$.max'), 600),
        coalesce(json_extract(retry_json, '$.multiplier'), 1) * (1 << min(attempt - 1, 20))) END`

/** Tasks that wait for this one: whoever claims next, or maintenance, lets them go. */
const release = ({ id, token }) => `
    INSERT INTO work_release (task_id) SELECT id FROM work_queue
    WHERE id = ${id} AND claim_token = ${token} AND status IN ('done', 'failed', 'cancelled')
        AND EXISTS (SELECT 1 FROM work_dependency WHERE parent = ${id} AND NOT satisfied) ON CONFLICT DO NOTHING;`

async function leave(why) {
  await transaction(`
    UPDATE worker_registry SET status = 'terminated', stopped_at = now, current_task_id = NULL, stop_reason = ${text(why)}
    FROM clock WHERE ${life.me} AND status IN ('active', 'terminating');
    INSERT INTO fleet_event (at, kind, subject, text)
    SELECT now, 'worker_ended', ${text(workerId)}, ${text(why)} FROM clock WHERE changes() = 1;`)
}

/** Waits a little; news end it. */
const rest = () =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, idle)
    wake = () => resolve(clearTimeout(timer))
  })

for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP']) {
  process.on(name, () => {
    signals += 1
    if (signals > 1) execution?.stop()
    wake()
  })
}

await register()
beatOn()
for (;;) {
  if (life.lost) {
    console.error(`worker ${workerId} was given up: it begins a new life`)
    await register()
  }
  if (life.draining || signals > 0) break
  if (life.restart) {
    await leave('restarted by an order')
    await register()
  }
  const task = await claim().catch((error) => console.error(`nothing could be claimed: ${error.message}`))
  if (task) await record(task, await execute(task))
  else await rest()
}
await leave(life.draining ? 'drained' : 'told by a signal')
process.exit(0)
