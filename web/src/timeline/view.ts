// What a pane of the timeline shows: one scheduler's trial with the reader's settings.

import type { Scene } from '../scene';
import type { Row, RunState } from '../state';

export type RowsBy = 'llc' | 'cpu' | 'task';
/** `counter 3` is the rate of the scene's counter 3. */
export type ColourBy = 'group' | 'task' | 'process' | 'llc' | 'node' | 'socket' | 'length' | `counter ${number}`;

export const AXIS = 24;

export interface Settings {
  rowsBy: RowsBy;
  colourBy: ColourBy;
  decisions: boolean;
  moves: boolean;
  wakes: boolean;
}

/** What the pointer is on. */
export interface Hit {
  row: number;
  time: number;
  cpu?: number;
  slice?: number;
  decision?: number;
  move?: number;
}

/** What panes have in common. */
export interface Host {
  /** The largest number of tasks any CPU had, over all schedulers: one scale for all panes. */
  mostLength(): number;
  /** The largest value of a counter in any stretch of time, likewise. */
  mostCounted(counter: number): number;
  tell(text: string): void;
  scrollTo(top: number): void;
}

export class View {
  settings: Settings = { rowsBy: 'cpu', colourBy: 'group', decisions: true, moves: false, wakes: false };
  rows: Row[] = [];
  /** CPUs of each row where rows are LLCs. */
  llcs: number[][] = [];
  /** Width of the labels. */
  gutter = 78;
  rowHeight = 10;
  chosen: Hit | undefined;
  selection: [number, number] | undefined;

  constructor(
    readonly host: Host,
    readonly state: RunState,
    readonly scene: Scene,
  ) {}

  get rowCount(): number {
    const { rowsBy } = this.settings;
    return rowsBy === 'llc' ? this.llcs.length : rowsBy === 'cpu' ? this.state.cpus.length : this.rows.length;
  }

  /** The counter that colours stand for. */
  get counter(): number | undefined {
    const [kind, index] = this.settings.colourBy.split(' ');
    return kind === 'counter' ? Number(index) : undefined;
  }

  /** The LLC, node or socket of a CPU, by which it is coloured. */
  place(cpu: number): number {
    const { llc, node, socket } = this.state.machine;
    const by = this.settings.colourBy;
    return by === 'node' ? node[cpu] : by === 'socket' ? socket[cpu] : llc[cpu];
  }

  /** Where a time lies. */
  x(time: number, plot: number): number {
    return this.gutter + ((time - this.state.from) / (this.state.to - this.state.from)) * plot;
  }

  /** Indices of the first mark at or after each of two times. */
  marksIn(times: Float64Array): [number, number] {
    const search = (time: number): number => {
      let [low, high] = [0, times.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (times[middle] >= time) high = middle;
        else low = middle + 1;
      }
      return low;
    };
    return [search(this.state.from), search(this.state.to)];
  }

  /** The row in which a task lies that is on a CPU. */
  rowOf(rows: number[], cpu: number, task: number): number {
    return (this.settings.rowsBy === 'task' ? rows[task] : rows[cpu]) ?? -1;
  }

  /** Row of each CPU, or of each task. */
  rowsOf(): number[] {
    const rows: number[] = [];
    if (this.settings.rowsBy === 'cpu') this.state.cpus.forEach((cpu, row) => (rows[cpu] = row));
    else if (this.settings.rowsBy === 'llc') this.llcs.forEach((cpus, row) => cpus.forEach((cpu) => (rows[cpu] = row)));
    else this.rows.forEach((entry, row) => entry.tasks.forEach((task) => (rows[task] = row)));
    return rows;
  }
}

/** Where on the scale of magnitude a number of tasks lies: by logarithm when there are many. */
export function lengthShare(length: number, most: number): number {
  return most > 24 ? Math.log1p(length) / Math.log1p(most) : length / most;
}

export function lengthOf(share: number, most: number): number {
  return most > 24 ? Math.expm1(share * Math.log1p(most)) : share * most;
}

/** Where a value of a counter lies: counts span orders of magnitude. */
export function countedShare(value: number, most: number): number {
  return Math.log1p(value) / Math.log1p(Math.max(1, most));
}

export function countedOf(share: number, most: number): number {
  return Math.expm1(share * Math.log1p(Math.max(1, most)));
}
