// What lies on and beside the rows: axis, labels, decisions, moves, what was chosen.

import { css, group } from '../colour';
import { themeColour } from '../dom';
import { instant, shortenedGroup, timeTicks } from '../format';
import type { View } from './view';

/** Marks drawn one by one; more would be a solid band. */
const MOST_MARKS = 1500;
const MOST_MOVES = 400;

export function drawAxis(view: View, context: CanvasRenderingContext2D, plot: number, height: number): void {
  const { from, to } = view.state;
  const hasRoom = (tick: number): boolean => view.x(tick, plot) > view.gutter + 20 && view.x(tick, plot) < view.gutter + plot - 24;
  // One mark alone shows no scale.
  let most = Math.max(3, plot / 100);
  let ticks = timeTicks(from, to, most);
  while (ticks.filter(hasRoom).length < 2 && most < 8) ticks = timeTicks(from, to, (most += 1));
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : to - from;
  context.font = '11.5px system-ui, "DejaVu Sans", sans-serif';
  context.fillStyle = themeColour('--muted');
  context.textAlign = 'center';
  context.textBaseline = 'top';
  for (const tick of ticks) {
    const x = view.x(tick, plot);
    context.fillRect(x, height, 1, 4);
    if (hasRoom(tick)) context.fillText(instant(tick, step, to), x, height + 7);
  }
}

const LABELS = '11px system-ui, "DejaVu Sans", sans-serif';
/** Share of a pane that labels may take; longer ones are shortened. */
const MOST_LABELS = 0.35;

/** Makes room for the longest label of any row. */
export function fitLabels(view: View, context: CanvasRenderingContext2D, width: number): void {
  context.font = LABELS;
  const marks = view.settings.rowsBy === 'task' ? 5 : 16;
  let longest = 0;
  for (let row = 0; row < view.rowCount; row++) longest = Math.max(longest, context.measureText(labelOf(view, row)).width);
  view.gutter = Math.ceil(Math.min(longest + marks + 4, width * MOST_LABELS));
}

function labelOf(view: View, row: number): string {
  const { rowsBy } = view.settings;
  if (rowsBy === 'cpu') return `cpu${view.state.machine.os[view.state.cpus[row]]}`;
  if (rowsBy === 'llc') return `llc${view.state.machine.llc[view.llcs[row][0]]}`;
  const { label, folded } = view.rows[row];
  return (folded ? '▸ ' : '') + label;
}

export function drawLabels(view: View, context: CanvasRenderingContext2D, first: number, rows: number): void {
  const { llc, node } = view.state.machine;
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  context.font = LABELS;
  const every = Math.ceil(13 / view.rowHeight);
  const byTask = view.settings.rowsBy === 'task';
  const room = view.gutter - 7;
  for (let row = 0; row < rows; row++) {
    // A row lower than its letters does not cut the first label.
    const y = Math.max(7, (row + 0.5) * view.rowHeight);
    if (!byTask) {
      const cpu = view.settings.rowsBy === 'cpu' ? view.state.cpus[first + row] : view.llcs[first + row][0];
      context.fillStyle = css(group(view.settings.rowsBy === 'cpu' ? llc[cpu] : node[cpu]));
      context.fillRect(view.gutter - 7, row * view.rowHeight, 4, view.rowHeight);
    }
    if ((first + row) % every > 0) continue;
    let label = labelOf(view, first + row);
    const needed = context.measureText(label).width;
    if (needed > room) label = shortenedGroup(label, Math.floor((label.length * room) / needed));
    context.fillStyle = themeColour(byTask && view.rows[first + row].folded ? '--ink' : '--muted');
    context.fillText(label, view.gutter - (byTask ? 5 : 12), y);
  }
}

/** Wakeups drawn one by one. */
const MOST_WAKES = 300;

/** Arrows from where the waker was to where the woken task was queued: all of the span, or the one of the chosen slice. */
export function drawWakes(view: View, context: CanvasRenderingContext2D, plot: number, first: number, height: number, all: boolean): void {
  const { wakes } = view.scene;
  const rowOf = view.rowsOf();
  const chosen = view.chosen?.slice === undefined ? undefined : view.scene.wakeOf(view.chosen.slice);
  const [low, high] = all ? view.marksIn(wakes.time) : [0, 0];
  const every = Math.max(1, Math.ceil((high - low) / MOST_WAKES));
  context.strokeStyle = context.fillStyle = themeColour('--ink');
  for (let i = low; i < high; i += every) arrow(view, context, plot, height, first, rowOf, i);
  if (chosen === undefined) return;
  context.strokeStyle = context.fillStyle = themeColour('--accent');
  context.lineWidth = 2;
  arrow(view, context, plot, height, first, rowOf, chosen);
  context.lineWidth = 1;
}

function arrow(view: View, context: CanvasRenderingContext2D, plot: number, height: number, first: number, rowOf: number[], i: number): void {
  const { time, a, b, c, value } = view.scene.wakes;
  const at = (cpu: number, task: number): number => (view.rowOf(rowOf, cpu, task) - first + 0.5) * view.rowHeight;
  const to = at(value[i], c[i]);
  // An interrupt has no row of its own among tasks: its arrow is short.
  const from = a[i] === 0 && view.settings.rowsBy === 'task' ? to - view.rowHeight : at(b[i], a[i] - 1);
  if (from === to || to < 0 || to > height || from < -view.rowHeight || from > height) return;
  const x = view.x(time[i], plot);
  if (x < view.gutter || x > view.gutter + plot) return;
  const head = Math.sign(to - from) * Math.min(5, Math.max(3, view.rowHeight / 2));
  context.beginPath();
  context.moveTo(x, from);
  context.lineTo(x, to);
  context.stroke();
  context.beginPath();
  context.moveTo(x, to);
  context.lineTo(x - 3, to - head);
  context.lineTo(x + 3, to - head);
  context.fill();
}

export function drawDecisions(view: View, context: CanvasRenderingContext2D, plot: number, first: number, height: number): void {
  const marks = view.scene.decisions;
  const [low, high] = view.marksIn(marks.time);
  const every = Math.max(1, Math.ceil((high - low) / MOST_MARKS));
  const rowOf = view.rowsOf();
  context.fillStyle = themeColour('--ink');
  for (let i = low; i < high; i += every) {
    const row = view.rowOf(rowOf, marks.a[i], marks.b[i] - 1);
    const y = (row - first) * view.rowHeight;
    if (y < 0 || y >= height) continue;
    const x = view.x(marks.time[i], plot);
    context.beginPath();
    context.moveTo(x - 3, y);
    context.lineTo(x + 3, y);
    context.lineTo(x, y + Math.min(6, view.rowHeight));
    context.fill();
  }
}

export function drawMoves(view: View, context: CanvasRenderingContext2D, plot: number, first: number, height: number): void {
  const moves = view.scene.moves;
  const [low, high] = view.marksIn(moves.time);
  const rowOf = view.rowsOf();
  const every = Math.max(1, Math.ceil((high - low) / MOST_MOVES));
  context.strokeStyle = context.fillStyle = themeColour('--ink');
  context.globalAlpha = 0.7;
  for (let i = low; i < high; i += every) {
    if (view.settings.rowsBy === 'task') {
      // A tick at the top of the task's row.
      const y = (rowOf[moves.a[i]] - first) * view.rowHeight;
      if (y >= 0 && y < height) context.fillRect(view.x(moves.time[i], plot) - 0.75, y, 1.5, view.rowHeight * 0.55);
      continue;
    }
    const [from, to] = [rowOf[moves.b[i]], rowOf[moves.c[i]]].map((row) => (row - first + 0.5) * view.rowHeight);
    if (from === to || Math.max(from, to) < 0 || Math.min(from, to) > height) continue;
    const x = view.x(moves.time[i], plot);
    context.beginPath();
    context.moveTo(x, Math.max(0, Math.min(height, from)));
    context.lineTo(x, Math.max(0, Math.min(height, to)));
    context.stroke();
    context.fillRect(x - 1.5, Math.max(0, Math.min(height, to)) - 1.5, 3, 3);
  }
  context.globalAlpha = 1;
}

export function drawChoice(view: View, context: CanvasRenderingContext2D, plot: number, first: number, height: number): void {
  context.strokeStyle = themeColour('--accent');
  context.lineWidth = 2;
  if (view.chosen) {
    const y = (view.chosen.row - first) * view.rowHeight;
    const slice = view.chosen.slice;
    if (y >= 0 && y < height) {
      const [left, right] =
        slice === undefined
          ? [view.x(view.chosen.time, plot) - 1, view.x(view.chosen.time, plot) + 1]
          : [view.x(view.scene.start[slice], plot), view.x(view.scene.end[slice], plot)];
      const [a, b] = [Math.max(view.gutter, left), Math.min(view.gutter + plot, Math.max(right, left + 2))];
      if (b > a) context.strokeRect(a, y, b - a, view.rowHeight);
    }
  }
  context.lineWidth = 1;
  if (view.selection) {
    const [left, right] = view.selection.map((time) => view.x(time, plot));
    context.globalAlpha = 0.25;
    context.fillStyle = themeColour('--accent');
    context.fillRect(Math.min(left, right), 0, Math.abs(right - left), height);
    context.globalAlpha = 1;
  }
}
