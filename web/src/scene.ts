// One trial as the page holds it: slices in typed arrays, by CPU and time. The writer's side and the layout are in
// crates/report/src/packed.rs.

import { beside, setPalette, type Palette } from './colour';
import { Reader, unpack } from './data';

/** Where CPUs lie in the machine; columns by CPU. */
export interface Machine {
  /** CPUs in the order in which they are drawn. */
  order: number[];
  /** The system's numbers. */
  os: number[];
  core: number[];
  llc: number[];
  node: number[];
  socket: number[];
  /** The system's numbers by dense number, where they differ. */
  node_os?: number[];
  socket_os?: number[];
}

/** What an LLC, a node or a socket is called: nodes and sockets by the system's numbers. */
export function placeName(machine: Machine, kind: 'llc' | 'node' | 'socket', dense: number): string {
  const numbers = kind === 'llc' ? undefined : machine[`${kind}_os`];
  return `${kind}${numbers?.[dense] ?? dense}`;
}

export interface RunDocument {
  name: string;
  machine: Machine;
  scenes: string[];
  slices: number[];
}

interface Header {
  scheduler: string;
  trial: number;
  seed: string;
  /** Beginning of what the verdict's measure is of: the end of the warm-up, or a start signal. */
  measured_from_ns: number;
  end_ns: number;
  slice_count: number;
  overview_bins: number;
  length_bins: number;
  task_names: string[];
  /** Tasks of the run itself; those after them ran beside it. */
  tasks_own: number;
  task_groups: number[];
  task_processes: number[];
  groups: string[];
  decisions: string[];
  decision_values: string[];
  decisions_total: number;
  /** Slices that end after the warm-up. */
  slices_measured: number;
  /** Decisions after the warm-up. */
  decisions_measured: number;
  /** Consecutive slices of one task on different CPUs after the warm-up, as in the tables. */
  migrations_ran: number;
  wakes_total: number;
  move_kinds: string[];
  /** Why a move of each kind happens. */
  move_reasons: string[];
  slice_ends: string[];
  place_reasons: string[];
  /** Row of the machine's map that each task belongs to. */
  task_map_rows: number[];
  counters: string[];
  counter_bins: number;
  /** What a row of counters stands for. */
  counter_places: 'cpu' | 'llc';
  columns: [string, number][];
}

/** Decisions or moves: one entry per mark in every column. */
export interface Marks {
  time: Float64Array;
  a: Uint32Array;
  b: Uint32Array;
  c: Uint32Array;
  value: Float64Array;
}

/** What ran most in each of equal stretches of time, by CPU. */
export interface Level {
  bins: number;
  /** Task + 1; 0 is nobody. */
  task: Uint32Array;
  /** Share of the stretch with any task, 0..255. */
  busy: Uint8Array;
}

export const IDLE = 0xffffffff;

export class Scene {
  readonly cpus: number;
  readonly tasks: number;
  /** First slice of each CPU, and one more. */
  readonly first: Uint32Array;
  readonly start: Float64Array;
  readonly end: Float64Array;
  readonly task: Uint32Array;
  readonly cpu: Uint16Array;
  readonly why: Uint8Array;
  readonly delay: Float64Array | undefined;
  /** Reason + 1 for which a wakeup placed the task there, 0 if none did or nobody told. */
  readonly reason: Uint16Array | undefined;
  /** LLC + 1 that the slice's task came from, where that was another one. */
  readonly origin: Uint16Array;
  /** Run time on the slice's CPU before it. */
  private readonly before: Float64Array;
  readonly lengths: Float32Array;
  /** By counter, place and stretch of time. */
  private readonly counts: Float64Array;
  private readonly places: number;
  /** Decisions: CPU, task + 1, decision, value. */
  readonly decisions: Marks;
  /** Moves: task, from, to, kind. */
  readonly moves: Marks;
  /** Wakeups: waker + 1 or 0 for an interrupt, its CPU, task, the CPU it was queued on. */
  readonly wakes: Marks;
  /** From fine to coarse. */
  readonly levels: Level[];
  private byTask: { first: Uint32Array; slices: Uint32Array } | undefined;

  constructor(
    readonly header: Header,
    readonly machine: Machine,
    columns: Map<string, Uint8Array>,
  ) {
    this.cpus = machine.llc.length;
    this.tasks = header.task_names.length;
    const counts = columns.get('cpu_counts');
    const count = counts ? header.slice_count : 0;
    this.first = new Uint32Array(this.cpus + 1);
    this.start = new Float64Array(count);
    this.end = new Float64Array(count);
    this.task = new Uint32Array(count);
    this.cpu = new Uint16Array(count);
    this.why = new Uint8Array(count);
    const delays = columns.get('delays');
    this.delay = delays ? new Float64Array(count) : undefined;
    this.reason = columns.has('reasons') ? new Uint16Array(count) : undefined;
    this.origin = new Uint16Array(count);
    this.before = new Float64Array(count);
    if (counts) this.readSlices(columns, counts);
    this.lengths = this.readLengths(columns.get('lengths'));
    this.places = header.counter_places === 'cpu' ? this.cpus : Math.max(0, ...machine.llc) + 1;
    this.counts = this.readCounters(columns.get('counters'));
    this.decisions = readMarks(columns.get('marks'), true);
    this.moves = readMarks(columns.get('moves'), false);
    this.wakes = readMarks(columns.get('wakes'), false);
    this.levels = this.makeLevels(columns.get('overview'));
  }

  /** Whether single slices are known. */
  get exact(): boolean {
    return this.start.length > 0 || this.header.slice_count === 0;
  }

  private readSlices(columns: Map<string, Uint8Array>, counts: Uint8Array): void {
    const empty = new Uint8Array();
    const reader = new Reader(counts);
    for (let cpu = 0; cpu < this.cpus; cpu++) this.first[cpu + 1] = this.first[cpu] + reader.next();
    const gaps = new Reader(columns.get('gaps') ?? empty);
    const runs = new Reader(columns.get('runs') ?? empty);
    const tasks = new Reader(columns.get('tasks') ?? empty);
    const delays = this.delay && new Reader(columns.get('delays') ?? empty);
    const reasons = this.reason && new Reader(columns.get('reasons') ?? empty);
    const origins = new Reader(columns.get('origins') ?? empty);
    const { start, end, task, why, delay, reason, origin, before } = this;
    for (let cpu = 0; cpu < this.cpus; cpu++) {
      let now = 0;
      let who = 0;
      let busy = 0;
      this.cpu.fill(cpu, this.first[cpu], this.first[cpu + 1]);
      for (let i = this.first[cpu]; i < this.first[cpu + 1]; i++) {
        now += gaps.next();
        start[i] = now;
        const run = runs.next();
        why[i] = run % 4;
        now += Math.floor(run / 4);
        end[i] = now;
        before[i] = busy;
        busy += now - start[i];
        origin[i] = origins.next();
        who += tasks.nextSigned();
        task[i] = who;
        if (delay && delays) delay[i] = delays.next() - 1;
        if (reason && reasons) reason[i] = reasons.next();
      }
    }
  }

  private readLengths(column: Uint8Array | undefined): Float32Array {
    const lengths = new Float32Array(this.cpus * this.header.length_bins);
    if (!column) return lengths;
    const reader = new Reader(column);
    for (let at = 0; !reader.done; ) {
      const count = reader.next();
      const value = reader.next() / 16;
      reader.next();
      lengths.fill(value, at, at + count);
      at += count;
    }
    return lengths;
  }

  private readCounters(column: Uint8Array | undefined): Float64Array {
    const { counters, counter_bins } = this.header;
    const counts = new Float64Array(counters.length * this.places * counter_bins);
    const reader = new Reader(column ?? new Uint8Array());
    for (let at = 0; !reader.done; ) {
      const count = reader.next();
      counts.fill(reader.next(), at, at + count);
      reader.next();
      at += count;
    }
    return counts;
  }

  /** What the place of a CPU counted in a stretch of time: the CPU, or its LLC on machines with very many CPUs. */
  counted(counter: number, cpu: number, bin: number): number {
    const place = this.header.counter_places === 'cpu' ? cpu : this.machine.llc[cpu];
    return this.counts[(counter * this.places + place) * this.header.counter_bins + bin] ?? 0;
  }

  /** What an LLC counted between two times, whole stretches of time. */
  countedIn(counter: number, llc: number, from: number, to: number): number {
    const { counter_bins: bins, end_ns } = this.header;
    const [first, last] = [Math.floor((from / end_ns) * bins), Math.min(bins, Math.ceil((to / end_ns) * bins))];
    let sum = 0;
    for (let place = 0; place < this.places; place++) {
      if ((this.header.counter_places === 'cpu' ? this.machine.llc[place] : place) !== llc) continue;
      const row = (counter * this.places + place) * bins;
      for (let bin = first; bin < last; bin++) sum += this.counts[row + bin];
    }
    return sum;
  }

  /** The largest value of a counter in any stretch of time. */
  mostCounted(counter: number): number {
    const size = this.places * this.header.counter_bins;
    return this.counts.subarray(counter * size, (counter + 1) * size).reduce((a, b) => Math.max(a, b), 0);
  }

  /** The pyramid: a finest level from slices or from the page's overview, then halves. */
  private makeLevels(overview: Uint8Array | undefined): Level[] {
    const bins = this.header.overview_bins;
    const finest: Level = { bins, task: new Uint32Array(this.cpus * bins), busy: new Uint8Array(this.cpus * bins) };
    if (overview) {
      const reader = new Reader(overview);
      for (let at = 0; !reader.done; ) {
        const count = reader.next();
        finest.task.fill(reader.next(), at, at + count);
        finest.busy.fill(reader.next(), at, at + count);
        at += count;
      }
    } else {
      this.binSlices(finest);
    }
    const levels = [finest];
    while (levels[levels.length - 1].bins > 512) levels.push(this.halve(levels[levels.length - 1]));
    return levels;
  }

  /** One pass over all slices. The longest slice of a bin stands for it; a bin's busy time is summed. */
  private binSlices(level: Level): void {
    const { first, start, end, task } = this;
    const scale = level.bins / Math.max(1, this.header.end_ns);
    const last = level.bins - 1;
    for (let cpu = 0; cpu < this.cpus; cpu++) {
      const row = cpu * level.bins;
      let bin = -1;
      let busy = 0;
      let most = 0;
      let who = 0;
      const close = (): void => {
        if (bin < 0) return;
        level.task[row + bin] = who;
        level.busy[row + bin] = Math.max(1, Math.min(255, Math.round(busy * 255)));
      };
      for (let i = first[cpu]; i < first[cpu + 1]; i++) {
        const from = start[i] * scale;
        const to = end[i] * scale;
        let at = Math.min(last, Math.floor(from));
        const until = Math.min(last, Math.floor(to));
        for (let left = from; at <= until; at++) {
          const right = at === until ? to : at + 1;
          if (at !== bin) {
            close();
            bin = at;
            busy = 0;
            most = -1;
          }
          const part = right - left;
          busy += part;
          if (part > most) {
            most = part;
            who = task[i] + 1;
          }
          left = right;
        }
      }
      close();
    }
  }

  private halve(fine: Level): Level {
    const bins = fine.bins / 2;
    const coarse: Level = { bins, task: new Uint32Array(this.cpus * bins), busy: new Uint8Array(this.cpus * bins) };
    for (let i = 0; i < coarse.task.length; i++) {
      const [a, b] = [fine.busy[2 * i], fine.busy[2 * i + 1]];
      coarse.task[i] = fine.task[a >= b ? 2 * i : 2 * i + 1];
      coarse.busy[i] = (a + b) / 2;
    }
    return coarse;
  }

  /** The coarsest level with at least that many bins in all. */
  level(bins: number): Level {
    let found = this.levels[0];
    for (const level of this.levels) if (level.bins >= bins) found = level;
    return found;
  }

  /** Index of the first slice of a CPU that ends after a time. */
  after(cpu: number, time: number): number {
    let [low, high] = [this.first[cpu], this.first[cpu + 1]];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[middle] > time) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** Run time on a CPU between two times. */
  busyIn(cpu: number, from: number, to: number): number {
    if (!this.exact) return this.runIn(cpu, from, to, () => {});
    const until = (time: number): number => {
      const slice = this.after(cpu, time);
      if (slice < this.first[cpu + 1]) return this.before[slice] + Math.max(0, time - this.start[slice]);
      return slice > this.first[cpu] ? this.before[slice - 1] + this.end[slice - 1] - this.start[slice - 1] : 0;
    };
    return until(to) - until(from);
  }

  /** Tells who ran for how long on a CPU between two times, stretch by stretch where single slices are not known; the sum. */
  runIn(cpu: number, from: number, to: number, tell: (task: number, run: number) => void): number {
    let sum = 0;
    if (this.exact) {
      const last = this.first[cpu + 1];
      for (let i = this.after(cpu, from); i < last && this.start[i] < to; i++) {
        const run = Math.min(to, this.end[i]) - Math.max(from, this.start[i]);
        sum += run;
        tell(this.task[i], run);
      }
      return sum;
    }
    const level = this.levels[0];
    const stretch = this.header.end_ns / level.bins;
    const last = Math.min(level.bins, Math.ceil(to / stretch));
    for (let bin = Math.floor(from / stretch); bin < last; bin++) {
      const who = level.task[cpu * level.bins + bin];
      if (who === 0) continue;
      const run = (level.busy[cpu * level.bins + bin] / 255) * stretch;
      sum += run;
      tell(who - 1, run);
    }
    return sum;
  }

  /** The slice that covers a time on a CPU. */
  at(cpu: number, time: number): number | undefined {
    const slice = this.after(cpu, time);
    return slice < this.first[cpu + 1] && this.start[slice] <= time ? slice : undefined;
  }

  /** Slices of each task in order of time; made when first needed. */
  slicesByTask(): { first: Uint32Array; slices: Uint32Array } {
    if (this.byTask) return this.byTask;
    const first = new Uint32Array(this.tasks + 1);
    for (const task of this.task) first[task + 1]++;
    for (let task = 0; task < this.tasks; task++) first[task + 1] += first[task];
    const slices = new Uint32Array(this.task.length);
    const next = first.slice();
    for (let i = 0; i < this.task.length; i++) slices[next[this.task[i]]++] = i;
    for (let task = 0; task < this.tasks; task++) {
      const own = slices.subarray(first[task], first[task + 1]);
      // Slices lie by CPU: a task that stayed on one is in order already.
      let sorted = true;
      for (let i = 1; i < own.length && sorted; i++) sorted = this.start[own[i]] >= this.start[own[i - 1]];
      if (!sorted) own.sort((a, b) => this.start[a] - this.start[b]);
    }
    this.byTask = { first, slices };
    return this.byTask;
  }

  /** The wakeup that led to a slice, if one did: the last of its task that came before it, and not before the task's slice before. */
  wakeOf(slice: number): number | undefined {
    const { time, c } = this.wakes;
    const task = this.task[slice];
    const since = this.start[slice] - Math.max(0, this.delay?.[slice] ?? 0);
    let [low, high] = [0, time.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (time[middle] > this.start[slice]) high = middle;
      else low = middle + 1;
    }
    for (let i = low - 1; i >= 0 && time[i] >= since; i--) if (c[i] === task) return i;
    return undefined;
  }

  /** The number of a task's colour. */
  colourOfTask(task: number): number {
    return task < this.header.tasks_own ? task : beside(this.taskName(task));
  }

  /** The number of a group's colour. */
  colourOfGroup(index: number): number {
    const first = this.header.task_groups.indexOf(index);
    return first < this.header.tasks_own ? index : beside(this.taskName(first));
  }

  taskName(task: number): string {
    return this.header.task_names[task] ?? 'idle';
  }
}

function readMarks(column: Uint8Array | undefined, decisions: boolean): Marks {
  const time: number[] = [];
  const columns: [number[], number[], number[]] = [[], [], []];
  const value: number[] = [];
  const reader = new Reader(column ?? new Uint8Array());
  for (let now = 0; !reader.done; ) {
    now += reader.next();
    time.push(now);
    for (const list of columns) list.push(reader.next());
    value.push(decisions ? reader.nextSigned() : reader.next());
  }
  const [a, b, c] = columns.map((list) => Uint32Array.from(list));
  return { time: Float64Array.from(time), a, b, c, value: Float64Array.from(value) };
}

interface Document {
  colours: Palette;
  runs: RunDocument[];
}

/** What the page is about; its colours are handed on. */
export function runs(): RunDocument[] {
  const text = document.getElementById('report')?.textContent;
  if (!text) return [];
  const document_ = JSON.parse(text) as Document;
  setPalette(document_.colours);
  return document_.runs;
}

const loading = new Map<string, Promise<Scene | undefined>>();

/** A scene; each is unpacked once. */
export function loadScene(id: string, machine: Machine): Promise<Scene | undefined> {
  let scene = loading.get(id);
  if (!scene) {
    scene = unpackScene(id, machine);
    loading.set(id, scene);
  }
  return scene;
}

async function unpackScene(id: string, machine: Machine): Promise<Scene | undefined> {
  const bytes = await unpack(id);
  if (!bytes) return undefined;
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length))) as Header;
  const columns = new Map<string, Uint8Array>();
  let at = 4 + length;
  for (const [name, size] of header.columns) {
    columns.set(name, bytes.subarray(at, at + size));
    at += size;
  }
  return new Scene(header, machine, columns);
}
