// Tasks × CPUs: where each spent its run time, over the timeline's span. Rows and columns can be put together, so that
// thousands of tasks on hundreds of CPUs stay readable.

import { css, group, magnitude, pixel } from './colour';
import { choice, element, showTip, themeColour } from './dom';
import { count, duration, percent } from './format';
import type { Scene } from './scene';
import type { RunState } from './state';
import { THEME_CHANGED } from './theme';
import { shortened } from './timeline';

type RowsBy = 'task' | 'process' | 'group';
type ColumnsBy = 'cpu' | 'llc' | 'node' | 'socket';

const GUTTER = 104;
const TOP = 20;
const MOST_HEIGHT = 520;

interface Heat {
  rows: string[];
  columns: string[];
  /** LLC or other place of each column. */
  places: number[];
  /** Nanoseconds, row by row. */
  run: Float64Array;
  sums: Float64Array;
  most: number;
}

export class Heatmap {
  private rowsBy: RowsBy;
  private columnsBy: ColumnsBy = 'cpu';
  private readonly grid = element('div', 'panes');
  private readonly note = element('p', 'note');
  private readonly panes: { scene: Scene; box: HTMLElement; canvas: HTMLCanvasElement; heat?: Heat }[];

  constructor(
    box: HTMLElement,
    private readonly state: RunState,
  ) {
    this.rowsBy = state.scenes.every((scene) => scene.tasks <= 128) ? 'task' : 'group';
    const heading = element('h3', '', 'Tasks × CPUs');
    const tools = element('div', 'tools');
    const rows = [['task', 'task'], ['process', 'process'], ['group', 'role']] as const;
    const columns = [['cpu', 'CPU'], ['llc', 'LLC'], ['node', 'NUMA node'], ['socket', 'socket']] as const;
    tools.append(
      choice('Rows', rows, this.rowsBy, (value) => {
        this.rowsBy = value;
        this.draw();
      }),
      choice('Columns', columns, this.columnsBy, (value) => {
        this.columnsBy = value;
        this.draw();
      }),
    );
    this.panes = state.scenes.map((scene) => {
      const canvas = element('canvas');
      canvas.tabIndex = 0;
      canvas.setAttribute('role', 'img');
      canvas.dataset.scheduler = scene.header.scheduler;
      const pane = { scene, box: element('div', 'pane'), canvas, heat: undefined as Heat | undefined };
      pane.box.append(element('h4', '', scene.header.scheduler), canvas);
      canvas.addEventListener('pointermove', (event) => {
        const text = pane.heat ? this.words(pane.heat, canvas, event.offsetX, event.offsetY) : '';
        showTip(text, event.clientX, event.clientY);
      });
      canvas.addEventListener('pointerleave', () => showTip(''));
      return pane;
    });
    this.grid.append(...this.panes.map((pane) => pane.box));
    box.append(heading, this.note, tools, this.grid);
    state.listen(() => this.draw());
    document.addEventListener(THEME_CHANGED, () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.grid);
    this.draw();
  }

  private draw(): void {
    const { from, to } = this.state;
    this.note.textContent = `Share of each row's run time per column, ${duration(from)} to ${duration(to)} (the timeline's span). Darker is more.`;
    this.grid.style.setProperty('--panes', String(Math.max(1, this.state.shown.size)));
    this.panes.forEach((pane, index) => {
      pane.box.hidden = !this.state.shown.has(index);
      if (pane.box.hidden) return;
      pane.heat = this.heat(pane.scene);
      this.paint(pane.canvas, pane.heat, pane.box.clientWidth - 2);
      pane.canvas.setAttribute('aria-label', this.summary(pane.scene, pane.heat));
    });
  }

  private heat(scene: Scene): Heat {
    const { machine, from, to } = this.state;
    const { header } = scene;
    const position: number[] = [];
    machine.order.forEach((cpu, at) => (position[cpu] = at));
    const column = (cpu: number): number => (this.columnsBy === 'cpu' ? position[cpu] : machine[this.columnsBy][cpu]);
    const columns = this.columnsBy === 'cpu' ? scene.cpus : Math.max(0, ...machine[this.columnsBy]) + 1;
    const processes = [...new Set(header.task_processes)].sort((a, b) => a - b);
    const processRow = new Map(processes.map((process, row) => [process, row]));
    const row = (task: number): number =>
      this.rowsBy === 'task' ? task : this.rowsBy === 'group' ? header.task_groups[task] : processRow.get(header.task_processes[task]) ?? 0;
    const rows =
      this.rowsBy === 'task' ? header.task_names : this.rowsBy === 'group' ? header.groups : processes.map((p) => `process ${p}`);
    const run = new Float64Array(rows.length * columns);
    if (scene.exact) {
      for (let cpu = 0; cpu < scene.cpus; cpu++) {
        const at = column(cpu);
        for (let i = scene.after(cpu, from); i < scene.first[cpu + 1] && scene.start[i] < to; i++) {
          run[row(scene.task[i]) * columns + at] += Math.min(to, scene.end[i]) - Math.max(from, scene.start[i]);
        }
      }
    } else {
      const level = scene.levels[0];
      const stretch = header.end_ns / level.bins;
      const [first, last] = [Math.floor(from / stretch), Math.min(level.bins, Math.ceil(to / stretch))];
      for (let cpu = 0; cpu < scene.cpus; cpu++) {
        for (let bin = first; bin < last; bin++) {
          const who = level.task[cpu * level.bins + bin];
          if (who > 0) run[row(who - 1) * columns + column(cpu)] += (level.busy[cpu * level.bins + bin] / 255) * stretch;
        }
      }
    }
    const sums = new Float64Array(rows.length);
    for (let i = 0; i < run.length; i++) sums[Math.floor(i / columns)] += run[i];
    let most = 0;
    for (let i = 0; i < run.length; i++) most = Math.max(most, run[i] / (sums[Math.floor(i / columns)] || 1));
    const names =
      this.columnsBy === 'cpu' ? machine.order.map((cpu) => `cpu${cpu}`) : Array.from({ length: columns }, (_, i) => `${this.columnsBy}${i}`);
    const places = this.columnsBy === 'cpu' ? machine.order.map((cpu) => machine.llc[cpu]) : names.map((_, i) => i);
    return { rows, columns: names, places, run, sums, most };
  }

  private paint(canvas: HTMLCanvasElement, heat: Heat, width: number): void {
    const [rows, columns] = [heat.rows.length, heat.columns.length];
    const height = Math.max(24, Math.min(MOST_HEIGHT, rows * 14));
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round((height + TOP) * ratio);
    canvas.style.height = `${height + TOP}px`;
    const context = canvas.getContext('2d');
    const plot = width - GUTTER;
    if (!context || plot < 20 || rows === 0) return;
    context.scale(ratio, ratio);
    context.fillStyle = themeColour('--ground');
    context.fillRect(0, 0, width, height + TOP);
    // With more rows than pixels the largest value of those that share one stays visible.
    const lines = Math.min(rows, Math.round(height * ratio));
    const image = new ImageData(columns, lines);
    const out = new Uint32Array(image.data.buffer);
    const shares = new Float64Array(lines * columns);
    for (let i = 0; i < heat.run.length; i++) {
      if (heat.run[i] === 0) continue;
      const row = Math.floor(i / columns);
      const cell = Math.floor((row * lines) / rows) * columns + (i % columns);
      shares[cell] = Math.max(shares[cell], heat.run[i] / heat.sums[row] / heat.most);
    }
    for (let i = 0; i < shares.length; i++) if (shares[i] > 0) out[i] = pixel(magnitude(shares[i]));
    const picture = document.createElement('canvas');
    [picture.width, picture.height] = [columns, lines];
    picture.getContext('2d')?.putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, GUTTER, TOP, plot, height);
    this.decorate(context, heat, plot, height);
  }

  private decorate(context: CanvasRenderingContext2D, heat: Heat, plot: number, height: number): void {
    const [rows, columns] = [heat.rows.length, heat.columns.length];
    context.font = '11px system-ui, "DejaVu Sans", sans-serif';
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    context.fillStyle = themeColour('--muted');
    const every = Math.ceil(13 / (height / rows));
    for (let row = 0; row < rows; row += every) {
      context.fillText(shortened(heat.rows[row], 16), GUTTER - 6, TOP + ((row + 0.5) * height) / rows);
    }
    const step = plot / columns;
    context.textAlign = 'left';
    for (let from = 0; from < columns; ) {
      let to = from;
      while (to < columns && heat.places[to] === heat.places[from]) to++;
      context.fillStyle = css(group(heat.places[from]));
      context.fillRect(GUTTER + from * step, TOP - 6, (to - from) * step - 1, 4);
      context.fillStyle = themeColour('--muted');
      const label = this.columnsBy === 'cpu' ? `llc${heat.places[from]}` : heat.columns[from];
      if ((to - from) * step > 36) context.fillText(label, GUTTER + from * step, TOP - 13);
      if (from > 0) context.fillRect(GUTTER + from * step, TOP, 1, height);
      from = to;
    }
    context.strokeStyle = themeColour('--line');
    context.strokeRect(GUTTER - 0.5, TOP - 0.5, plot, height);
  }

  private words(heat: Heat, canvas: HTMLCanvasElement, x: number, y: number): string {
    const column = Math.floor(((x - GUTTER) / (canvas.clientWidth - GUTTER)) * heat.columns.length);
    const row = Math.floor(((y - TOP) / (canvas.clientHeight - TOP)) * heat.rows.length);
    if (x < GUTTER || y < TOP || column >= heat.columns.length || row >= heat.rows.length) return '';
    const run = heat.run[row * heat.columns.length + column];
    const llc = this.columnsBy === 'cpu' ? ` (llc ${heat.places[column]})` : '';
    return `${heat.rows[row]} on ${heat.columns[column]}${llc}\n${duration(run)}, ${percent(heat.sums[row] ? run / heat.sums[row] : 0)} of its ${duration(heat.sums[row])}`;
  }

  private summary(scene: Scene, heat: Heat): string {
    const used = heat.run.reduce((sum, value) => sum + Number(value > 0), 0);
    return `${heat.rows.length} rows by ${heat.columns.length} columns under ${scene.header.scheduler}: ${count(used)} cells with run time, the largest share is ${percent(heat.most)}`;
  }
}
