// Slices into pixels. Where a stretch of the pyramid is at most as wide as a pixel, a row costs one look per pixel, however
// many slices there are; closer up, slices are drawn one by one.

import type { Scene } from './scene';

/** One row of pixels: who covers each most, and how much of it is covered by anybody. */
export interface PixelRow {
  /** Task + 1; 0 is nobody. */
  who: Uint32Array;
  /** 0..1. */
  cover: Float32Array;
}

export function newRow(width: number): PixelRow {
  return { who: new Uint32Array(width), cover: new Float32Array(width) };
}

const best = { values: new Float32Array(0) };

/** The row of a CPU between two times. */
export function rasterCpu(scene: Scene, cpu: number, from: number, to: number, row: PixelRow): void {
  const width = row.who.length;
  row.who.fill(0);
  row.cover.fill(0);
  const end = scene.header.end_ns;
  const needed = (width * end) / (to - from);
  if (!scene.exact || needed <= scene.levels[0].bins) {
    const level = scene.level(needed);
    const scale = level.bins / end;
    const base = cpu * level.bins;
    for (let x = 0; x < width; x++) {
      const first = Math.floor((from + ((to - from) * x) / width) * scale);
      const last = Math.max(first + 1, Math.floor((from + ((to - from) * (x + 1)) / width) * scale));
      let busy = 0;
      let most = 0;
      for (let bin = first; bin < last && bin < level.bins; bin++) {
        const value = level.busy[base + bin];
        busy += value;
        if (value > most) {
          most = value;
          row.who[x] = level.task[base + bin];
        }
      }
      row.cover[x] = busy / (last - first) / 255;
    }
    return;
  }
  const last = scene.first[cpu + 1];
  if (best.values.length < width) best.values = new Float32Array(width);
  best.values.fill(0, 0, width);
  for (let i = scene.after(cpu, from); i < last && scene.start[i] < to; i++) addSlice(scene, i, from, to, row);
}

/** The row of one task between two times; `who` holds CPU + 1. */
export function rasterTask(scene: Scene, task: number, from: number, to: number, row: PixelRow): void {
  const { first, slices } = scene.slicesByTask();
  row.who.fill(0);
  row.cover.fill(0);
  if (best.values.length < row.who.length) best.values = new Float32Array(row.who.length);
  best.values.fill(0, 0, row.who.length);
  let [low, high] = [first[task], first[task + 1]];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (scene.end[slices[middle]] > from) high = middle;
    else low = middle + 1;
  }
  for (let at = low; at < first[task + 1] && scene.start[slices[at]] < to; at++) {
    addSlice(scene, slices[at], from, to, row, scene.cpu[slices[at]] + 1);
  }
}

function addSlice(scene: Scene, i: number, from: number, to: number, row: PixelRow, mark = scene.task[i] + 1): void {
  const width = row.who.length;
  const scale = width / (to - from);
  const left = Math.max(0, (scene.start[i] - from) * scale);
  const right = Math.min(width, (scene.end[i] - from) * scale);
  const until = Math.min(width - 1, Math.floor(right));
  for (let x = Math.floor(left); x <= until; x++) {
    const part = Math.min(right, x + 1) - Math.max(left, x);
    if (part < 0) continue;
    row.cover[x] += part;
    // Something that is there is seen, however short it is.
    if (part > best.values[x] || row.who[x] === 0) {
      best.values[x] = part;
      row.who[x] = mark;
    }
  }
}
