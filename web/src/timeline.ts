// The timeline: CPUs or tasks over time, one pane per scheduler, all showing the same span.

import { css, group, magnitude, pixel } from './colour';
import { button, choice, element, showTip, themeColour, toggle } from './dom';
import { count, duration, instant, percent, timeTicks } from './format';
import { newRow, rasterCpu, rasterTask, type PixelRow } from './raster';
import type { Scene } from './scene';
import type { Row, RunState } from './state';
import { THEME_CHANGED } from './theme';

type RowsBy = 'cpu' | 'task';
type ColourBy = 'group' | 'task' | 'process' | 'llc' | 'node' | 'socket' | 'length';

const GUTTER = 78;
const AXIS = 24;
const MOST_HEIGHT = 560;
/** Marks drawn one by one; more would be a solid band. */
const MOST_MARKS = 1500;
const MOST_MOVES = 400;

/** What the pointer is on. */
interface Hit {
  row: number;
  time: number;
  cpu?: number;
  slice?: number;
  decision?: number;
}

export class Timeline {
  private rowsBy: RowsBy = 'cpu';
  private colourBy: ColourBy = 'group';
  private showDecisions = true;
  private showMoves = false;
  private readonly panes: Pane[];
  private readonly range = element('span', 'range');
  private readonly detail = element('div', 'detail', 'Click a slice for its details. Drag to pan, shift-drag to choose a span, Ctrl and the wheel or + and − to zoom.');
  private readonly legend = element('div', 'legend');
  private readonly grid = element('div', 'panes');
  private readonly folds = element('div', 'folds');
  private readonly colourSlot = element('span');

  constructor(
    box: HTMLElement,
    private readonly state: RunState,
  ) {
    this.detail.setAttribute('role', 'status');
    this.panes = state.scenes.map((scene, index) => new Pane(this, state, scene, index));
    this.grid.append(...this.panes.map((pane) => pane.box));
    if (state.scenes.every((scene) => scene.header.groups.length < 2)) this.colourBy = 'task';
    box.append(this.tools(), this.folds, this.legend, this.grid, this.detail);
    state.listen(() => this.draw());
    document.addEventListener(THEME_CHANGED, () => state.changed());
    new ResizeObserver(() => state.changed()).observe(this.grid);
    this.draw();
  }

  private tools(): HTMLElement {
    const tools = element('div', 'tools');
    const rows = [['cpu', 'CPUs'], ['task', 'tasks']] as const;
    tools.append(
      choice('Rows', rows, this.rowsBy, (value) => {
        this.rowsBy = value;
        this.colourBy = value === 'task' ? 'llc' : 'group';
        this.offerColours();
        this.state.changed();
      }),
      this.colourSlot,
    );
    this.offerColours();
    if (this.panes.length > 1) {
      this.state.scenes.forEach((scene, index) =>
        tools.append(toggle(scene.header.scheduler, true, (on) => this.state.toggleScheduler(index, on))),
      );
    }
    if (this.state.scenes.some((scene) => scene.header.decisions_total > 0)) {
      tools.append(toggle('decisions', true, (on) => this.set(() => (this.showDecisions = on))));
    }
    tools.append(toggle('migrations', false, (on) => this.set(() => (this.showMoves = on))));
    const zoom = element('span', 'tools push');
    const named = (text: string, label: string, action: () => void): HTMLButtonElement => {
      const made = button(text, action);
      made.setAttribute('aria-label', label);
      made.title = label;
      return made;
    };
    zoom.append(
      named('−', 'Zoom out', () => this.state.zoom(2)),
      named('+', 'Zoom in', () => this.state.zoom(0.5)),
      named('←', 'Earlier', () => this.state.pan(-0.3)),
      named('→', 'Later', () => this.state.pan(0.3)),
      named('Whole', 'Show the whole run', () => this.state.show(0, this.state.end)),
      this.range,
    );
    tools.append(zoom);
    return tools;
  }

  private set(change: () => void): void {
    change();
    this.state.changed();
  }

  private offerColours(): void {
    const places = [['llc', 'LLC'], ['node', 'NUMA node'], ['socket', 'socket']] as const;
    const all: readonly (readonly [ColourBy, string])[] =
      this.rowsBy === 'task'
        ? places
        : [['group', 'role'], ['task', 'task'], ['process', 'process'], ...places, ['length', 'tasks per CPU']];
    this.colourSlot.replaceChildren(
      choice('Colour', all, this.colourBy, (value) => this.set(() => (this.colourBy = value))),
    );
  }

  private draw(): void {
    const begin = performance.now();
    const shown = this.panes.filter((_, index) => this.state.shown.has(index));
    this.grid.style.setProperty('--panes', String(Math.max(1, shown.length)));
    for (const [index, pane] of this.panes.entries()) pane.box.hidden = !this.state.shown.has(index);
    for (const pane of shown) {
      pane.draw({ rowsBy: this.rowsBy, colourBy: this.colourBy, decisions: this.showDecisions, moves: this.showMoves });
    }
    const { from, to } = this.state;
    const fine = (to - from) / 1000;
    this.range.textContent = `${instant(from, fine, to)} – ${instant(to, fine)} (${duration(to - from)})`;
    this.drawLegend();
    this.drawFolds();
    performance.clearMeasures('warmcore redraw');
    performance.measure('warmcore redraw', { start: begin, end: performance.now() });
  }

  private drawLegend(): void {
    const entries: [string, string][] = [];
    const machine = this.state.machine;
    const places = (column: number[], name: string): void => {
      const count = Math.max(0, ...column) + 1;
      for (let i = 0; i < Math.min(24, count); i++) entries.push([css(group(i)), `${name}${i}`]);
    };
    if (this.colourBy === 'llc') places(machine.llc, 'llc');
    else if (this.colourBy === 'node') places(machine.node, 'node');
    else if (this.colourBy === 'socket') places(machine.socket, 'socket');
    else if (this.colourBy === 'length') {
      for (const share of [0, 0.25, 0.5, 0.75, 1]) {
        entries.push([css(magnitude(share)), count(lengthOf(share, this.mostLength()))]);
      }
    } else if (this.colourBy === 'group') {
      this.state.scenes[0]?.header.groups.slice(0, 24).forEach((name, i) => entries.push([css(group(i)), name]));
    }
    this.legend.replaceChildren(
      ...entries.map(([colour, text]) => {
        const entry = element('span');
        const swatch = element('i', 'swatch');
        swatch.style.background = colour;
        entry.append(swatch, text);
        return entry;
      }),
    );
  }

  /** Groups of tasks as switches, when rows are tasks. */
  private drawFolds(): void {
    const groups = new Set(this.state.scenes.flatMap((scene) => scene.header.groups));
    const several = [...groups].filter((name) => / ×\d+$/.test(name));
    this.folds.hidden = this.rowsBy !== 'task' || several.length === 0;
    if (this.folds.hidden) return;
    const pressed = several.map((name) => this.state.unfolded.has(name)).join();
    if (this.folds.dataset.state === pressed) return;
    this.folds.dataset.state = pressed;
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.group : undefined;
    this.folds.replaceChildren(
      element('span', 'note', 'One row per task: '),
      ...several.slice(0, 200).map((name) => {
        const made = button(name, () => this.state.toggleGroup(name));
        made.dataset.group = name;
        made.setAttribute('aria-pressed', String(this.state.unfolded.has(name)));
        return made;
      }),
    );
    const again = [...this.folds.querySelectorAll('button')].find((made) => made.dataset.group === focused);
    again?.focus();
  }

  /** The largest number of tasks any CPU had, over all schedulers: one scale for all panes. */
  mostLength(): number {
    return Math.max(1, ...this.state.scenes.map((scene) => scene.lengths.reduce((a, b) => Math.max(a, b), 0)));
  }

  tell(text: string): void {
    this.detail.textContent = text;
  }

  /** Panes scroll together. */
  scrollTo(top: number): void {
    for (const pane of this.panes) pane.scrollTo(top);
  }
}

/** Where on the scale of magnitude a number of tasks lies: by logarithm when there are many. */
function lengthShare(length: number, most: number): number {
  return most > 24 ? Math.log1p(length) / Math.log1p(most) : length / most;
}

function lengthOf(share: number, most: number): number {
  return most > 24 ? Math.expm1(share * Math.log1p(most)) : share * most;
}

interface Settings {
  rowsBy: RowsBy;
  colourBy: ColourBy;
  decisions: boolean;
  moves: boolean;
}

class Pane {
  readonly box = element('div', 'pane');
  private readonly canvas = element('canvas');
  private readonly scroller = element('div', 'scroller');
  private readonly spacer = element('div');
  private readonly heading = element('small');
  private readonly picture = document.createElement('canvas');
  private settings: Settings = { rowsBy: 'cpu', colourBy: 'group', decisions: true, moves: false };
  private rows: Row[] = [];
  private rowHeight = 10;
  private line: PixelRow = newRow(1);
  private drag: { x: number; from: number; to: number; select: boolean; moved: boolean } | undefined;
  private selection: [number, number] | undefined;
  private chosen: Hit | undefined;

  constructor(
    private readonly timeline: Timeline,
    private readonly state: RunState,
    private readonly scene: Scene,
    index: number,
  ) {
    const title = element('h3', '', scene.header.scheduler);
    const { slice_count, moves_total, decisions_total } = scene.header;
    const decisions = decisions_total > 0 ? `, ${count(decisions_total)} decisions` : '';
    this.heading.textContent = `${count(slice_count)} slices, ${count(moves_total)} migrations${decisions}`;
    title.append(this.heading);
    this.canvas.tabIndex = 0;
    this.canvas.dataset.scheduler = String(index);
    this.canvas.setAttribute('role', 'application');
    this.canvas.setAttribute(
      'aria-label',
      `Timeline under ${scene.header.scheduler}. Arrow keys pan and choose a row, plus and minus zoom, Enter tells what runs there.`,
    );
    this.scroller.append(this.canvas, this.spacer);
    this.box.append(title, this.scroller);
    this.installPointer();
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    this.scroller.addEventListener('scroll', () => {
      this.timeline.scrollTo(this.scroller.scrollTop);
      this.state.changed();
    });
  }

  scrollTo(top: number): void {
    if (this.scroller.scrollTop !== top) this.scroller.scrollTop = top;
  }

  private get rowCount(): number {
    return this.settings.rowsBy === 'cpu' ? this.scene.cpus : this.rows.length;
  }

  draw(settings: Settings): void {
    this.settings = settings;
    if (settings.rowsBy === 'task') this.rows = this.state.rows(this.scene);
    const width = Math.max(120, this.box.clientWidth - 2);
    const least = settings.rowsBy === 'cpu' ? 2 : 5;
    this.rowHeight = Math.max(least, Math.min(15, Math.floor(420 / Math.max(1, this.rowCount))));
    const whole = this.rowHeight * this.rowCount;
    const height = Math.min(whole, MOST_HEIGHT);
    this.scroller.style.height = `${height + AXIS + 4}px`;
    this.spacer.style.height = `${whole - height}px`;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round((height + AXIS) * ratio);
    this.canvas.style.height = `${height + AXIS}px`;
    const context = this.canvas.getContext('2d');
    if (!context) return;
    context.scale(ratio, ratio);
    context.fillStyle = themeColour('--ground');
    context.fillRect(0, 0, width, height + AXIS);
    const plot = width - GUTTER;
    if (plot < 20) return;
    const first = Math.floor(this.scroller.scrollTop / this.rowHeight);
    const rows = Math.min(this.rowCount - first, Math.ceil(height / this.rowHeight));
    this.paint(context, plot, height, first, rows, ratio);
    this.axis(context, plot, height);
    this.labels(context, first, rows);
    if (settings.moves && settings.rowsBy === 'cpu') this.drawMoves(context, plot, first, height);
    if (settings.decisions) this.drawDecisions(context, plot, first, height);
    this.drawChoice(context, plot, first, height);
  }

  /** Rows as pixels, stretched to their height. */
  private paint(context: CanvasRenderingContext2D, plot: number, height: number, first: number, rows: number, ratio: number): void {
    const pixels = Math.round(plot * ratio);
    if (rows <= 0) return;
    if (this.line.who.length !== pixels) this.line = newRow(pixels);
    this.picture.width = pixels;
    this.picture.height = rows;
    const picture = this.picture.getContext('2d');
    if (!picture) return;
    const image = picture.createImageData(pixels, rows);
    const out = new Uint32Array(image.data.buffer);
    if (this.settings.rowsBy === 'cpu') this.paintCpus(out, pixels, first, rows);
    else this.paintTasks(out, pixels, first, rows);
    picture.putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.picture, 0, 0, pixels, rows, GUTTER, 0, plot, rows * this.rowHeight);
    context.fillStyle = themeColour('--ground');
    if (this.rowHeight >= 6) {
      for (let row = 1; row < rows; row++) context.fillRect(GUTTER, row * this.rowHeight - 1, plot, 1);
    }
    // A line where the LLC changes.
    if (this.settings.rowsBy === 'cpu') {
      const { order, llc } = this.state.machine;
      context.fillStyle = themeColour('--muted');
      for (let row = 1; row < rows; row++) {
        if (llc[order[first + row]] !== llc[order[first + row - 1]]) {
          context.fillRect(GUTTER, row * this.rowHeight - 1, plot, 1);
        }
      }
    }
    context.strokeStyle = themeColour('--line');
    context.strokeRect(GUTTER - 0.5, 0.5, plot, height);
  }

  private place(cpu: number): number {
    const { llc, node, socket } = this.state.machine;
    const by = this.settings.colourBy;
    return by === 'node' ? node[cpu] : by === 'socket' ? socket[cpu] : llc[cpu];
  }

  private paintCpus(out: Uint32Array, pixels: number, first: number, rows: number): void {
    const { scene, state, line } = this;
    const by = this.settings.colourBy;
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
    const most = by === 'length' ? this.timeline.mostLength() : 1;
    for (let row = 0; row < rows; row++) {
      const cpu = state.machine.order[first + row];
      const at = row * pixels;
      if (by === 'length') {
        this.paintLengths(out, at, pixels, cpu, most);
        continue;
      }
      rasterCpu(scene, cpu, state.from, state.to, line);
      const fixed = by === 'llc' || by === 'node' || by === 'socket' ? colour(this.place(cpu)) : undefined;
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

  private paintLengths(out: Uint32Array, at: number, pixels: number, cpu: number, most: number): void {
    const { from, to } = this.state;
    const bins = this.scene.header.length_bins;
    for (let x = 0; x < pixels; x++) {
      const bin = Math.floor(((from + ((to - from) * x) / pixels) / this.scene.header.end_ns) * bins);
      const length = bin < bins ? this.scene.lengths[cpu * bins + bin] : 0;
      if (length > 0) out[at + x] = pixel(magnitude(lengthShare(length, most)));
    }
  }

  private paintTasks(out: Uint32Array, pixels: number, first: number, rows: number): void {
    const { scene, state, line } = this;
    const shown = this.rows.slice(first, first + rows);
    const single = (row: Row): boolean => !row.folded && scene.exact;
    shown.forEach((row, at) => {
      if (!single(row)) return;
      rasterTask(scene, row.tasks[0], state.from, state.to, line);
      for (let x = 0; x < pixels; x++) {
        if (line.who[x] > 0) {
          const alpha = 64 + 191 * Math.min(1, line.cover[x]);
          out[at * pixels + x] = pixel(group(this.place(line.who[x] - 1)), alpha);
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
      const place = this.place(cpu);
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

  private x(time: number, plot: number): number {
    return GUTTER + ((time - this.state.from) / (this.state.to - this.state.from)) * plot;
  }

  private axis(context: CanvasRenderingContext2D, plot: number, height: number): void {
    const { from, to } = this.state;
    const ticks = timeTicks(from, to, Math.max(3, plot / 100));
    const step = ticks.length > 1 ? ticks[1] - ticks[0] : to - from;
    context.font = '11.5px system-ui, "DejaVu Sans", sans-serif';
    context.fillStyle = themeColour('--muted');
    context.textAlign = 'center';
    context.textBaseline = 'top';
    for (const tick of ticks) {
      const x = this.x(tick, plot);
      context.fillRect(x, height, 1, 4);
      if (x > GUTTER + 20 && x < GUTTER + plot - 24) context.fillText(instant(tick, step, to), x, height + 7);
    }
  }

  private labels(context: CanvasRenderingContext2D, first: number, rows: number): void {
    const { order, llc } = this.state.machine;
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    const every = Math.ceil(13 / this.rowHeight);
    for (let row = 0; row < rows; row++) {
      const y = (row + 0.5) * this.rowHeight;
      if (this.settings.rowsBy === 'cpu') {
        const cpu = order[first + row];
        context.fillStyle = css(group(llc[cpu]));
        context.fillRect(GUTTER - 7, row * this.rowHeight, 4, this.rowHeight);
        context.fillStyle = themeColour('--muted');
        if ((first + row) % every === 0) context.fillText(`cpu${cpu}`, GUTTER - 12, y);
      } else if ((first + row) % every === 0) {
        const { label, folded } = this.rows[first + row];
        context.fillStyle = themeColour(folded ? '--ink' : '--muted');
        context.fillText((folded ? '▸ ' : '') + shortened(label, 12), GUTTER - 5, y);
      }
    }
  }

  /** Indices of the first mark at or after each of two times. */
  private marksIn(times: Float64Array): [number, number] {
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

  private drawDecisions(context: CanvasRenderingContext2D, plot: number, first: number, height: number): void {
    const marks = this.scene.decisions;
    const [low, high] = this.marksIn(marks.time);
    const every = Math.max(1, Math.ceil((high - low) / MOST_MARKS));
    const rowOf = this.rowsOf();
    context.fillStyle = themeColour('--ink');
    for (let i = low; i < high; i += every) {
      const row = this.settings.rowsBy === 'cpu' ? rowOf[marks.a[i]] : rowOf[marks.b[i] - 1];
      const y = ((row ?? -1) - first) * this.rowHeight;
      if (y < 0 || y >= height) continue;
      const x = this.x(marks.time[i], plot);
      context.beginPath();
      context.moveTo(x - 3, y);
      context.lineTo(x + 3, y);
      context.lineTo(x, y + Math.min(6, this.rowHeight));
      context.fill();
    }
  }

  private drawMoves(context: CanvasRenderingContext2D, plot: number, first: number, height: number): void {
    const moves = this.scene.moves;
    const [low, high] = this.marksIn(moves.time);
    const rowOf = this.rowsOf();
    const every = Math.max(1, Math.ceil((high - low) / MOST_MOVES));
    context.strokeStyle = themeColour('--ink');
    context.globalAlpha = 0.6;
    for (let i = low; i < high; i += every) {
      const [from, to] = [rowOf[moves.b[i]], rowOf[moves.c[i]]].map((row) => (row - first + 0.5) * this.rowHeight);
      if (Math.max(from, to) < 0 || Math.min(from, to) > height) continue;
      const x = this.x(moves.time[i], plot);
      context.beginPath();
      context.moveTo(x, Math.max(0, Math.min(height, from)));
      context.lineTo(x, Math.max(0, Math.min(height, to)));
      context.stroke();
      context.fillRect(x - 1.5, Math.max(0, Math.min(height, to)) - 1.5, 3, 3);
    }
    context.globalAlpha = 1;
  }

  /** Row of each CPU, or of each task. */
  private rowsOf(): number[] {
    const rows: number[] = [];
    if (this.settings.rowsBy === 'cpu') this.state.machine.order.forEach((cpu, row) => (rows[cpu] = row));
    else this.rows.forEach((entry, row) => entry.tasks.forEach((task) => (rows[task] = row)));
    return rows;
  }

  private drawChoice(context: CanvasRenderingContext2D, plot: number, first: number, height: number): void {
    context.strokeStyle = themeColour('--accent');
    context.lineWidth = 2;
    if (this.chosen) {
      const y = (this.chosen.row - first) * this.rowHeight;
      const slice = this.chosen.slice;
      if (y >= 0 && y < height) {
        const [left, right] =
          slice === undefined
            ? [this.x(this.chosen.time, plot) - 1, this.x(this.chosen.time, plot) + 1]
            : [this.x(this.scene.start[slice], plot), this.x(this.scene.end[slice], plot)];
        const [a, b] = [Math.max(GUTTER, left), Math.min(GUTTER + plot, Math.max(right, left + 2))];
        if (b > a) context.strokeRect(a, y, b - a, this.rowHeight);
      }
    }
    context.lineWidth = 1;
    if (this.selection) {
      const [left, right] = this.selection.map((time) => this.x(time, plot));
      context.globalAlpha = 0.25;
      context.fillStyle = themeColour('--accent');
      context.fillRect(Math.min(left, right), 0, Math.abs(right - left), height);
      context.globalAlpha = 1;
    }
  }

  private timeAt(x: number): number {
    const plot = this.canvas.clientWidth - GUTTER;
    return this.state.from + ((x - GUTTER) / plot) * (this.state.to - this.state.from);
  }

  private hit(x: number, y: number): Hit | undefined {
    const row = Math.floor((y + this.scroller.scrollTop - (this.scroller.scrollTop % this.rowHeight)) / this.rowHeight);
    if (x < GUTTER || row < 0 || row >= this.rowCount || y > this.canvas.clientHeight - AXIS) return undefined;
    return this.look(row, this.timeAt(x));
  }

  /** What is at a row and a time; within a few pixels for decisions. */
  private look(row: number, time: number): Hit {
    const hit: Hit = { row, time };
    const near = ((this.state.to - this.state.from) / Math.max(1, this.canvas.clientWidth - GUTTER)) * 4;
    if (this.settings.rowsBy === 'cpu') {
      hit.cpu = this.state.machine.order[row];
      if (this.scene.exact) hit.slice = this.scene.at(hit.cpu, time) ?? this.nearest(hit.cpu, time, near);
    } else if (!this.rows[row].folded && this.scene.exact) {
      hit.slice = this.sliceOfTask(this.rows[row].tasks[0], time, near);
      if (hit.slice !== undefined) hit.cpu = this.scene.cpu[hit.slice];
    }
    if (this.settings.decisions) {
      const marks = this.scene.decisions;
      const [low, high] = this.marksIn(marks.time);
      let nearest = near;
      for (let i = low; i < high; i++) {
        const here = this.settings.rowsBy === 'cpu' ? marks.a[i] === hit.cpu : this.rows[row].tasks.includes(marks.b[i] - 1);
        if (here && Math.abs(marks.time[i] - time) <= nearest) {
          nearest = Math.abs(marks.time[i] - time);
          hit.decision = i;
        }
      }
    }
    return hit;
  }

  /** The closest slice on a CPU within a distance, for slices thinner than a pixel. */
  private nearest(cpu: number, time: number, near: number): number | undefined {
    const after = this.scene.after(cpu, time);
    const candidates = [after - 1, after].filter((i) => i >= this.scene.first[cpu] && i < this.scene.first[cpu + 1]);
    const distance = (i: number): number => Math.max(this.scene.start[i] - time, time - this.scene.end[i]);
    return candidates.filter((i) => distance(i) <= near).sort((a, b) => distance(a) - distance(b))[0];
  }

  private sliceOfTask(task: number, time: number, near: number): number | undefined {
    const { first, slices } = this.scene.slicesByTask();
    let [low, high] = [first[task], first[task + 1]];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.scene.end[slices[middle]] > time) high = middle;
      else low = middle + 1;
    }
    return low < first[task + 1] && this.scene.start[slices[low]] <= time + near ? slices[low] : undefined;
  }

  /** What is there, in words. */
  private words(hit: Hit, long: boolean): string {
    const { scene, state } = this;
    const { core, llc, node, socket } = state.machine;
    const lines: string[] = [];
    const place = (cpu: number): string =>
      `cpu${cpu} (core ${core[cpu]}, llc ${llc[cpu]}, node ${node[cpu]}, socket ${socket[cpu]})`;
    if (hit.slice !== undefined) {
      const i = hit.slice;
      const task = scene.task[i];
      const [start, end] = [scene.start[i], scene.end[i]];
      lines.push(`${scene.taskName(task)} on ${place(scene.cpu[i])}`);
      lines.push(`${instant(start, 1)} – ${instant(end, 1)}: ran ${duration(end - start)}, ended ${scene.header.slice_ends[scene.why[i]]}`);
      if (long) {
        const delay = scene.delay?.[i];
        const waited = delay === undefined ? 'not kept in a page of this size' : delay < 0 ? 'not observed' : duration(delay);
        lines.push(`Run delay before it: ${waited}. Group ${scene.header.groups[scene.header.task_groups[task]]}, process ${scene.header.task_processes[task]}.`);
      }
    } else if (this.settings.rowsBy === 'cpu' && hit.cpu !== undefined) {
      lines.push(`${place(hit.cpu)}, ${instant(hit.time, 1)}: ${scene.exact ? 'idle' : this.overviewWords(hit.cpu, hit.time)}`);
    } else if (this.settings.rowsBy === 'task') {
      lines.push(`${this.rows[hit.row].label}, ${instant(hit.time, 1)}${this.rows[hit.row].folded ? '' : ': not running'}`);
    }
    if (this.settings.rowsBy === 'cpu' && hit.cpu !== undefined && (long || this.settings.colourBy === 'length')) {
      const bins = scene.header.length_bins;
      const bin = Math.min(bins - 1, Math.floor((hit.time / scene.header.end_ns) * bins));
      lines.push(`Runnable tasks around then: ${scene.lengths[hit.cpu * bins + bin].toFixed(2)}`);
    }
    if (hit.decision !== undefined) {
      const marks = scene.decisions;
      const i = hit.decision;
      const about = marks.b[i] > 0 ? ` about ${scene.taskName(marks.b[i] - 1)}` : '';
      const name = scene.header.decisions[marks.c[i]] ?? `decision ${marks.c[i]}`;
      lines.push(`Decision at ${instant(marks.time[i], 1)}: ${name}${about}, value ${marks.value[i]}`);
    }
    return lines.join('\n');
  }

  private overviewWords(cpu: number, time: number): string {
    const level = this.scene.levels[0];
    const bin = Math.min(level.bins - 1, Math.floor((time / this.scene.header.end_ns) * level.bins));
    const who = level.task[cpu * level.bins + bin];
    if (who === 0) return 'idle';
    const busy = percent(level.busy[cpu * level.bins + bin] / 255);
    return `mostly ${this.scene.taskName(who - 1)}, busy ${busy} of ${duration(this.scene.header.end_ns / level.bins)}`;
  }

  private choose(hit: Hit | undefined): void {
    if (!hit) return;
    this.chosen = hit;
    this.timeline.tell(`${this.scene.header.scheduler}: ${this.words(hit, true)}`);
    this.state.changed();
  }

  private installPointer(): void {
    const canvas = this.canvas;
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      const { from, to } = this.state;
      this.drag = { x: event.offsetX, from, to, select: event.shiftKey, moved: false };
    });
    canvas.addEventListener('pointermove', (event) => {
      if (!this.drag) {
        const hit = this.hit(event.offsetX, event.offsetY);
        showTip(hit ? this.words(hit, false) : '', event.clientX, event.clientY);
        return;
      }
      const by = event.offsetX - this.drag.x;
      if (Math.abs(by) > 3) this.drag.moved = true;
      if (!this.drag.moved) return;
      showTip('');
      if (this.drag.select) {
        this.selection = [this.timeAt(this.drag.x), this.timeAt(event.offsetX)];
        this.state.changed();
      } else {
        const time = (by / (canvas.clientWidth - GUTTER)) * (this.drag.to - this.drag.from);
        this.state.show(this.drag.from - time, this.drag.to - time);
      }
    });
    canvas.addEventListener('pointerup', (event) => {
      const drag = this.drag;
      this.drag = undefined;
      if (this.selection) {
        const [a, b] = this.selection;
        this.selection = undefined;
        this.state.show(Math.min(a, b), Math.max(a, b));
      } else if (drag && !drag.moved) {
        this.click(event.offsetX, event.offsetY);
      }
    });
    canvas.addEventListener('pointerleave', () => showTip(''));
    canvas.addEventListener('dblclick', (event) => this.state.zoom(0.4, this.timeAt(event.offsetX)));
    canvas.addEventListener(
      'wheel',
      (event) => {
        if (event.ctrlKey || event.metaKey) {
          event.preventDefault();
          this.state.zoom(1.0015 ** event.deltaY, this.timeAt(event.offsetX));
        } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          event.preventDefault();
          this.state.pan((event.deltaX || event.deltaY) / 800);
        }
      },
      { passive: false },
    );
  }

  private click(x: number, y: number): void {
    const row = Math.floor((y + this.scroller.scrollTop) / this.rowHeight);
    if (x < GUTTER && this.settings.rowsBy === 'task' && this.rows[row]) {
      this.state.toggleGroup(this.scene.header.groups[this.rows[row].group]);
      return;
    }
    this.choose(this.hit(x, y));
  }

  private key(event: KeyboardEvent): void {
    const row = this.chosen?.row ?? -1;
    const middle = (this.state.from + this.state.to) / 2;
    const actions: Record<string, () => void> = {
      ArrowLeft: () => this.state.pan(-0.1),
      ArrowRight: () => this.state.pan(0.1),
      ArrowUp: () => this.choose(this.look(Math.max(0, row - 1), middle)),
      ArrowDown: () => this.choose(this.look(Math.min(this.rowCount - 1, row + 1), middle)),
      Enter: () => this.choose(this.look(Math.max(0, row), middle)),
      '+': () => this.state.zoom(0.5),
      '=': () => this.state.zoom(0.5),
      '-': () => this.state.zoom(2),
      Home: () => this.state.show(0, this.state.end),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey || this.rowCount === 0) return;
    event.preventDefault();
    action();
  }
}

export function shortened(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
