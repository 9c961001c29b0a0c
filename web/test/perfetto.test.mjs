// Perfetto's own trace processor reads what `report --perfetto` writes, and four fixed queries give the run's own numbers.
// Skipped, and said so, where the processor cannot be had.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { program, scratch } from './page.mjs';
import { TraceProcessor, cache, files } from './trace-processor.mjs';

function missing() {
  if (!existsSync(program)) return `no program at ${program} (WARMCORE names another one)`;
  try {
    files();
    return false;
  } catch (error) {
    return `Perfetto's trace processor cannot be had: ${error.message.split('\n')[0]}`;
  }
}
const skip = missing();

/** A Python with Perfetto's own package, whose schema is the full one; made once. */
function python() {
  const made = join(cache, '..', 'perfetto-schema-0.59.1');
  const program_ = join(made, 'bin/python');
  const options = { stdio: ['ignore', 'pipe', 'pipe'], timeout: 180_000 };
  const usable = () => {
    try {
      execFileSync(program_, ['-c', 'import perfetto.protos.perfetto.trace.perfetto_trace_pb2'], options);
      return true;
    } catch {
      return false;
    }
  };
  if (!usable()) {
    execFileSync('python3', ['-m', 'venv', '--clear', made], options);
    execFileSync(program_, ['-m', 'pip', 'install', '--quiet', 'perfetto==0.59.1', 'protobuf==7.36.2'], options);
  }
  return program_;
}

function noSchema() {
  if (!existsSync(program)) return `no program at ${program} (WARMCORE names another one)`;
  try {
    python();
    return false;
  } catch (error) {
    return `Perfetto's Python package cannot be had (python3-venv and pip's index are needed): ${error.message.split('\n')[0]}`;
  }
}

test('the full schema knows every field of a trace', { skip: noSchema() }, (t) => {
  const work = scratch(t);
  work.run('compare -m 2s1n2l4c2t -w hackbench:-T,-p,-f4,-g2,-l40 -s cache-aware --trials 1 --out run');
  work.run('report run --perfetto trace.pftrace');
  const decode = (name) => {
    const script = fileURLToPath(new URL('full_schema.py', import.meta.url));
    return JSON.parse(execFileSync(python(), [script, work.join(name)]).toString());
  };
  const found = decode('trace.pftrace');
  assert.deepEqual(found.unknown, []);
  for (const kind of ['clock_snapshot', 'system_info', 'process_tree', 'track_descriptor', 'track_event', 'ftrace_events']) {
    assert.ok(found.kinds[kind] > 0, `${kind} in ${JSON.stringify(found.kinds)}`);
  }
  assert.equal(Object.values(found.kinds).reduce((a, b) => a + b), found.packets, 'nothing else is written');
  // A packet with a field that nobody knows would be found.
  const stranger = Buffer.from([0x0a, 0x04, 0x88, 0xe6, 0x03, 0x01]);
  writeFileSync(work.join('strange.pftrace'), Buffer.concat([readFileSync(work.join('trace.pftrace')), stranger]));
  assert.deepEqual(decode('strange.pftrace').unknown, ['Trace.packet.7777']);
});

// What runs at the end of the run has not finished: it would run on.
const SLICES_PER_CPU = `
  SELECT cpu, sum(ts + dur < trace_end() OR end_state != 'R') AS slices, sum(dur) AS run_ns
  FROM sched JOIN thread USING (utid) WHERE tid != 0 GROUP BY cpu ORDER BY cpu`;

// A thread that runs at once may have no row for its wait of no length.
const WAKEUP_LATENCY = `
  WITH waits AS (SELECT dur FROM thread_state WHERE state = 'R' AND dur >= 0),
    at_once AS (
      SELECT utid FROM thread_state JOIN thread USING (utid) WHERE tid != 0 GROUP BY utid
      HAVING min(ts) < coalesce(min(iif(state = 'R', ts, NULL)), 1e18))
  SELECT (SELECT count(*) FROM waits) + (SELECT count(*) FROM at_once) AS wakeups,
    (SELECT sum(dur) FROM waits) AS sum_ns, (SELECT max(dur) FROM waits) AS max_ns`;

const PREEMPTIONS = `SELECT count(*) AS waits FROM thread_state WHERE state = 'R+'`;

const MIGRATIONS = `
  SELECT
    (SELECT count(*) FROM ftrace_event WHERE name = 'sched_migrate_task') AS events,
    (SELECT count(*) FROM (
      SELECT cpu, lag(cpu) OVER (PARTITION BY utid ORDER BY ts) AS before
      FROM sched JOIN thread USING (utid) WHERE tid != 0
    ) WHERE before IS NOT NULL AND before != cpu) AS ran`;

const SCORES = `
  SELECT t.name AS track, count(*) AS samples, min(value) AS least, max(value) AS most
  FROM counter c JOIN track t ON c.track_id = t.id WHERE t.name GLOB 'vruntime_ns *' OR t.name GLOB 'vlag_ns *' GROUP BY t.name`;

const COUNTERS = `
  WITH values_ AS (
    SELECT t.name AS track, value, ts, lead(ts, 1, trace_end()) OVER (PARTITION BY track_id ORDER BY ts, c.id) AS until
    FROM counter c JOIN track t ON c.track_id = t.id WHERE t.name GLOB '* runnable')
  SELECT track, count(*) AS samples, max(value) AS most, sum(value * (until - ts)) AS task_ns
  FROM values_ GROUP BY track ORDER BY track`;

/** Runs a workload under one scheduler, and opens the trace of its one trial. */
async function traced(t, words) {
  const work = scratch(t);
  work.run(`compare ${words} --trials 1 --out run`);
  work.run('report run --perfetto trace.pftrace --svg figures');
  const trial = work.json('run/trials/s0-t0000.json');
  const csv = readFileSync(work.join(`figures/thread-cpu-0-${trial.scheduler}.csv`), 'utf8').trim().split('\n').slice(1);
  const cpus = work.json('trace.topology.json').llc.length;
  const name = { cfs: 'score-0-cfs-vruntime-ns', eevdf: 'score-0-eevdf-vlag-ns' }[trial.scheduler];
  const scores = readFileSync(work.join(`figures/${name}.csv`), 'utf8').trim().split('\n').slice(1).map((line) => line.split(',').slice(-5));
  return { scores, cpus, processor: await TraceProcessor.open(readFileSync(work.join('trace.pftrace'))), measures: trial.measures, trial, csv };
}

const THREADS = `
  SELECT tid, count(*) AS threads, min(pid) AS pid, min(thread.name) AS name, min(process.name) AS process
  FROM thread LEFT JOIN process USING (upid) WHERE tid != 0 GROUP BY tid ORDER BY tid`;

const PROCESSES = `SELECT pid, count(*) AS processes FROM process WHERE pid != 0 GROUP BY pid ORDER BY pid`;

test('a task is one thread of its process, and every process is there once', { skip }, async (t) => {
  const work = scratch(t);
  // Threads of one process, created by it and by the launcher, and processes.
  const words = 'hackbench:-T,-p,-f2,-g1,-l20+spin:-n3,-d5ms+pingpong:-n2,-l20';
  work.run(`sim -m 1s1n2l4c1t -w ${words} -s eevdf --trace full --out run`);
  work.run('report run --perfetto trace.pftrace --events events.txt');
  const processor = await TraceProcessor.open(readFileSync(work.join('trace.pftrace')));
  const faults = processor.query(`SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0`);
  assert.deepEqual(faults, []);
  const created = readFileSync(work.join('events.txt'), 'utf8').match(/event=fork task=\S+/g);
  const names = new Map(created.map((text) => text.split('task=')[1].split('/')).map(([name, id]) => [Number(id) + 1, name]));
  const threads = processor.query(THREADS);
  assert.deepEqual(threads.map(({ tid, threads, name }) => [tid, threads, name]), [...names].map(([tid, name]) => [tid, 1, name]));
  const spinners = threads.filter(({ name }) => name.startsWith('spin'));
  assert.equal(spinners.length, 3);
  assert.ok(spinners.every(({ pid }) => pid === spinners[0].tid), JSON.stringify(spinners));
  assert.equal(spinners[0].process, 'spin:-n3,-d5ms');
  const hackbench = threads.filter(({ process }) => process.startsWith('hackbench'));
  assert.deepEqual([hackbench.length, new Set(hackbench.map(({ pid }) => pid)).size], [5, 1]);
  const pids = [...new Set(threads.map(({ pid }) => pid))].sort((a, b) => a - b);
  assert.deepEqual(processor.query(PROCESSES), pids.map((pid) => ({ pid, processes: 1 })));
  assert.equal(pids.length, 1 + 1 + 4);
});

const near = (a, b, what) => assert.ok(Math.abs(a - b) <= 1e-6 * Math.max(1, Math.abs(b)), `${what}: ${a} and ${b}`);

for (const words of [
  '-m 2s1n2l4c2t -w hackbench:-T,-p,-f4,-g2,-l20 -s cfs',
  '-m 2s1n2l4c1t -w spin:-n24,-p0,-u5ms,-d60ms -s eevdf',
]) {
  test(`four queries on the trace give the numbers of the run: ${words}`, { skip }, async (t) => {
    const { scores, cpus, processor, measures, trial, csv } = await traced(t, words);
    const faults = processor.query(`SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0`);
    assert.deepEqual(faults, [], 'the processor understood everything');

    const slices = processor.query(SLICES_PER_CPU);
    assert.equal(slices.reduce((sum, row) => sum + row.slices, 0), measures.slices);
    assert.equal(slices.reduce((sum, row) => sum + row.run_ns, 0), measures.run_ns);
    const ran = new Map();
    for (const line of csv) {
      const [, cpu, , ns] = line.split(',');
      ran.set(Number(cpu), (ran.get(Number(cpu)) ?? 0) + Number(ns));
    }
    assert.deepEqual(slices.map((row) => [row.cpu, row.run_ns]), [...ran].sort((a, b) => a[0] - b[0]));

    const [latency] = processor.query(WAKEUP_LATENCY);
    assert.equal(latency.wakeups, measures.wakeups);
    near(latency.sum_ns / latency.wakeups, measures.wakeup_mean_ns, 'mean wakeup latency');
    assert.equal(latency.max_ns, measures.wakeup_max_ns);

    assert.equal(processor.query(PREEMPTIONS)[0].waits, measures.involuntary_switches, 'preempted threads wait as R+');

    const [migrations] = processor.query(MIGRATIONS);
    assert.equal(migrations.events, measures.migrations_event);
    assert.equal(migrations.ran, measures.migrations_ran);

    // What tasks are ranked by: the figure keeps the range of the samples of each stretch of time, the trace all of them.
    const drawn = new Map();
    for (const [task, , low, , high] of scores) drawn.set(task, [...(drawn.get(task) ?? []), [Number(low), Number(high)]]);
    const ranked = new Map(processor.query(SCORES).map((row) => [row.track.split(' ')[1], row]));
    assert.deepEqual([...ranked.keys()].sort(), [...drawn.keys()].sort());
    for (const [task, ranges] of drawn) {
      const { samples, least, most } = ranked.get(task);
      assert.ok(samples >= ranges.length, task);
      assert.ok(least <= Math.min(...ranges.map(([low]) => low)) && most >= Math.max(...ranges.map(([, high]) => high)), task);
    }

    const counters = processor.query(COUNTERS);
    const perCpu = counters.filter((row) => row.track.startsWith('cpu'));
    const perLlc = counters.filter((row) => row.track.startsWith('llc'));
    assert.ok(perCpu.length > 0 && perLlc.length > 0);
    const mean = (rows) => rows.reduce((sum, row) => sum + row.task_ns, 0) / trial.elapsed_ns;
    near(mean(perCpu), mean(perLlc), 'tasks per CPU and per LLC');
    near(mean(perCpu) / cpus, measures.runqueue_length_mean, 'tasks per CPU');
    assert.equal(Math.max(...perCpu.map((row) => row.most)), measures.runqueue_length_max);
  });
}
