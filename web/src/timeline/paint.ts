// Rows as pixels: CPUs or tasks, coloured by who runs, where it runs, or by a value.

import { group, magnitude, pixel } from '../colour';
import { rasterCpu, rasterTask, type PixelRow } from '../raster';
import type { Row } from '../state';
import { countedShare, lengthShare, type View } from './view';

/** Paints some rows, `pixels` wide each. */
export function paintRows(view: View, out: Uint32Array, pixels: number, first: number, rows: number, line: PixelRow): void {
  if (view.settings.rowsBy === 'cpu') paintCpus(view, out, pixels, first, rows, line);
  else paintTasks(view, out, pixels, first, rows, line);
}

function paintCpus(view: View, out: Uint32Array, pixels: number, first: number, rows: number, line: PixelRow): void {
  const { scene, state } = view;
  const by = view.settings.colourBy;
  const { task_groups, task_processes } = scene.header;
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
    const at = row * pixels;
    if (view.counter !== undefined) {
      paintCounted(view, out, at, pixels, cpu, view.counter);
      continue;
    }
    if (by === 'length') {
      paintLengths(view, out, at, pixels, cpu, most);
      continue;
    }
    rasterCpu(scene, cpu, state.from, state.to, line);
    const fixed = by === 'llc' || by === 'node' || by === 'socket' ? colour(view.place(cpu)) : undefined;
    for (let x = 0; x < pixels; x++) {
      const who = line.who[x];
      if (who === 0) continue;
      const task = who - 1;
      const base =
        fixed ?? colour(by === 'task' ? task : by === 'process' ? task_processes[task] : task_groups[task]);
      out[at + x] = (base | ((64 + 191 * Math.min(1, line.cover[x])) << 24)) >>> 0;
    }
  }
}

function paintLengths(view: View, out: Uint32Array, at: number, pixels: number, cpu: number, most: number): void {
  const { from, to } = view.state;
  const bins = view.scene.header.length_bins;
  for (let x = 0; x < pixels; x++) {
    const bin = Math.floor(((from + ((to - from) * x) / pixels) / view.scene.header.end_ns) * bins);
    const length = bin < bins ? view.scene.lengths[cpu * bins + bin] : 0;
    if (length > 0) out[at + x] = pixel(magnitude(lengthShare(length, most)));
  }
}

function paintCounted(view: View, out: Uint32Array, at: number, pixels: number, cpu: number, counter: number): void {
  const { from, to } = view.state;
  const { header } = view.scene;
  const most = view.host.mostCounted(counter);
  for (let x = 0; x < pixels; x++) {
    const bin = Math.floor(((from + ((to - from) * x) / pixels) / header.end_ns) * header.counter_bins);
    const value = view.scene.counted(counter, cpu, bin);
    if (value > 0) out[at + x] = pixel(magnitude(countedShare(value, most)));
  }
}

function paintTasks(view: View, out: Uint32Array, pixels: number, first: number, rows: number, line: PixelRow): void {
  const { scene, state } = view;
  const by = view.settings.colourBy;
  const shown = view.rows.slice(first, first + rows);
  const single = (row: Row): boolean => !row.folded && scene.exact;
  shown.forEach((row, at) => {
    if (!single(row)) return;
    rasterTask(scene, row.tasks[0], state.from, state.to, line);
    for (let x = 0; x < pixels; x++) {
      if (line.who[x] > 0) {
        const alpha = 64 + 191 * Math.min(1, line.cover[x]);
        out[at * pixels + x] = pixel(group(by === 'task' ? row.tasks[0] : view.place(line.who[x] - 1)), alpha);
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
    const tasks = Math.min(scene.cpus, shown[Math.floor(cell / pixels)].tasks.length);
    out[cell] = pixel(group(winner[cell]), 64 + 191 * Math.min(1, cover[cell] / tasks));
  }
}
