// Run time by row and column: what the heatmap draws. Rows are tasks or groups of tasks, some of them unfolded.

import { placeName, type Machine, type Scene } from '../scene';

/** `cluster` puts tasks together that ran most in the same LLC. */
export type RowsBy = 'task' | 'process' | 'group' | 'cluster';
export type ColumnsBy = 'cpu' | 'llc' | 'node' | 'socket';

export interface HeatRow {
  label: string;
  /** Name of the group that it stands for, or that its task belongs to. */
  group: string;
  kind: 'group' | 'task';
  unfolded: boolean;
}

export interface Heat {
  rows: HeatRow[];
  columns: string[];
  /** LLC or other place of each column. */
  places: number[];
  /** Nanoseconds, row by row. */
  run: Float64Array;
  sums: Float64Array;
  /** The largest share of its row's run time in any cell. */
  most: number;
}

/** Run time of every task in every column between two times. */
function runTimes(scene: Scene, from: number, to: number, columnOf: ArrayLike<number>, columns: number): Float64Array {
  const run = new Float64Array(scene.tasks * columns);
  if (scene.exact) {
    for (let cpu = 0; cpu < scene.cpus; cpu++) {
      const at = columnOf[cpu];
      for (let i = scene.after(cpu, from); i < scene.first[cpu + 1] && scene.start[i] < to; i++) {
        run[scene.task[i] * columns + at] += Math.min(to, scene.end[i]) - Math.max(from, scene.start[i]);
      }
    }
    return run;
  }
  const level = scene.levels[0];
  const stretch = scene.header.end_ns / level.bins;
  const [first, last] = [Math.floor(from / stretch), Math.min(level.bins, Math.ceil(to / stretch))];
  for (let cpu = 0; cpu < scene.cpus; cpu++) {
    for (let bin = first; bin < last; bin++) {
      const who = level.task[cpu * level.bins + bin];
      if (who > 0) run[(who - 1) * columns + columnOf[cpu]] += (level.busy[cpu * level.bins + bin] / 255) * stretch;
    }
  }
  return run;
}

/** Name of the group of every task. */
function groupNames(scene: Scene, machine: Machine, by: RowsBy, span: [number, number]): string[] {
  const { header } = scene;
  if (by === 'process') return header.task_processes.map((process) => `process ${process}`);
  if (by === 'group') return header.task_groups.map((group) => header.groups[group]);
  if (by === 'task') return header.task_names;
  const llcs = Math.max(0, ...machine.llc) + 1;
  const run = runTimes(scene, span[0], span[1], machine.llc, llcs);
  return header.task_names.map((_, task) => {
    const own = run.subarray(task * llcs, (task + 1) * llcs);
    const most = own.reduce((best, value, llc) => (value > own[best] ? llc : best), 0);
    return own[most] > 0 ? `mostly in llc${most}` : 'did not run';
  });
}

export function heatOf(
  scene: Scene,
  machine: Machine,
  [from, to]: [number, number],
  rowsBy: RowsBy,
  columnsBy: ColumnsBy,
  unfolded: ReadonlySet<string>,
): Heat {
  const position: number[] = [];
  machine.order.forEach((cpu, at) => (position[cpu] = at));
  const columnOf = columnsBy === 'cpu' ? position : machine[columnsBy];
  const count = columnsBy === 'cpu' ? scene.cpus : Math.max(0, ...machine[columnsBy]) + 1;
  const columns = columnsBy === 'cpu' ? machine.order.map((cpu) => `cpu${machine.os[cpu]}`) : Array.from({ length: count }, (_, i) => placeName(machine, columnsBy, i));
  const places = columnsBy === 'cpu' ? machine.order.map((cpu) => machine.llc[cpu]) : columns.map((_, i) => i);
  const byTask = runTimes(scene, from, to, columnOf, count);
  const names = groupNames(scene, machine, rowsBy, [from, to]);
  const members = new Map<string, number[]>();
  // Task names may repeat; every task has a row of its own all the same.
  names.forEach((name, task) => {
    const key = rowsBy === 'task' ? `${task}` : name;
    const own = members.get(key);
    if (own) own.push(task);
    else members.set(key, [task]);
  });
  const order = [...members.entries()];
  if (rowsBy === 'cluster') order.sort((a, b) => a[0].localeCompare(b[0], 'en', { numeric: true }));
  const rows: HeatRow[] = [];
  const tasks: number[][] = [];
  for (const [key, own] of order) {
    if (rowsBy === 'task' || own.length === 1) {
      rows.push({ label: scene.taskName(own[0]), group: key, kind: 'task', unfolded: false });
      tasks.push(own);
      continue;
    }
    const open = unfolded.has(key);
    rows.push({ label: / ×\d+$/.test(key) ? key : `${key} ×${own.length}`, group: key, kind: 'group', unfolded: open });
    tasks.push(own);
    if (!open) continue;
    for (const task of own) {
      rows.push({ label: scene.taskName(task), group: key, kind: 'task', unfolded: false });
      tasks.push([task]);
    }
  }
  const run = new Float64Array(rows.length * count);
  const sums = new Float64Array(rows.length);
  let most = 0;
  tasks.forEach((own, row) => {
    for (const task of own) for (let at = 0; at < count; at++) run[row * count + at] += byTask[task * count + at];
    for (let at = 0; at < count; at++) sums[row] += run[row * count + at];
    for (let at = 0; at < count; at++) most = Math.max(most, run[row * count + at] / (sums[row] || 1));
  });
  return { rows, columns, places, run, sums, most };
}
