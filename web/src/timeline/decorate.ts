// What lies on and beside the rows: axis, labels, decisions, moves, what was chosen.

import { css, group } from '../colour';
import { themeColour } from '../dom';
import { instant, shortenedGroup, timeTicks } from '../format';
import { GUTTER, type View } from './view';

/** Marks drawn one by one; more would be a solid band. */
const MOST_MARKS = 1500;
const MOST_MOVES = 400;

export function drawAxis(view: View, context: CanvasRenderingContext2D, plot: number, height: number): void {
  const { from, to } = view.state;
  const ticks = timeTicks(from, to, Math.max(3, plot / 100));
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : to - from;
  context.font = '11.5px system-ui, "DejaVu Sans", sans-serif';
  context.fillStyle = themeColour('--muted');
  context.textAlign = 'center';
  context.textBaseline = 'top';
  for (const tick of ticks) {
    const x = view.x(tick, plot);
    context.fillRect(x, height, 1, 4);
    if (x > GUTTER + 20 && x < GUTTER + plot - 24) context.fillText(instant(tick, step, to), x, height + 7);
  }
}

export function drawLabels(view: View, context: CanvasRenderingContext2D, first: number, rows: number): void {
  const { llc } = view.state.machine;
  const order = view.state.cpus;
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  context.font = '11px system-ui, "DejaVu Sans", sans-serif';
  const every = Math.ceil(13 / view.rowHeight);
  for (let row = 0; row < rows; row++) {
    const y = (row + 0.5) * view.rowHeight;
    if (view.settings.rowsBy === 'cpu') {
      const cpu = order[first + row];
      context.fillStyle = css(group(llc[cpu]));
      context.fillRect(GUTTER - 7, row * view.rowHeight, 4, view.rowHeight);
      context.fillStyle = themeColour('--muted');
      if ((first + row) % every === 0) context.fillText(`cpu${cpu}`, GUTTER - 12, y);
    } else if ((first + row) % every === 0) {
      const { label, folded } = view.rows[first + row];
      context.fillStyle = themeColour(folded ? '--ink' : '--muted');
      context.fillText((folded ? '▸ ' : '') + shortenedGroup(label, 12), GUTTER - 5, y);
    }
  }
}

export function drawDecisions(view: View, context: CanvasRenderingContext2D, plot: number, first: number, height: number): void {
  const marks = view.scene.decisions;
  const [low, high] = view.marksIn(marks.time);
  const every = Math.max(1, Math.ceil((high - low) / MOST_MARKS));
  const rowOf = view.rowsOf();
  context.fillStyle = themeColour('--ink');
  for (let i = low; i < high; i += every) {
    const row = view.settings.rowsBy === 'cpu' ? rowOf[marks.a[i]] : rowOf[marks.b[i] - 1];
    const y = ((row ?? -1) - first) * view.rowHeight;
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
    if (Math.max(from, to) < 0 || Math.min(from, to) > height) continue;
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
      const [a, b] = [Math.max(GUTTER, left), Math.min(GUTTER + plot, Math.max(right, left + 2))];
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
