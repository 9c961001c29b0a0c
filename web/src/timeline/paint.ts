// Rows as pixels: CPUs or tasks, coloured by who runs, where it runs, or by a value.

import { group, magnitude, pixel } from '../colour';
import { rasterCpu, rasterTask, type PixelRow } from '../raster';
import type { Row } from '../state';
import { countedShare, lengthShare, type View } from './view';

/** Rows of one picture. Colours are full, so that they stand out from any ground: what is partly busy is lower, not paler. */
export class Picture {
  constructor(
    private readonly out: Uint32Array,
    /** Width of a row. */
    readonly pixels: number,
    /** Lines of a row. */
    private readonly lines: number,
    /** Of those the upper ones that are painted; the others lie between rows. */
    private readonly high: number,
  ) {}

  /** One pixel's width of a row, from the row's foot up to a share of its height, and never nothing. */
  bar(row: number, x: number, colour: number, share: number): void {
    const least = this.high < 6 ? 1 : 2;
    const filled = Math.max(least, Math.round(Math.min(1, share) * this.high));
    for (let at = this.high - filled; at < this.high; at++) this.out[(row * this.lines + at) * this.pixels + x] = colour;
  }
}

/** Paints some rows. */
export function paintRows(view: View, out: Picture, first: number, rows: number, line: PixelRow): void {
  if (view.settings.rowsBy === 'cpu') paintCpus(view, out, first, rows, line);
  else if (view.settings.rowsBy === 'llc') paintLlcs(view, out, first, rows, line);
  else paintTasks(view, out, first, rows, line);
}

/** Opacity of what the reader does not look for. */
const DIMMED = 40;

/** What a task on a CPU is coloured by. */
function kindOf(view: View): (task: number, cpu: number) => number {
  const { scene } = view;
  const { task_groups, task_processes, tasks_own } = scene.header;
  const own = (task: number, number: number): number => (task < tasks_own ? number : scene.colourOfTask(task));
  switch (view.settings.colourBy) {
    case 'llc':
    case 'node':
    case 'socket':
      return (_, cpu) => view.place(cpu);
    case 'task':
      return (task) => own(task, task);
    case 'process':
      return (task) => own(task, task_processes[task]);
    default:
      return (task) => own(task, task_groups[task]);
  }
}

/** By task: whether it is looked for; nothing if nobody looks for any. */
function soughtTasks(view: View): boolean[] | undefined {
  if (!view.state.sought) return undefined;
  return view.scene.header.task_names.map((_, task) => view.state.isSought(view.scene, task));
}

/** One row for all CPUs of an LLC: the colour that most of them have, as high as they are busy. */
function paintLlcs(view: View, out: Picture, first: number, rows: number, line: PixelRow): void {
  const { pixels } = out;
  const kind = kindOf(view);
  const sought = soughtTasks(view);
  const winner = new Int32Array(pixels);
  const weight = new Float32Array(pixels);
  const cover = new Float32Array(pixels);
  const found = new Uint8Array(pixels);
  const busy = new Set(view.state.busy);
  for (let row = 0; row < rows; row++) {
    const cpus = view.llcs[first + row];
    winner.fill(-1);
    weight.fill(0);
    cover.fill(0);
    found.fill(sought ? 0 : 1);
    for (const cpu of cpus) {
      if (!busy.has(cpu)) continue;
      rasterCpu(view.scene, cpu, view.state.from, view.state.to, line);
      for (let x = 0; x < pixels; x++) {
        if (line.who[x] === 0) continue;
        const own = kind(line.who[x] - 1, cpu);
        cover[x] += line.cover[x];
        if (sought?.[line.who[x] - 1]) found[x] = 1;
        if (winner[x] === own) weight[x] += line.cover[x];
        else if (weight[x] > line.cover[x]) weight[x] -= line.cover[x];
        else {
          winner[x] = own;
          weight[x] = line.cover[x] - weight[x];
        }
      }
    }
    for (let x = 0; x < pixels; x++) {
      if (winner[x] >= 0) out.bar(row, x, pixel(group(winner[x]), found[x] ? 255 : DIMMED), cover[x] / cpus.length);
    }
  }
}

function paintCpus(view: View, out: Picture, first: number, rows: number, line: PixelRow): void {
  const { scene, state } = view;
  const { pixels } = out;
  const by = view.settings.colourBy;
  const kind = kindOf(view);
  const sought = soughtTasks(view);
  const colours = new Map<number, number>();
  const colour = (index: number): number => {
    let known = colours.get(index);
    if (known === undefined) {
      known = pixel(group(index), 0);
      colours.set(index, known);
    }
    return known;
  };
  const most = by === 'length' ? view.host.mostLength() : 1;
  for (let row = 0; row < rows; row++) {
    const cpu = state.cpus[first + row];
    if (view.counter !== undefined) {
      paintCounted(view, out, row, cpu, view.counter);
      continue;
    }
    if (by === 'length') {
      paintLengths(view, out, row, cpu, most);
      continue;
    }
    rasterCpu(scene, cpu, state.from, state.to, line);
    const fixed = by === 'llc' || by === 'node' || by === 'socket' ? colour(view.place(cpu)) : undefined;
    for (let x = 0; x < pixels; x++) {
      const who = line.who[x];
      if (who === 0) continue;
      const task = who - 1;
      const base = fixed ?? colour(kind(task, cpu));
      const opacity = sought && !sought[task] ? DIMMED : 255;
      out.bar(row, x, (base | (opacity << 24)) >>> 0, line.cover[x]);
    }
  }
}

function paintLengths(view: View, out: Picture, row: number, cpu: number, most: number): void {
  const { from, to } = view.state;
  const { pixels } = out;
  const bins = view.scene.header.length_bins;
  for (let x = 0; x < pixels; x++) {
    const bin = Math.floor(((from + ((to - from) * x) / pixels) / view.scene.header.end_ns) * bins);
    const length = bin < bins ? view.scene.lengths[cpu * bins + bin] : 0;
    if (length > 0) out.bar(row, x, pixel(magnitude(lengthShare(length, most))), 1);
  }
}

function paintCounted(view: View, out: Picture, row: number, cpu: number, counter: number): void {
  const { from, to } = view.state;
  const { pixels } = out;
  const { header } = view.scene;
  const most = view.host.mostCounted(counter);
  for (let x = 0; x < pixels; x++) {
    const bin = Math.floor(((from + ((to - from) * x) / pixels) / header.end_ns) * header.counter_bins);
    const value = view.scene.counted(counter, cpu, bin);
    if (value > 0) out.bar(row, x, pixel(magnitude(countedShare(value, most))), 1);
  }
}

function paintTasks(view: View, out: Picture, first: number, rows: number, line: PixelRow): void {
  const { scene, state } = view;
  const { pixels } = out;
  const by = view.settings.colourBy;
  const shown = view.rows.slice(first, first + rows);
  const sought = soughtTasks(view);
  const dimmed = (row: Row): boolean => sought !== undefined && !row.tasks.some((task) => sought[task]);
  const single = (row: Row): boolean => !row.folded && scene.exact;
  shown.forEach((row, at) => {
    if (!single(row)) return;
    rasterTask(scene, row.tasks[0], state.from, state.to, line);
    for (let x = 0; x < pixels; x++) {
      if (line.who[x] > 0) {
        const colour = group(by === 'task' ? scene.colourOfTask(row.tasks[0]) : view.place(line.who[x] - 1));
        out.bar(at, x, pixel(colour, dimmed(row) ? DIMMED : 255), line.cover[x]);
      }
    }
  });
  if (shown.every(single)) return;
  // Folded rows: every CPU votes for the place its pixel's task ran in.
  const rowOf = new Int32Array(scene.tasks).fill(-1);
  shown.forEach((row, at) => {
    if (!single(row)) for (const task of row.tasks) rowOf[task] = at;
  });
  const winner = new Int32Array(rows * pixels).fill(-1);
  const weight = new Float32Array(rows * pixels);
  const cover = new Float32Array(rows * pixels);
  for (let cpu = 0; cpu < scene.cpus; cpu++) {
    rasterCpu(scene, cpu, state.from, state.to, line);
    const place = view.place(cpu);
    for (let x = 0; x < pixels; x++) {
      const at = line.who[x] > 0 ? rowOf[line.who[x] - 1] : -1;
      if (at < 0) continue;
      const cell = at * pixels + x;
      cover[cell] += line.cover[x];
      if (winner[cell] === place) weight[cell] += line.cover[x];
      else if (weight[cell] > line.cover[x]) weight[cell] -= line.cover[x];
      else {
        winner[cell] = place;
        weight[cell] = line.cover[x] - weight[cell];
      }
    }
  }
  for (let cell = 0; cell < winner.length; cell++) {
    if (winner[cell] < 0) continue;
    const at = Math.floor(cell / pixels);
    const row = shown[at];
    const tasks = Math.min(scene.cpus, row.tasks.length);
    out.bar(at, cell % pixels, pixel(group(winner[cell]), dimmed(row) ? DIMMED : 255), cover[cell] / tasks);
  }
}
